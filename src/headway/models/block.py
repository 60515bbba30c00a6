"""The block of a Transformer. It receives its parts and never asks which ones they are.

Shapes: B batch, L positions, S source positions, D model, R rows of a decoding step, n new positions of a row.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from torch import Tensor, nn

from headway.mixers import Mixer, State
from headway.mixers.canon import Canon, CanonState
from headway.models.components import FeedForward
from headway.models.cross_attention import CrossMixer, View
from headway.tensors.dropout import Dropout

Beside = TypeVar("Beside")
Other = TypeVar("Other")
Last = TypeVar("Last")


class Residual(nn.Module):
    """The sum around a sublayer: post-norm Norm(x + Sublayer(x)), or pre-norm x + Sublayer(Norm(x)).

    Args:
        norm: of vectors (..., D).
        dropout: of what the sublayer adds.
        post: whether the norm comes after the sum.
    """

    def __init__(self, norm: nn.Module, dropout: float, post: bool) -> None:
        super().__init__()
        self.norm, self.dropout, self.post = norm, Dropout(dropout), post

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], tuple[Tensor, Beside]]) -> tuple[Tensor, Beside]:
        """x after the sublayer, and whatever else the sublayer gives."""
        values, beside = sublayer(x if self.post else self.norm(x))
        total = x + (self.dropout(values) if self.training else values)
        return self.norm(total) if self.post else total, beside


class Wanted(NamedTuple):
    """The attention that a caller asks a block for: the mixer's weights, cross-attention's, and its scores."""

    mixer: bool = False
    cross: bool = False
    scores: bool = False


class Attended(NamedTuple):
    """The attention of a block: the mixer's weights, cross-attention's, and its scores; None where there is none."""

    mixer: Tensor | None
    cross: Tensor | None = None
    scores: Tensor | None = None


@dataclass(frozen=True)
class BlockState(State):
    """The state of a block with Canon layers: its mixer's, and those of the layers before its sublayers."""

    mixer: State
    mixer_canon: CanonState | None
    feed_forward_canon: CanonState | None


class Block(nn.Module):
    """A mixer, attention to a source where there is one, and a feed-forward network, each within a residual.

    Args:
        mixer: moves information between positions.
        cross: attention to an encoded source; None in a stack that reads one sequence.
        feed_forward: maps each position.
        residual: makes the residual around one of them.
        mixer_canon: what the mixer's input goes through within its residual, after a pre-norm: point A of the paper.
        feed_forward_canon: the same before the feed-forward network: point C.
    """

    def __init__(
        self,
        mixer: Mixer,
        cross: CrossMixer | None,
        feed_forward: FeedForward,
        residual: Callable[[], Residual],
        mixer_canon: Canon | None = None,
        feed_forward_canon: Canon | None = None,
    ) -> None:
        super().__init__()
        self.mixer, self.mixer_residual = mixer, residual()
        self.cross = cross
        if cross is not None:
            self.cross_residual = residual()
        self.feed_forward, self.feed_forward_residual = feed_forward, residual()
        self.mixer_canon, self.feed_forward_canon = mixer_canon, feed_forward_canon

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None,
        memory: Tensor | None = None,
        memory_mask: Tensor | None = None,
        wanted: Wanted = Wanted(),  # noqa: B008
    ) -> tuple[Tensor, Attended]:
        """All positions x (B, L, D), real where `mask` is True, and those of `memory` (B, S, D) that they read."""

        def mix(x: Tensor) -> tuple[Tensor, Tensor | None]:
            x = x if self.mixer_canon is None else self.mixer_canon(x, mask)
            mixed = self.mixer(x, mask, need_weights=wanted.mixer)
            return mixed.values, mixed.weights

        def read(x: Tensor, cross: CrossMixer) -> tuple[Tensor, tuple[Tensor | None, Tensor | None]]:
            assert memory is not None
            view = cross.project(memory, memory_mask)
            mixed = cross(x, view, need_weights=wanted.cross)
            weights = mixed.weights if wanted.cross else None
            return mixed.values, (weights, cross.scores(x, view) if wanted.scores else None)

        def feed(x: Tensor) -> tuple[Tensor, None]:
            x = x if self.feed_forward_canon is None else self.feed_forward_canon(x, mask)
            return self.feed_forward(x), None

        x, weights, attended, _ = self._through(x, mix, read, feed)
        return x, Attended(weights, *attended or (None, None))

    def view(self, memory: Tensor, mask: Tensor | None) -> View:
        """The part of the block's attention to `memory` (B, S, D) that is the same for every target."""
        assert self.cross is not None
        return self.cross.project(memory, mask)

    def initial_state(self, rows: int, capacity: int) -> State:
        """The state of R rows before their first position, with room for `capacity` positions of each.

        Raises:
            ValueError: the block is not causal.
        """
        mixer, canons = self.mixer.initial_state(rows, capacity), (self.mixer_canon, self.feed_forward_canon)
        if canons == (None, None):
            return mixer
        return BlockState(mixer, *(None if canon is None else canon.initial_state(rows) for canon in canons))

    def extend(
        self,
        x: Tensor,
        state: State,
        view: View | None = None,
        width: int = 1,
        positions: Tensor | None = None,
        lengths: Tensor | None = None,
    ) -> tuple[Tensor, State]:
        """The next n positions of every row, and the state after them.

        Args:
            x: (R, n, D).
            state: the block's, before them.
            view: what the block sees of the sources, where it reads them; `width` rows share each.
            width: hypotheses a sentence.
            positions: (R,) of the first of the n, where the block reads a source.
            lengths: (R,), how many of the n are real, where they are not all.
        """

        before = state if isinstance(state, BlockState) else BlockState(state, None, None)

        def mix(x: Tensor) -> tuple[Tensor, tuple[State, CanonState | None]]:
            x, canon = _extend_canon(self.mixer_canon, x, before.mixer_canon, lengths)
            values, after = self.mixer.extend(x, before.mixer, lengths)
            return values, (after, canon)

        def read(x: Tensor, cross: CrossMixer) -> tuple[Tensor, None]:
            assert view is not None
            assert positions is not None
            return cross.extend(x, view, width, positions).values, None

        def feed(x: Tensor) -> tuple[Tensor, CanonState | None]:
            x, canon = _extend_canon(self.feed_forward_canon, x, before.feed_forward_canon, lengths)
            return self.feed_forward(x), canon

        x, (mixer, mixer_canon), _, feed_forward_canon = self._through(x, mix, read, feed)
        return x, BlockState(mixer, mixer_canon, feed_forward_canon) if before is state else mixer

    def _through(
        self,
        x: Tensor,
        mix: Callable[[Tensor], tuple[Tensor, Beside]],
        read: Callable[[Tensor, CrossMixer], tuple[Tensor, Other]],
        feed: Callable[[Tensor], tuple[Tensor, Last]],
    ) -> tuple[Tensor, Beside, Other | None, Last]:
        """x after the mixer, the source and the feed-forward network, in this order, and what each of them gives."""
        x, mixed = self.mixer_residual(x, mix)
        crossed, cross = None, self.cross
        if cross is not None:
            x, crossed = self.cross_residual(x, lambda y: read(y, cross))
        x, last = self.feed_forward_residual(x, feed)
        return x, mixed, crossed, last


def _extend_canon(
    canon: Canon | None, x: Tensor, state: CanonState | None, lengths: Tensor | None
) -> tuple[Tensor, CanonState | None]:
    """New positions x (R, n, D) through a Canon layer, where there is one, and its state after them."""
    if canon is None:
        return x, None
    assert state is not None
    return canon.extend(x, state, lengths)
