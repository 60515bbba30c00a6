"""Every registered mixer keeps the contract; every check fails on a mixer that breaks what it checks."""

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor, nn

from headway.errors import UserError
from headway.mixers import MIXERS, Attention, Mixed, Mixer, Ngram, Shares, State, build_mixer, conformance
from headway.mixers.conformance import CHECKS, ConformanceError

DIM = 6
POSITIONS = {
    "no position": None,
    "t5": {"kind": "t5", "buckets": 8, "max_distance": 5},
    "alibi": "alibi",
    "rotary": "rotary",
    "half rotary": {"kind": "rotary", "share": 0.5},
}
OPTIONS = {
    "attention": {f"attention, {name}": {"head_dim": 4, "position": each} for name, each in POSITIONS.items()},
    "dependency": {
        "dependency": {},
        "dependency, all options": {"head_dim": 4, "dependency_heads": 2, "key_bias": True, "position": "rotary"},
    },
    "local": {f"local, {name}": {"n": 3, "head_dim": 4, "position": each} for name, each in POSITIONS.items()}
    | {"local, itself": {"n": 1}},
    "ngram": {
        "ngram": {"n": 3},
        "ngram, global": {"n": 2, "global_context": True},
        "ngram, prefix": {"n": 2, "global_context": "prefix", "head_dim": 5, "bias": False},
        "ngram, itself and prefix": {"n": 1, "global_context": "prefix"},
    },
    "nplm": {
        "nplm": {"n": 2, "blocks": 2, "block_size": 2, "kernels": 2, "hidden": 5},
        "nplm, distant": {"n": 1, "blocks": 1, "block_size": 3},
        "nplm, near": {"n": 3, "blocks": 0, "bias": False},
    },
}
HEADS = {"attention": 3, "dependency": 3, "local": 3, "ngram": 3}
CONFIGS = {
    name: {"kind": kind} | ({"heads": HEADS[kind]} if kind in HEADS else {}) | options
    for kind, variants in OPTIONS.items()
    for name, options in variants.items()
}


def test_every_registered_mixer_is_here():
    assert OPTIONS.keys() == MIXERS.keys()


# A window of one position is no mixing unless there is a context besides it.
EACH = [(name, causal) for name in CONFIGS for causal in (False, True) if causal or "itself" not in name]


@pytest.mark.parametrize(("name", "causal"), EACH)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_mixer_conforms(name, check, causal):
    if causal and CONFIGS[name].get("global_context") is True:
        with pytest.raises(UserError, match="would see the future"):
            build_mixer(CONFIGS[name], DIM, causal)
    else:
        check(lambda causal: build_mixer(CONFIGS[name], DIM, causal), dim=DIM, causal=causal)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("position", POSITIONS)
def test_local_attention_conforms_in_blocks(monkeypatch, position, check, causal):
    monkeypatch.setattr("headway.mixers.local.SMALLEST_BLOCK", 2)
    options = {"kind": "local", "n": 3, "heads": 3, "head_dim": 4, "position": POSITIONS[position]}
    check(lambda causal: build_mixer(options, DIM, causal), dim=DIM, causal=causal)


