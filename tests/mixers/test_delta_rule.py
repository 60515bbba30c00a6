"""The delta rule: its chunks beside the recurrence, position by position; the mixer beside its oracle."""

import itertools
from functools import partial

import pytest
import torch

from headway.mixers.delta_rule import DeltaRule, chunked_delta_rule
from tests.mixers.oracles import DIM, assert_equals_oracle, matrix_memory
from tests.tiers import thinned

GATES = ("none", "scalar", "vector")


def recurrence(query, key, value, beta, decay, state, own=True):
    """The equation, position by position."""
    values = []
    for t in range(query.shape[1]):
        q, k, v = query[:, t, :, None], key[:, t, :, None], value[:, t, :, None]
        if decay is not None:
            state = decay[:, t, :, None].exp() * state
        before = state
        unit = torch.eye(k.shape[1], dtype=k.dtype)
        state = (unit - beta[:, t, None, None] * k @ k.mT) @ state + beta[:, t, None, None] * k @ v.mT
        values.append(((state if own else before).mT @ q).squeeze(-1))
    return torch.stack(values, 1), state


def drawn(gate, length, strength=1.0, rows=2, key=4, value=3):
    """q, k, v, beta between 0 and 2, log a, S."""
    torch.manual_seed(length)
    normal = lambda *shape: torch.randn(*shape, dtype=torch.float64)  # noqa: E731
    unit = torch.nn.functional.normalize
    width = {"none": None, "scalar": 1, "vector": key}[gate]
    decay = None if width is None else -strength * torch.rand(rows, length, width, dtype=torch.float64)
    later = None if decay is None else decay.flip(1) * torch.rand_like(decay)
    return [
        unit(normal(rows, length, key), dim=-1), unit(normal(rows, length, key), dim=-1), normal(rows, length, value),
        2 * torch.rand(rows, length, dtype=torch.float64), decay, normal(rows, key, value),
        2 * torch.rand(rows, length, dtype=torch.float64), later,
    ]  # fmt: skip


def both_directions(query, key, value, beta, decay, state, later_beta, later_decay):
    values, last = recurrence(query, key, value, beta, decay, state)
    flipped = [None if each is None else each.flip(1) for each in (query, key, value, later_beta, later_decay)]
    back, _ = recurrence(*flipped, torch.zeros_like(state), own=False)
    return values + back.flip(1), last


def assert_equal_with_gradients(inputs, both=False, size=32):
    inputs = [None if each is None else each.clone().requires_grad_() for each in inputs]
    query, key, value, beta, decay, state = inputs[:6]
    heads = lambda each: None if each is None else each.unsqueeze(1)  # noqa: E731
    gates = [(heads(beta.unsqueeze(-1)), heads(decay)), (heads(inputs[6].unsqueeze(-1)), heads(inputs[7]))][: 1 + both]
    slow = both_directions(*inputs) if both else recurrence(*inputs[:6])
    found = []
    chunked = chunked_delta_rule(heads(query), heads(key), heads(value), gates, heads(state), size)
    for result in ([part.squeeze(1) for part in chunked], slow):
        torch.manual_seed(3)
        loss = sum((part * torch.randn(part.shape, dtype=part.dtype)).sum() for part in result)
        used = [each for each in inputs[: 8 if both else 6] if each is not None]
        found.append([*result, *torch.autograd.grad(loss, used, materialize_grads=True)])
    for fast, slow in zip(*found, strict=True):
        assert torch.allclose(fast, slow, rtol=1e-9, atol=1e-10)


LENGTHS = [(1, 8), (7, 8), (8, 8), (9, 8), (17, 4), (16, 2), (5, 1), (300, 32)]


@pytest.mark.parametrize(("gate", "both", "sizes"), thinned(itertools.product(GATES, [False, True], LENGTHS), 5))
def test_chunks_equal_the_recurrence(gate, both, sizes):
    length, size = sizes
    assert_equal_with_gradients(drawn(gate, length), both, size)


@pytest.mark.parametrize("gate", ["scalar", "vector"])
@pytest.mark.parametrize("strength", [1e-6, 10.0, 500.0])
def test_decay_may_be_weak_and_strong(gate, strength):
    assert_equal_with_gradients(drawn(gate, 70, strength), both=True)


@pytest.mark.parametrize(("gate", "beta"), thinned(itertools.product(GATES, [0.0, 1e-9, 1.0, 2.0]), 5))
def test_beta_may_be_at_its_ends(gate, beta):
    inputs = drawn(gate, 70)
    inputs[3].fill_(beta)
    inputs[6].fill_(beta)
    assert_equal_with_gradients(inputs, both=True)


def read_of_head(mixer, head, own, query, key, value):
    """What a head reads at each position, from either end where it is not causal."""
    query, key = (part / part.norm(dim=-1, keepdim=True) for part in (query, key))
    parts = [part[None] for part in (query, key, value)]
    gates = [gates_of(mixer, own, direction, head) for direction in range(mixer.directions)]
    state = torch.zeros(1, mixer.key_dim, mixer.value_dim, dtype=own.dtype)
    read, _ = recurrence(*parts, *gates[0], state)
    if not mixer.causal:
        back = [None if each is None else each.flip(1) for each in (*parts, *gates[1])]
        read = read + recurrence(*back, state, own=False)[0].flip(1)
    return read[0]


def gates_of(mixer, own, direction, head):
    """beta (1, L) and log a (1, L, 1 or d) of a head."""
    beta = mixer.beta(own)[:, direction * mixer.heads + head].sigmoid() * (2 if mixer.negative_eigenvalues else 1)
    if mixer.gate == "none":
        return beta[None], None
    given = mixer.decay(own).view(len(own), mixer.directions, mixer.heads, -1)[:, direction, head]
    return beta[None], (-mixer.rate[direction, head].exp() * (1 + given.exp()).log())[None]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize(
    "options", [{}, {"negative_eigenvalues": True, "output_gate": True}, {"canon": True, "output_norm": False}]
)
def test_the_mixer_equals_its_oracle(gate, causal, options):
    torch.manual_seed(3)
    assert_equals_oracle(
        DeltaRule(DIM, causal, gate=gate, heads=2, key_dim=4, value_dim=5, **options),
        partial(matrix_memory, read_of_head),
    )
