"""The contract of a mixer: how information moves between the positions of one sequence.

Shapes: B batch, L length, K heads, D model, P parts, d head. Masks are True where a position is real (see masks.py).
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class State:
    """What decoding remembers between two positions: a value, never an attribute of a layer.

    Subclasses are frozen dataclasses. Tensors have the batch first; states and tuples nest; anything else is the same
    for every row. `step` returns a new state and leaves the old one as it was, so a state can be stepped twice.
    """

    def select(self, index: Tensor) -> Self:
        """The state of rows `index` of this one, in that order; rows may repeat or be left out.

        An index of two axes, (N, W), says that the W entries of each line are rows of the same sentence.
        """
        rows = index.reshape(-1)
        return replace(self, **{field.name: _select(getattr(self, field.name), rows) for field in fields(self)})


def _select(value: Any, index: Tensor) -> Any:
    if isinstance(value, Tensor):
        return value.index_select(0, index)
    if isinstance(value, State):
        return value.select(index)
    if isinstance(value, tuple):
        return tuple(_select(each, index) for each in value)
    return value


class Mixed(NamedTuple):
    """What a mixer gives: values (B, L, D) and, where they were asked for and exist, attention weights (B, K, L, L)."""

    values: Tensor
    weights: Tensor | None


class Part(NamedTuple):
    """A part of what a position reads: the positions `first` to `last` from it on; `None` stands for no bound there.

    A context of the whole sequence has neither, one of the positions so far ends at 0.
    """

    name: str
    first: int | None
    last: int | None


def part(first: int, last: int | None = None) -> Part:
    """The part of one offset, named like -1, 0 or +1, or that of a range, named like -12..-5."""
    last = first if last is None else last
    names = [f"{offset:+d}" if offset else "0" for offset in (first, last)]
    return Part(names[0] if first == last else "..".join(names), first, last)


class Shares(NamedTuple):
    """What each part adds to a hidden layer before its activation: the exact decomposition of a sum.

    Attributes:
        parts: the P parts, from left to right, contexts of many positions after single offsets.
        shares: (B, K, L, P, d), zero at padding; with the bias they sum to what the activation is applied to.
        values: (B, L, D), what `forward` gives, computed from the shares, so that it has a gradient with respect to
            them.
    """

    parts: tuple[Part, ...]
    shares: Tensor
    values: Tensor


class Mixer(nn.Module, ABC):
    """Moves information between positions. Whether it may look at the future is fixed when it is built.

    A subclass takes `dim` and `causal` and, keyword-only, its own few options; models never ask which mixer they have.
    """

    @abstractmethod
    def forward(self, x: Tensor, mask: Tensor | None, *, need_weights: bool = False) -> Mixed:
        """Mix all positions at once.

        Args:
            x: (B, L, D).
            mask: (B, L), True where a position is real; None when all are.
            need_weights: return the attention weights, if the mixer has any.

        Returns:
            Values are zero at padding, and padding changes nothing elsewhere. Weights sum to one over the last axis for
            every real position and are zero wherever either position is padding.
        """

    def shares(self, x: Tensor, mask: Tensor | None) -> Shares | None:
        """What each part of what a position reads adds, for a mixer that has no weights but sums parts up.

        Args:
            x: (B, L, D).
            mask: (B, L), True where a position is real; None when all are.

        Returns:
            None, unless a mixer has such parts.
        """
        return None

    @abstractmethod
    def initial_state(self, batch_size: int) -> State:
        """The state before the first position. Raises ValueError unless the mixer is causal."""

    @abstractmethod
    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """Mix one more position, x (B, D), with those before it; equals `forward` at that position."""

    def prefill(self, x: Tensor) -> tuple[Tensor, State]:
        """Mix the first positions x (B, L, D) of sequences without padding at once.

        Returns:
            Values (B, L, D) and the state after them, as L times `step` would give; mixers that can do better than
            that do.
        """
        values, state = [], self.initial_state(len(x))
        for position in x.unbind(1):
            value, state = self.step(position, state)
            values.append(value)
        return torch.stack(values, 1), state


def require_causal(causal: bool) -> None:
    """Raise ValueError where step-by-step use is asked of a mixer that sees the future."""
    if not causal:
        raise ValueError("only a mixer built with causal=True can go step by step")