class Broken(Attention):
    """Self-attention with one thing wrong, by name."""

    def __init__(self, causal: bool, fault: str) -> None:
        super().__init__(DIM, causal, heads=3)
        self.fault = fault
        self.shift = torch.rand(1).item()  # not in the state dict
        self.calls = 0

    def forward(self, x: Tensor, mask: Tensor | None, *, need_weights: bool = False) -> Mixed:
        if self.fault == "padding is not masked":
            return Mixed(super().forward(x, None, need_weights=need_weights).values, None)
        if self.fault == "sees the future":
            self.causal = False
        values, weights = super().forward(x, mask, need_weights=need_weights)
        if self.fault == "NaN at padding":
            values = values / (1 if mask is None else mask[..., None])
        if self.fault == "rows mix":
            values = values + 1e-3 * values.mean(0, keepdim=True)
        if self.fault == "weights are halved" and weights is not None:
            weights = weights / 2
        if self.fault == "not all is saved":
            values = values * self.shift
        if self.fault == "coarse in bf16" and torch.is_autocast_enabled("cpu"):
            values = values * 1.1
        if self.fault == "breaks the graph" and float(values.sum().item()) > 1e9:
            values = values + 1
        if self.fault == "sees only itself":
            values = self.out_projection(self.in_projection(x)[..., :DIM])
            values = values if mask is None else values * mask[..., None]
        return Mixed(values, weights)

    def step(self, x: Tensor, state: State):
        self.calls += 1
        values, after = super().step(x, state)
        if self.fault == "forgets":
            return values, state
        if self.fault == "a state that changes":
            return values * (1 + 1e-6 * self.calls), after
        return values, after

    def prefill(self, x: Tensor):
        values, state = super().prefill(x)
        if self.fault == "forgets the first":
            return values, replace(state, keys=state.keys[1:], values=state.values[1:])
        return (values * 1.1 if self.fault == "another value at once" else values), state


class BrokenShares(Ngram):
    """N-grams with one thing wrong in their shares, by name."""

    def __init__(self, causal: bool, fault: str) -> None:
        super().__init__(DIM, causal, n=2, heads=3)
        self.fault = fault

    def shares(self, x: Tensor, mask: Tensor | None) -> Shares:
        found = super().shares(x, mask)
        if self.fault == "not all is shared out":
            return super().shares(x * 1.01, mask)
        if self.fault == "parts are mixed up":
            return found._replace(parts=found.parts[::-1])
        if self.fault == "shares at padding":
            return found._replace(shares=found.shares + 1)
        if self.fault == "values of their own":
            return found._replace(values=self.forward(x, mask).values)
        return found


FAULTS = [
    (conformance.check_shapes, True, "NaN at padding"),
    (conformance.check_causality, True, "sees the future"),
    (conformance.check_causality, False, "sees only itself"),
    (conformance.check_padding, False, "padding is not masked"),
    (conformance.check_batch, True, "rows mix"),
    (conformance.check_steps, True, "forgets"),
    (conformance.check_steps, True, "a state that changes"),
    (conformance.check_prefill, True, "forgets the first"),
    (conformance.check_prefill, True, "another value at once"),
    (conformance.check_weights, True, "weights are halved"),
    (conformance.check_save_and_load, True, "not all is saved"),
    (conformance.check_bf16, True, "coarse in bf16"),
]


@pytest.mark.parametrize(("check", "causal", "fault"), FAULTS, ids=lambda value: str(getattr(value, "__name__", value)))
def test_check_finds_the_fault(check, causal, fault):
    with pytest.raises(ConformanceError):
        check(lambda causal: Broken(causal, fault), dim=DIM, causal=causal)
    check(lambda causal: Broken(causal, "none"), dim=DIM, causal=causal)


@pytest.mark.parametrize(
    "fault", ["not all is shared out", "parts are mixed up", "shares at padding", "values of their own"]
)
def test_shares_check_finds_the_fault(fault):
    with pytest.raises(ConformanceError):
        conformance.check_shares(lambda causal: BrokenShares(causal, fault), dim=DIM, causal=True)
    conformance.check_shares(lambda causal: BrokenShares(causal, "none"), dim=DIM, causal=True)


def test_compile_check_finds_a_graph_break():
    with pytest.raises(Exception, match=r"(?i)graph|unsupported|data-dependent"):
        conformance.check_compile(lambda causal: Broken(causal, "breaks the graph"), dim=DIM, causal=True)


@dataclass(frozen=True)
class _Nothing(State):
    pass


class _Stateful(Mixer):
    """Not causal, yet gives a state."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(DIM, DIM)

    def forward(self, x, mask, *, need_weights=False):
        return Mixed(self.linear(x), None)

    def initial_state(self, batch_size):
        return _Nothing()

    def step(self, x, state):
        return self.linear(x), state


def test_steps_check_refuses_a_state_without_causality():
    with pytest.raises(ConformanceError, match="not causal"):
        conformance.check_steps(lambda causal: _Stateful(), dim=DIM, causal=False)
