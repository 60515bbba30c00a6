"""The contract of a mixer: how information moves between the positions of one sequence.

Shapes: B batch, L length, K heads, D model, P spans, d head, R rows of a state, n new positions of each. Masks are True
where a position is real (see masks.py).
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
    """The memory of decoding between two calls: a value, never an attribute of a layer.

    Subclasses are frozen dataclasses. Tensors have the rows first; states and tuples nest; anything else is the same
    for every row.
    """

    def select(self, index: Tensor) -> Self:
        """A copy of the rows `index` of this state, in that order; rows may repeat or be left out.

        An index of two axes, (N, W), says that the W entries of each line are rows of the same sentence.
        """
        rows = index.reshape(-1)

        def chosen(part: Any) -> Any:
            return part.index_select(0, rows) if isinstance(part, Tensor) else part.select(index)

        return replace(self, **{name: mapped(part, chosen, Tensor, State) for name, part in vars(self).items()})


def mapped(value: Any, change: Callable[[Any], Any], *kinds: type) -> Any:
    """A value with all parts of these kinds changed, the outer ones of those that nest."""
    if isinstance(value, kinds):
        return change(value)
    if isinstance(value, tuple):
        return tuple(mapped(part, change, *kinds) for part in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{name: mapped(part, change, *kinds) for name, part in vars(value).items()})
    return value


@dataclass(frozen=True)
class MixerState(State):
    """The memory of a mixer. Its tensors keep their shapes however many positions there are.

    Attributes:
        lengths: (R,) int64, the number of positions so far of each row.
    """

    lengths: Tensor

    def grown(self, count: int) -> "MixerState":
        """This state with room for `count` more positions; one without a capacity is as it was."""
        return self

    def positions(self, count: int) -> Tensor:
        """(R, n): the positions of the next `count` vectors of each row, counted from 0."""
        return next_positions(self.lengths, count)

    def lengths_after(self, count: int, lengths: Tensor | None) -> Tensor:
        """(R,): `lengths` once `count` vectors of each row, or `lengths` of them, have been read."""
        return self.lengths + (count if lengths is None else lengths)

    def bounds(self) -> tuple[int, int] | None:
        """The lowest and the highest length; None on an accelerator, which it would wait for, and while compiling."""
        return bounds(self.lengths)


def next_positions(lengths: Tensor, count: int) -> Tensor:
    """(R, n): the positions of the next `count` of rows that have `lengths` (R,) so far, counted from 0."""
    first = lengths.unsqueeze(1)
    return first if count == 1 else first + torch.arange(count, device=first.device)


def bounds(lengths: Tensor) -> tuple[int, int] | None:
    """The lowest and the highest of `lengths` (R,) where looking is cheap: on a CPU, and not while compiling."""
    if not may_look(lengths):
        return None
    numbers = lengths.tolist()
    return min(numbers, default=0), max(numbers, default=0)


class Mixed(NamedTuple):
    """Values (B, L, D) of a mixer and, where they were asked for and exist, attention weights (B, K, L, L)."""

    values: Tensor
    weights: Tensor | None


class Span(NamedTuple):
    """A part of what a position reads: the positions `first` to `last` from it on; `None` stands for no bound there.

    A context of the whole sequence has neither, one of the positions so far ends at 0.
    """

    name: str
    first: int | None
    last: int | None

    @classmethod
    def of(cls, first: int, last: int | None = None) -> "Span":
        """The span of one offset, named like -1, 0 or +1, or that of a range, named like -12..-5."""
        last = first if last is None else last
        names = [f"{offset:+d}" if offset else "0" for offset in (first, last)]
        return cls(names[0] if first == last else "..".join(names), first, last)


class Contributions(NamedTuple):
    """The terms of a hidden layer before its activation, span by span: the exact decomposition of a sum.

    Attributes:
        spans: the P spans, from left to right, contexts of many positions after single offsets.
        contributions: (B, K, L, P, d), zero at padding; with the bias they sum to what the activation is applied to.
        values: (B, L, D), what `forward` gives, computed from the contributions, so that it has a gradient with respect
            to them.
    """

    spans: tuple[Span, ...]
    contributions: Tensor
    values: Tensor


@runtime_checkable
class Decomposable(Protocol):
    """A mixer that has no weights but adds up what each span of its window says."""

    def contributions(self, x: Tensor, mask: Tensor | None) -> Contributions:
        """The contribution of each span.

        Args:
            x: (B, L, D).
            mask: (B, L), True where a position is real; None when all are.
        """
        ...


class Mixer(nn.Module, ABC):
    """Moves information between positions. Whether it may look at the future is fixed when it is built.

    A subclass takes `dim` and `causal` and, keyword-only, its own few options; models never ask which mixer they have.

    Attributes:
        causal: whether a position may only see itself and those before it.
        needs_padding_last: whether padding must not precede real positions (in batches it follows them).
        weights_sum_to_one: False where the weights, if there are any, are signed shares of no whole.
        shares_values: whether `forward` and `extend` take `first`, a list with the values of the lowest layer that has
            such, to be mixed in; the lowest layer itself finds it empty, and appends its own.
        reads_source: whether they take `view`, which `project` makes of an encoded source: the weights then are those
            of the source (B, K, L, S), followed by those of the sequence itself.
        edits: by the name of a span, what `forward`, `extend` and `contributions` have to replace its term by
            (`edited`); only of the `spans` that the mixer says. None at all but in an intervention.
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
            mask: (B, L), True where a position is real; None when all are. In batches padding follows the real
                positions. Causal attention relies on that on an accelerator, where looking would cost a wait.
            need_weights: return the attention weights, if the mixer has any.

        Returns:
            Values are zero at padding, and padding changes nothing elsewhere. Weights are zero wherever either position
            is padding, and sum to one over the last axis for every real position if `weights_sum_to_one`.
        """

    @abstractmethod
    def initial_state(self, rows: int, capacity: int) -> MixerState:
        """The state of R rows before their first position, with room for `capacity` positions of each.

        Raises:
            ValueError: the mixer is not causal.
        """

    @abstractmethod
    def extend(self, x: Tensor, state: State, lengths: Tensor | None = None) -> tuple[Tensor, MixerState]:
        """Mix new positions of each row with those before them: one token, a prompt, a draft. No gradient is needed.

        However a sequence is cut into such calls, they give what `forward` gives for the whole.

        Args:
            x: (R, n, D).
            state: the state before them. Its tensors may be written to beyond its lengths, so that two ways to go on
                from one state need a copy of it (`select`).
            lengths: (R,), for rows with different numbers of new positions, as prompts have: the first `lengths[r]` of
                row r are real, the rest is padding. None where all are real.

        Returns:
            Values (R, n, D), arbitrary at padding, and the state after the real positions.

        Raises:
            ValueError: more positions than the state has room for, where that can be seen without waiting for a device.
        """

    def value_map(self) -> tuple[nn.Module, slice] | None:
        """The map that gives what a position hands to others, and the columns of that; None where no map does."""
        return None

    def spans(self) -> tuple[Span, ...]:
        """The spans whose terms `edits` reach, of a mixer that adds them up; none unless a mixer says so."""
        return ()

    def edited(self, terms: Tensor, spans: Sequence[Span]) -> Tensor:
        """Terms (B, K, L, P, d) of these spans, as `edits` leave them."""
        parts = list(terms.unbind(3))
        for index, (name, *_) in enumerate(spans):
            if name in self.edits:
                part = parts[index].transpose(1, 2)
                parts[index] = self.edits[name](part.flatten(2)).view_as(part).transpose(1, 2)
        return torch.stack(parts, 3)

    def points(self) -> Points:
        """The heads, where `out_projection` joins `heads` of them, and the spans."""
        return head_points(self) | {f":offset={span.name}": self._term(span.name) for span in self.spans()}

    def _term(self, name: str) -> Place:
        def put(edit: Edit) -> Callable[[], None]:
            outer = vars(self).get("edits", {})
            inner = outer.get(name, lambda values: values)
            self.edits = outer | {name: lambda values: edit(inner(values))}
            return lambda: vars(self).update(edits=outer) if outer else vars(self).pop("edits")

        return put

    def extra_repr(self) -> str:
        """The options, for print(model)."""
        return f"causal={self.causal}"


def require_causal(causal: bool) -> None:
    """Raise ValueError where decoding is asked of a mixer that sees the future."""
    if not causal:
        raise ValueError("only a mixer built with causal=True can decode position by position")


def working_dtype(weight: Tensor) -> torch.dtype:
    """The type of products with `weight`: that of autocast, where it is on, so that states need no cast when read."""
    kind = weight.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype


def latest(window: Tensor, count: int, lengths: Tensor | None, time: int = 1) -> Tensor:
    """The last `count` positions of each row.

    Args:
        window: (R, count + n, ...), old positions followed by n new ones; (count + n, R, ...) where `time` is 0.
        count: how many.
        lengths: (R,), how many of the n are real; None for all.
        time: the axis of positions.
    """
    new = window.shape[time] - count
    if lengths is None:
        recent = window.narrow(time, new, count)
        # A view costs nothing, but one of a long prompt holds on to all of it, and in a compiled step the strides of a
        # state have to be those of the state before.
        in_place = new == 1 and not torch.compiler.is_compiling()
        return recent if in_place else recent.clone(memory_format=torch.contiguous_format)
    index = next_positions(lengths, count)
    rows = torch.arange(len(lengths), device=lengths.device)
    return window[index.t(), rows] if time == 0 else window[rows[:, None], index]
