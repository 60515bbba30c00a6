"""Linear attention: its recurrence, one position after another, beside chunks; their edges, strong decay."""

from functools import partial

import pytest
import torch
from torch.nn import functional as F

from headway.mixers.linear_attention import LinearAttention
from tests.mixers.oracles import DIM, assert_equals_oracle, gradients, matrix_memory
from tests.tiers import thinned

GATES = ["none", "fixed", "scalar", "vector"]


def read_of_head(mixer, head, x, query, key, value):
    """o_t = S_t^T q_t with S_t = A_t S_{t-1} + s_t k_t v_t^T, from either end where it is not causal."""
    if mixer.gate == "none":
        query, key = F.elu(query) + 1, F.elu(key) + 1
    else:
        query = query / mixer.key_dim**0.5
    read, total = [0.0] * len(x), [0.0] * len(x)
    for direction in range(1 if mixer.causal else 2):
        memory, keys = torch.zeros(mixer.key_dim, mixer.value_dim, dtype=x.dtype), torch.zeros(mixer.key_dim).double()
        for t in range(len(x)) if direction == 0 else reversed(range(len(x))):
            kept, size = gate(mixer, head, direction, x[t])
            memory, keys = kept[:, None] * memory, keys * kept
            new = size * torch.outer(key[t], value[t])
            itself = new if direction == 0 else 0  # the diagonal counts once
            read[t] = read[t] + (memory + itself).T @ query[t]
            total[t] = total[t] + (keys + (key[t] if direction == 0 else 0)) @ query[t]
            memory, keys = memory + new, keys + key[t]
    return torch.stack([one / all for one, all in zip(read, total, strict=True)] if mixer.gate == "none" else read)


recurrence = partial(matrix_memory, read_of_head)


def gate(mixer, head, direction, x):
    """The diagonal (d,) of A_t, and s_t."""
    ones = torch.ones(mixer.key_dim, dtype=x.dtype)
    if mixer.gate == "none":
        return ones, 1.0
    if mixer.gate == "fixed":
        return ones * (1 - 2.0 ** (-5 - head)), 1.0
    given = mixer.gates(x).view(2 if not mixer.causal else 1, mixer.heads, -1)[direction, head]
    if mixer.gate == "scalar":
        size = (1 + given.exp()).log()
        return (-mixer.rate[direction, head].exp() * size).exp() * ones, size
    return given.sigmoid() ** (1 / 16), 1.0


def built(causal, gate, **options):
    torch.manual_seed(3)
    return LinearAttention(DIM, causal, gate=gate, **{"heads": 2, "key_dim": 4, "value_dim": 5} | options)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("gate", GATES)
def test_equals_the_recurrence(gate, causal):
    assert_equals_oracle(built(causal, gate), recurrence)
    assert_equals_oracle(built(causal, gate, canon=True), recurrence)


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("gate", GATES)
def test_equals_the_recurrence_across_chunks(monkeypatch, gate, causal, size):
    monkeypatch.setattr("headway.mixers.linear_attention.CHUNK", size)
    assert_equals_oracle(built(causal, gate), recurrence)


def long_input(length):
    """A sequence with padding on either side and between, and its mask."""
    x, mask = torch.randn(1, length, DIM, dtype=torch.float64), torch.ones(1, length, dtype=torch.bool)
    mask[0, :10] = mask[0, 100:105] = mask[0, -15:] = False
    return x, mask


def with_decay(mixer, decay):
    """The mixer in float64, with logarithms of gates about `decay`, some many times as much."""
    mixer = mixer.double()
    with torch.no_grad():
        if mixer.gate == "scalar":
            mixer.rate.fill_(0)
            mixer.gates.bias.copy_(torch.tensor(decay).double().expm1().log())
        if mixer.gate == "vector":
            mixer.gates[1].bias.copy_(-torch.tensor(16 * decay).double().expm1().log())
            mixer.gates[1].weight.mul_(20)
    return mixer


@pytest.mark.parametrize("decay", thinned([1e-3, 0.3, 30.0], 3, 2))
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("gate", ["scalar", "vector"])
def test_long_sequences_with_weak_and_strong_decay(gate, causal, decay):
    mixer = with_decay(built(causal, gate, heads=1, output_norm=False), decay)
    x, mask = long_input(330)
    x.requires_grad_()
    slow, fast = recurrence(mixer, x, mask), mixer(x, mask).values
    assert torch.allclose(fast, slow, atol=1e-9)
    upstream = torch.randn_like(slow)
    found = gradients(mixer, (fast * upstream).sum(), x)
    for name, right in gradients(mixer, (slow * upstream).sum(), x).items():
        assert (found[name] - right).norm() <= 1e-9 * (1 + right.norm()), name
    single = mixer.float()(x.detach().float(), mask).values
    assert (single.double() - slow).norm() <= 1e-5 * slow.norm()
    assert all(each.isfinite().all() for each in torch.autograd.grad(single.sum(), list(mixer.parameters())))


@pytest.mark.parametrize("gate", GATES)
def test_prompts_of_many_positions_and_what_follows_them(gate):
    mixer = with_decay(built(True, gate, canon=True), 0.1)
    x, counts = torch.randn(2, 300, DIM, dtype=torch.float64), torch.tensor([200, 150])
    with torch.no_grad():
        whole = mixer(x, None).values
        values, state = mixer.extend(x[:, :200], mixer.initial_state(2, 300), counts)
        assert torch.allclose(values[0], whole[0, :200], atol=1e-10)
        assert torch.allclose(values[1, :150], whole[1, :150], atol=1e-10)
        for _ in range(2):
            following = torch.stack([row[start : start + 50] for row, start in zip(x, state.lengths, strict=True)])
            values, state = mixer.extend(following[:, :1], state)
            more, state = mixer.extend(following[:, 1:50], state)
            for row, start in enumerate((state.lengths - 50).tolist()):
                found = torch.cat([values[row], more[row]])
                assert torch.allclose(found, whole[row, start : start + 50], atol=1e-10)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("gate", GATES)
def test_padding_anywhere_is_as_if_it_were_not_there(gate, causal):
    mixer = built(causal, gate).double()
    x, mask = long_input(200)
    assert torch.allclose(mixer(x, mask).values[0, mask[0]], mixer(x[:, mask[0]], None).values[0], atol=1e-10)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("gate", GATES)
def test_weights_give_what_is_read(gate, causal):
    mixer = built(causal, gate, output_norm=False, output_gate=False).double()
    x, mask = long_input(150)
    values, weights = mixer(x, mask, need_weights=True)
    value = mixer.in_projection(x)[..., mixer.widths[0] + mixer.widths[1] :].unflatten(-1, (2, -1)).transpose(1, 2)
    read = mixer.out_projection((weights @ value).transpose(1, 2).flatten(2))
    assert torch.allclose(read[mask], values[mask], atol=1e-10)
    assert (weights < 0).any() == (gate != "none")
    assert mixer.weights_sum_to_one == (gate == "none")
