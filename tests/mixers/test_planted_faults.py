"""A mixer with one fault of a kind is found by the check of that kind, whose message says what is wrong."""

import re
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headway.mixers import Mixed, Mixer, MixerState, State, conformance
from headway.mixers.conformance import CHECKS, ConformanceError
from headway.mixers.mixer import require_causal
from headway.tensors.masks import causal_mask, zero_padding

DIM, DECAY = 6, 0.8


class _Halved(torch.autograd.Function):
    """The identity, whose gradient is half of what it should be."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        return gradient / 2


@dataclass(frozen=True)
class Sum(MixerState):
    """The decayed sum so far, (R, D)."""

    total: Tensor

    def select(self, index: Tensor) -> "Sum":
        return Sum(self.lengths.index_select(0, index.reshape(-1)), self.total.index_select(0, index.reshape(-1)))


@dataclass(frozen=True)
class SharedSum(Sum):
    """One whose `select` copies nothing where all rows are wanted in their order."""

    def select(self, index: Tensor) -> "SharedSum":
        rows = index.reshape(-1)
        if torch.equal(rows, torch.arange(len(self.lengths))):
            return self
        return SharedSum(self.lengths[rows], self.total[rows])


@dataclass(frozen=True)
class ReversedSum(Sum):
    """One whose `select` reads an index of two axes the other way."""

    def select(self, index: Tensor) -> "ReversedSum":
        rows = index.t().reshape(-1) if index.dim() > 1 else index
        return ReversedSum(self.lengths[rows], self.total[rows])


class Faulty(Mixer):
    """z_t = W_o sum over s of 0.8^|t - s| W_v x_s, of the s up to t if causal; with one fault, by name."""

    def __init__(self, causal: bool, fault: str) -> None:
        super().__init__()
        self.causal, self.fault = causal, fault
        self.value, self.out = nn.Linear(DIM, DIM), nn.Linear(DIM, DIM)
        self.seen = 0.0

    def forward(self, x: Tensor, mask: Tensor | None, *, need_weights: bool = False) -> Mixed:
        length, fault = x.shape[1], self.fault
        if fault == "the mask is skipped for one row" and len(x) == 1:
            mask = None
        if fault == "a bias where there is padding" and mask is not None:
            values = self.value(zero_padding(x, mask))
        else:
            values = zero_padding(self.value(x), mask)
        if fault == "a wrong gradient":
            values = _Halved.apply(values)
        if fault == "a wrong gradient of long sequences" and length > 64:
            values = torch.cat([values[:, :64], _Halved.apply(values[:, 64:])], 1)
        values = F.dropout(values, 0.1, training=self.training or fault == "dropout in evaluation")
        positions = torch.arange(length)
        weights = DECAY ** (positions[:, None] - positions).abs().to(x)
        if self.causal:
            leak = int(fault.rpartition(" ")[2]) if fault.startswith("sees only the position ahead by") else 0
            ahead = (positions - positions[:, None] == leak) & (leak > 0)
            weights = weights.masked_fill(~(causal_mask(length) | ahead), 0)
        if fault.startswith("an edge at"):
            edge = int(fault.rpartition(" ")[2])
            across = (positions[:, None] < edge) != (positions < edge)
            weights = weights.masked_fill(across, 0)
        if fault.startswith("the last part of a chunk of"):
            size = int(fault.rpartition(" ")[2])
            whole = length // size * size
            weights = weights.masked_fill(((positions >= whole) & (whole > 0))[:, None] & (positions < whole), 0)
        mixed = weights @ values
        if fault == "the size of the batch counts":
            mixed = mixed * (1 + 1e-3 * len(x))
        if fault == "an attribute is left behind":
            mixed, self.seen = mixed + self.seen, float(x.detach().mean())
        mixed = zero_padding(self.out(mixed), mask)
        return Mixed(mixed.float() if fault == "another type" else mixed, None)

    def initial_state(self, rows: int, capacity: int) -> Sum:
        require_causal(self.causal)
        kinds = {"select does not copy": SharedSum, "select reads lines as columns": ReversedSum}
        return kinds.get(self.fault, Sum)(torch.zeros(rows, dtype=torch.int64), self.out.weight.new_zeros(rows, DIM))

    def extend(self, x: Tensor, state: State, lengths: Tensor | None = None) -> tuple[Tensor, Sum]:
        assert isinstance(state, Sum)
        count, total, outputs = x.shape[1], state.total, []
        if self.fault == "lengths are skipped for one row" and len(x) == 1:
            lengths = None
        values = self.value(x)
        if self.fault == "a prompt forgets the state" and count > 1:
            total = total * 0
        if self.fault == "a long prompt forgets the state" and count > 64:
            total = total * 0
        if self.fault == "rows share their state":
            total = 0.99 * total + 0.01 * total.mean(0)
        for position in range(count):
            real = (
                None if lengths is None or self.fault == "padding enters the state" else (position < lengths)[:, None]
            )
            after = total * DECAY + values[:, position]
            total = after if real is None else torch.where(real, after, total)
            outputs.append(after)
        if self.fault == "a wrong gradient of the last state":
            total = _Halved.apply(total)
        if self.fault == "another type of the state":
            total = total.float()
        if self.fault == "select does not copy":
            total = state.total.copy_(total.detach())
        after_all = replace(state, lengths=state.lengths_after(count, lengths), total=total)
        return self.out(torch.stack(outputs, 1)), after_all


FAULTS = [
    ("check_shapes", "another type", "values are torch.float32 for an input of torch.float64"),
    ("check_causality", "sees only the position ahead by 1", "sees the future"),
    ("check_causality", "sees only the position ahead by 30", "sees the future"),
    ("check_causality", "sees only the position ahead by 100", "sees the future"),
    ("check_batch", "the mask is skipped for one row", "whose mask a batch of one row may skip"),
    ("check_batch", "the size of the batch counts", "differs from the same sequence alone"),
    ("check_left_padding", "a bias where there is padding", "padding on the left changes row 1"),
    ("check_chunks", "an edge at 16", "a sequence of 17 positions differs from"),
    ("check_chunks", "an edge at 64", "a sequence of 65 positions differs from"),
    ("check_chunks", "an edge at 128", "a sequence of 129 positions differs from"),
    ("check_chunks", "the last part of a chunk of 32", "a sequence of 33 positions differs from"),
    ("check_chunks", "a long prompt forgets the state", "65 positions read at once after 5 others differ"),
    ("check_repeated_calls", "dropout in evaluation", "something is drawn at random"),
    ("check_repeated_calls", "an attribute is left behind", "something is drawn at random or kept"),
    ("check_gradients", "a wrong gradient", "the gradient of x at 7 positions is off by"),
    ("check_gradients", "a wrong gradient of long sequences", "the gradient of x at 130 positions is off by"),
    ("check_gradients", "a wrong gradient of the last state", "the gradient of x through a state is not the whole's"),
    ("check_states", "another type of the state", "the shapes and types"),
    ("check_extend", "a prompt forgets the state", "to 5 of a sequence cut at .*: the values differ from the whole"),
    ("check_rows", "rows share their state", "what row 0 read changed another row"),
    ("check_rows", "select does not copy", "select does not copy"),
    ("check_rows", "select reads lines as columns", "select gives other rows"),
    ("check_prompts", "padding enters the state", "once padding on the right was read: the values differ"),
    ("check_prompts", "lengths are skipped for one row", r"lengths are \[8\] and should be \[7\]"),
]
IN_BOTH_DIRECTIONS = [
    (name, fault)
    for name, fault, _ in FAULTS
    if name in ("check_shapes", "check_batch", "check_left_padding", "check_chunks", "check_repeated_calls")
    and "prompt" not in fault
] + [("check_gradients", "a wrong gradient"), ("check_gradients", "a wrong gradient of long sequences")]
EVERYWHERE = ("dropout in evaluation", "an attribute is left behind", "the size of the batch counts")
NOT_COMPILED = [check for check in CHECKS if "compile" not in check.__name__]


def outcome(check: conformance.Check, causal: bool, fault: str) -> str:
    """The message of a check; nothing where it passes."""
    try:
        check(lambda causal: Faulty(causal, fault), dim=DIM, causal=causal)
    except ConformanceError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("check", NOT_COMPILED, ids=lambda check: check.__name__)
def test_without_a_fault_all_pass(check: conformance.Check, causal: bool) -> None:
    assert outcome(check, causal, "none") == ""


@pytest.mark.parametrize(("name", "fault", "message"), FAULTS)
def test_the_check_of_its_kind_finds_a_fault(name: str, fault: str, message: str) -> None:
    assert re.search(message, outcome(getattr(conformance, name), True, fault))


@pytest.mark.parametrize(("name", "fault"), IN_BOTH_DIRECTIONS)
def test_so_it_does_in_both_directions(name: str, fault: str) -> None:
    message = "once it is padded" if name == "check_chunks" else next(each[2] for each in FAULTS if each[1] == fault)
    assert re.search(message, outcome(getattr(conformance, name), False, fault))


@pytest.mark.parametrize("fault", [fault for _, fault, _ in FAULTS])
def test_what_is_said_of_rows_and_gradients_is_said_of_no_other_fault(fault: str) -> None:
    right = next(name for name, each, _ in FAULTS if each == fault)
    named = {"check_rows", "check_left_padding"} - {right}
    if fault not in EVERYWHERE:
        assert [outcome(getattr(conformance, name), True, fault) for name in named] == [""] * len(named)


def test_a_mixer_that_needs_its_padding_last_may_say_so() -> None:
    class Declared(Faulty):
        needs_padding_last = True

    def build(causal: bool) -> Mixer:
        return Declared(causal, "a bias where there is padding")

    assert conformance.check_left_padding(build, dim=DIM, causal=True) is False
    assert conformance.check_padding(build, dim=DIM, causal=True) is True
