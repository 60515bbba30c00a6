"""The interface of a mixer, a module that moves information between the positions of a sequence.

Shapes: B batch, L length, K heads, D model, P spans, d head, R rows of a state, n new positions of each. Masks are True
at real positions (see masks.py).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, Self, runtime_checkable

import torch
from torch import Tensor, nn

from headway.mixers.points import Edit, Place, Points, head_points
from headway.tensors.looking import may_look


@dataclass(frozen=True)
class State:
    """The state of decoding between two calls. It is passed as a value, and never stored in a module.

    Subclasses are frozen dataclasses. The first axis of tensors are rows. States and tuples may be nested. All other
    fields are the same for every row.
    """

    def select(self, index: Tensor) -> Self:
        """A copy of the rows `index` of this state, in that order; rows may be repeated or left out.

        In an index of two axes, (N, W), the W entries of each line are rows of the same sentence.
        """
        rows = index.reshape(-1)

        def chosen(part: Any) -> Any:
            return part.index_select(0, rows) if isinstance(part, Tensor) else part.select(index)

        return replace(self, **{name: mapped(part, chosen, Tensor, State) for name, part in vars(self).items()})


def mapped(value: Any, change: Callable[[Any], Any], *kinds: type) -> Any:
    """Apply `change` to the outermost instances of `kinds` within nested tuples and dataclasses."""
    if isinstance(value, kinds):
        return change(value)
    if isinstance(value, tuple):
        return tuple(mapped(part, change, *kinds) for part in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{name: mapped(part, change, *kinds) for name, part in vars(value).items()})
    return value


@dataclass(frozen=True)
class MixerState(State):
    """The state of a mixer. The shapes of its tensors do not depend on the number of positions.

    Attributes:
        lengths: (R,) int64, the number of positions of each row so far.
    """

    lengths: Tensor

    def grown(self, count: int) -> "MixerState":
        """This state with room for `count` more positions; unchanged if it has no capacity."""
        return self

    def positions(self, count: int) -> Tensor:
        """The positions (R, n) of the next `count` vectors of each row, counted from 0."""
        return next_positions(self.lengths, count)

    def lengths_after(self, count: int, lengths: Tensor | None) -> Tensor:
        """The lengths (R,) after reading `count` more positions of each row, or `lengths` (R,) if given."""
        return self.lengths + (count if lengths is None else lengths)

    def bounds(self) -> tuple[int, int] | None:
        """The minimum and maximum length; None while compiling and on an accelerator, where reading would wait."""
        return bounds(self.lengths)


def next_positions(lengths: Tensor, count: int) -> Tensor:
    """The next `count` positions (R, n) of rows that have `lengths` (R,) positions so far, counted from 0."""
    first = lengths.unsqueeze(1)
    return first if count == 1 else first + torch.arange(count, device=first.device)


def bounds(lengths: Tensor) -> tuple[int, int] | None:
    """Minimum and maximum of `lengths` (R,); None while compiling and on an accelerator, where reading would wait."""
    if not may_look(lengths):
        return None
    numbers = lengths.tolist()
    return min(numbers, default=0), max(numbers, default=0)


class Mixed(NamedTuple):
    """The output of a mixer: values (B, L, D) and, if requested and available, attention weights (B, K, L, L)."""

    values: Tensor
    weights: Tensor | None


class Span(NamedTuple):
    """A range of offsets that a position reads, from `first` to `last`; None stands for no bound.

    A context of the whole sequence has no bounds, one of the positions so far ends at 0.
    """

    name: str
    first: int | None
    last: int | None

    @classmethod
    def of(cls, first: int, last: int | None = None) -> "Span":
        """The span of one offset, named like -1, 0 or +1, or of a range, named like -12..-5."""
        last = first if last is None else last
        names = [f"{offset:+d}" if offset else "0" for offset in (first, last)]
        return cls(names[0] if first == last else "..".join(names), first, last)


class Contributions(NamedTuple):
    """The terms of a hidden layer before its activation, one per span: an exact decomposition of a sum.

    Attributes:
        spans: the P spans, from left to right; contexts of many positions follow single offsets.
        contributions: (B, K, L, P, d), zero at padding; with the bias they sum to the input of the activation.
        values: (B, L, D), the output of `forward`, computed from the contributions, and differentiable by them.
    """

    spans: tuple[Span, ...]
    contributions: Tensor
    values: Tensor


@runtime_checkable
class Decomposable(Protocol):
    """A mixer without attention weights that sums terms of the spans of its window."""

    def contributions(self, x: Tensor, mask: Tensor | None) -> Contributions:
        """Return the contribution of each span.

        Args:
            x: (B, L, D).
            mask: (B, L), True at real positions; None if all are real.
        """
        ...


class Mixer(nn.Module, ABC):
    """A module that moves information between positions. Whether it is causal is fixed at construction.

    A subclass takes `dim` and `causal` and, keyword-only, its own options; models do not depend on the kind of mixer.

    Attributes:
        causal: whether a position may only see itself and those before it.
        needs_padding_last: whether padding must not precede real positions (in batches it follows them).
        weights_sum_to_one: False if the weights, if there are any, are signed and not normalised.
        shares_values: whether `forward` and `extend` take `first`, a list with the values of the lowest layer that
            shares values, to be mixed in. The lowest layer itself receives an empty list, and appends its values.
        reads_source: whether they take `view`, which `project` computes from an encoded source. The weights then are
            those of the source (B, K, L, S), followed by those of the sequence.
        edits: by name of a span, the function that replaces its term in `forward`, `extend` and `contributions` (see
            `edited`); only spans in `spans` can be replaced. Empty outside of interventions.
    """

    causal: bool
    needs_padding_last: bool = False
    weights_sum_to_one: bool = True
    shares_values: bool = False
    reads_source: bool = False
    edits: Mapping[str, Edit] = MappingProxyType({})

    @abstractmethod
    def forward(self, x: Tensor, mask: Tensor | None, *, need_weights: bool = False) -> Mixed:
        """Mix all positions at once.

        Args:
            x: (B, L, D).
            mask: (B, L), True at real positions; None if all are real. In batches padding follows the real positions.
                On an accelerator causal attention relies on this, because checking would wait for the device.
            need_weights: return the attention weights, if the mixer has any.

        Returns:
            Values are zero at padding, and padding does not change other values. Weights are zero if either position is
            padding, and sum to one over the last axis for every real position if `weights_sum_to_one`.
        """

    @abstractmethod
    def initial_state(self, rows: int, capacity: int) -> MixerState:
        """The state of R rows before their first position, with room for `capacity` positions each.

        Raises:
            ValueError: the mixer is not causal.
        """

    @abstractmethod
    def extend(self, x: Tensor, state: State, lengths: Tensor | None = None) -> tuple[Tensor, MixerState]:
        """Mix new positions of each row with those before them: one token, a prompt, a draft. Needs no gradient.

        However a sequence is divided into such calls, their values equal those of `forward` on the whole sequence.

        Args:
            x: (R, n, D).
            state: the state before them. Its tensors may be written to beyond its lengths, so to continue from one
                state twice, copy it (`select`).
            lengths: (R,), if rows have different numbers of new positions, as prompts do: the first `lengths[r]` of row
                r are real, the rest is padding. None if all are real.

        Returns:
            Values (R, n, D), arbitrary at padding, and the state after the real positions.

        Raises:
            ValueError: the positions exceed the capacity of the state, where checking does not wait for a device.
        """

    def value_map(self) -> tuple[nn.Module, slice] | None:
        """The map that computes the values of positions, and the slice of its outputs with these; None if none does."""
        return None

    def spans(self) -> tuple[Span, ...]:
        """The spans whose terms `edits` can replace; none by default."""
        return ()

    def edited(self, terms: Tensor, spans: Sequence[Span]) -> Tensor:
        """Terms (B, K, L, P, d) of these spans after applying `edits`."""
        parts = list(terms.unbind(3))
        for index, (name, *_) in enumerate(spans):
            if name in self.edits:
                part = parts[index].transpose(1, 2)
                parts[index] = self.edits[name](part.flatten(2)).view_as(part).transpose(1, 2)
        return torch.stack(parts, 3)

    def points(self) -> Points:
        """Intervention points: the heads, if `out_projection` joins `heads` of them, and the spans."""
        return head_points(self) | {f":offset={span.name}": self._term(span.name) for span in self.spans()}

    def _term(self, name: str) -> Place:
        def put(edit: Edit) -> Callable[[], None]:
            outer = vars(self).get("edits", {})
            inner = outer.get(name, lambda values: values)
            self.edits = outer | {name: lambda values: edit(inner(values))}
            return lambda: vars(self).update(edits=outer) if outer else vars(self).pop("edits")

        return put

    def extra_repr(self) -> str:
        return f"causal={self.causal}"


def require_causal(causal: bool) -> None:
    """Raise ValueError if a mixer that is not causal is used for decoding."""
    if not causal:
        raise ValueError("only a mixer built with causal=True can decode position by position")


def working_dtype(weight: Tensor) -> torch.dtype:
    """The type of products with `weight`: autocast's if it is enabled, so states need no cast when they are read."""
    kind = weight.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype


def latest(window: Tensor, count: int, lengths: Tensor | None, time: int = 1) -> Tensor:
    """The last `count` positions of each row.

    Args:
        window: (R, count + n, ...), old positions followed by n new ones; (count + n, R, ...) if `time` is 0.
        count: the number of positions to return.
        lengths: (R,), how many of the n are real; None for all.
        time: the axis of positions.
    """
    new = window.shape[time] - count
    if lengths is None:
        recent = window.narrow(time, new, count)
        # A view is free, but one of a long prompt would keep all of it in memory, and in a compiled step the strides of
        # a state must not change.
        in_place = new == 1 and not torch.compiler.is_compiling()
        return recent if in_place else recent.clone(memory_format=torch.contiguous_format)
    index = next_positions(lengths, count)
    rows = torch.arange(len(lengths), device=lengths.device)
    return window[index.t(), rows] if time == 0 else window[rows[:, None], index]
