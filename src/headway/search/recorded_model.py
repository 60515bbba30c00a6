"""Decoding steps that are recorded once per combination of tensor shapes and then replayed, as CUDA graphs.

The many kernels of a step can take longer to launch than to compute. A recorded step is launched as one unit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import methodcaller
from threading import Lock
from typing import Any

import torch
from torch import Tensor

from headway.core.errors import UserError, option
from headway.mixers import MixerState, State
from headway.mixers.mixer import mapped
from headway.models.model import Memory
from headway.tensors.looking import GraphRecorder, Work

ROOM = 32  # the first capacity of a state, in positions; it doubles whenever it is exceeded
MOST_RECORDS = 16  # the most records that are kept; each holds a state
Recorder = Callable[[Work], Work]  # from a function that computes a step to one that replays it


def recorder(device: torch.device) -> Recorder | None:
    """A function that records work on `device` as a CUDA graph. None if the device is not a CUDA device."""
    return GraphRecorder(device).record if device.type == "cuda" else None


def few(size: int) -> int:
    """Round `size` up to the next of 1, 2, 3, 4, 6, 8, 12, 16, 24, ..., to limit the number of different shapes."""
    power = 1 << (size - 1).bit_length()
    return power * 3 // 4 if size <= power * 3 // 4 else power


def _kind(value: Any) -> Any:
    return mapped(value, lambda tensor: (tensor.shape, tensor.dtype), Tensor)


def _tensors(value: Any) -> list[Tensor]:
    found: list[Tensor] = []
    mapped(value, found.append, Tensor)
    return found


def _copy(kept: Any, new: Any, *, shared: bool = False) -> None:
    """Copy the tensors of `new` to those of `kept`, of the same structure; if `shared`, they may be views of these."""
    pairs = [pair for pair in zip(_tensors(kept), _tensors(new), strict=True) if pair[0] is not pair[1]]
    for one, other in [(one, other.clone()) for one, other in pairs] if shared else pairs:
        one.copy_(other)


class _Record:
    """A recorded step for one combination of shapes: select rows of a state (if given an index), and extend it."""

    def __init__(self, model: Any, record: Recorder, *given: Any) -> None:
        self.model = model
        self.state, self.index, self.tokens = self.given = mapped(given, torch.clone, Tensor)
        self.replay = record(self._run)

    def _run(self) -> None:
        before = self.state if self.index is None else self.state.select(self.index)
        self.scores, after = self.model.extend(self.tokens, before)
        _copy(self.state, after, shared=self.index is None)  # selected rows are a copy already

    def __call__(self, *given: Any) -> Any:
        """Replay the step, and return the log probabilities (R, V). Then `state` of this record is the new state."""
        _copy(*(parts[given[0] is self.state :] for parts in (self.given, given)))
        self.replay()
        return self.scores


@dataclass(frozen=True)
class RecordedState(State):
    """The state of a model, and the index of the rows that the next step selects from it."""

    inner: State
    used: int  # positions so far; at most `room`
    room: int
    rows: torch.Size | None = None  # the shape of the index of the last step
    record: _Record | None = None  # the record that computed the state, if there is one
    index: Tensor | None = None

    def select(self, index: Tensor) -> RecordedState:
        return replace(self, index=index)


class RecordedModel:
    """A model that records a step when its shapes occur again. A state is valid until the next step."""

    def __init__(self, model: Any, record: Recorder) -> None:
        self.model, self.record = model, record
        self.turn = Lock()  # held by one search at a time
        self.records: dict[Any, _Record | None] = {}  # most recently used last; None for shapes seen once

    def start(self, memory: Memory, capacity: int) -> RecordedState:
        """The state before the first token. Its capacity starts at `ROOM` and doubles, so few shapes occur."""
        return RecordedState(self.model.start(memory, ROOM), 0, ROOM)

    def extend(self, tokens: Tensor, state: Any) -> tuple[Tensor, RecordedState]:
        """As the model's `extend`. Raises UserError if its state changes its size from step to step."""
        inner, index, used, room = state.inner, state.index, state.used + tokens.shape[1], state.room
        while used > room:
            inner, room = mapped(inner, methodcaller("grown", room), MixerState), 2 * room
        rows, record = None if index is None else index.shape, state.record
        if record is None or inner is not record.state or rows != state.rows:
            kind = _kind(given := (inner, index, tokens))
            if kind not in self.records:
                scores, after = self.model.extend(tokens, inner if index is None else inner.select(index))
                if _kind(after) == kind[0]:
                    self.records[kind] = None
                elif rows is not None and rows == state.rows:
                    raise UserError("this model's state changes its size", where=option("cuda_graphs"), allowed="off")
                return scores, RecordedState(after, used, room, rows)
            record = self.records[kind] = self.records.pop(kind) or _Record(self.model, self.record, *given)
            if len(self.records) > MOST_RECORDS:
                del self.records[next(iter(self.records))]
        return record(inner, index, tokens), RecordedState(record.state, used, room, rows, record)
