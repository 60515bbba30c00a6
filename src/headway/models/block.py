"""The block of a Transformer, composed of modules of any kind.

Shapes: B batch, L positions, S source positions, D model, R rows of a decoding step, n new positions of a row, J
sublayers, N outputs of a stack.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headway.mixers import Mixer, State
from headway.mixers.canon import Canon, CanonState, extend_canon
from headway.mixers.points import Edit, Points
from headway.models.components import FeedForward, HiddenFeedForward
from headway.models.cross_attention import CrossMixer, View
from headway.tensors.dropout import Dropout

Beside = TypeVar("Beside")
Other = TypeVar("Other")
Last = TypeVar("Last")
Stream = Tensor | tuple[Tensor, ...]  # between blocks: vectors or, with attention over depth, all outputs so far

EPSILON = 1e-6  # for the norm of keys in attention over depth


class Residual(nn.Module):
    """The residual connection around a sublayer: post-norm Norm(x + Sublayer(x)), or pre-norm x + Sublayer(Norm(x)).

    Args:
        norm: of vectors (..., D).
        dropout: of the sublayer's output.
        post: whether the norm comes after the sum.
    """

    def __init__(self, norm: nn.Module, dropout: float, post: bool) -> None:
        super().__init__()
        self.norm, self.dropout, self.post = norm, Dropout(dropout), post

    def forward(self, x: Any, sublayer: Callable[[Tensor], tuple[Tensor, Beside]]) -> tuple[Any, Beside]:
        """x after the sublayer, and the second result of the sublayer."""
        values, beside = sublayer(x if self.post else self.norm(x))
        total = x + (self.dropout(values) if self.training else values)
        return self.norm(total) if self.post else total, beside

    def added(self, edit: Edit) -> Callable[[], None]:
        """Intervention point: the sublayer's output before the sum."""

        def wrapped(_: nn.Module, given: tuple[Any, Callable[[Tensor], tuple[Tensor, Any]]]) -> Any:
            x, sublayer = given

            def edited(y: Tensor) -> tuple[Tensor, Any]:
                values, beside = sublayer(y)
                return edit(values), beside

            return x, edited

        return self.register_forward_pre_hook(wrapped).remove

    def stream(self, edit: Edit) -> Callable[[], None]:
        """Intervention point: the vectors after the sum; with attention over depth, the last output."""

        def edited(_: nn.Module, given: Any, after: tuple[Stream, Any]) -> Any:
            x, beside = after
            return (edit(x) if isinstance(x, Tensor) else (*x[:-1], edit(x[-1]))), beside

        return self.register_forward_hook(edited).remove


class DepthAttention(nn.Module):
    """Attention over outputs h_i so far: sum_i w_i h_i, w = softmax over i of q . RMSNorm(h_i) (Kimi Team 2026).

    The query q is initialised to zero, which gives the mean. The norm has no gains, because q could absorb them.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.zeros(dim))

    def weights(self, outputs: tuple[Tensor, ...]) -> Tensor:
        """The weights (B, L, N) of the N outputs."""
        keys = [F.rms_norm(output, output.shape[-1:], eps=EPSILON) for output in outputs]
        return torch.stack([key @ self.query for key in keys], -1).softmax(-1)

    def forward(self, outputs: tuple[Tensor, ...]) -> Tensor:
        """The weighted sum (B, L, D) of N outputs (B, L, D)."""
        weights = self.weights(outputs).unsqueeze(-1).unbind(-2)
        total = weights[0] * outputs[0]
        for weight, output in zip(weights[1:], outputs[1:], strict=True):  # without copying the outputs
            total = torch.addcmul(total, weight, output)
        return total


class DepthResidual(Residual):
    """A sublayer that attends to the outputs before it, instead of reading their sum.

    Its result is a new output, Sublayer(Norm(h)), or is added to the last output, which begins with a block. With
    post-norm the outputs are Norm(Sublayer(h)), or Norm(last + Sublayer(h)).

    Args:
        norm, dropout, post: as for `Residual`.
        depth: computes h from the outputs before; None for the first sublayer, which has only one.
        begins: whether the result is a new output.
    """

    def __init__(self, norm: nn.Module, dropout: float, post: bool, depth: DepthAttention | None, begins: bool) -> None:
        super().__init__(norm, dropout, post)
        self.depth, self.begins = depth, begins

    def forward(self, x: Any, sublayer: Callable[[Tensor], tuple[Tensor, Beside]]) -> tuple[Any, Beside]:
        """The outputs including that of the sublayer, and the second result of the sublayer."""
        outputs = (x,) if isinstance(x, Tensor) else x
        given = outputs[0] if self.depth is None else self.depth(outputs)
        values, beside = sublayer(given if self.post else self.norm(given))
        values = self.dropout(values) if self.training else values
        total = values if self.begins else outputs[-1] + values
        return (*(outputs if self.begins else outputs[:-1]), self.norm(total) if self.post else total), beside

    def weights(self, x: Stream) -> Tensor:
        """The attention weights (B, L, N) of the sublayer over the outputs before it."""
        if self.depth is None:
            assert isinstance(x, Tensor)
            return torch.ones_like(x[..., :1])
        assert isinstance(x, tuple)
        weights: Tensor = self.depth.weights(x)
        return weights


def ended(end: nn.Module, x: Stream, depth: Sequence[Tensor]) -> tuple[Tensor, Tensor | None]:
    """Return the vectors (B, L, D) at the top of a stack, and the weights (B, J, L, N) of attention over depth.

    Args:
        end: `DepthAttention`, or the identity.
        x: the output of the last block.
        depth: the weights (B, L, up to N) of each sublayer, if captured; padded with zeros for later outputs.
    """
    if not depth:
        return end(x), None
    assert isinstance(end, DepthAttention)
    assert isinstance(x, tuple)
    weights = [F.pad(each, (0, len(x) - each.shape[-1])) for each in (*depth, end.weights(x))]
    return end(x), torch.stack(weights, 1)


class Wanted(NamedTuple):
    """The attention that a block should return: of the mixer, of cross-attention, its scores, and over depth."""

    mixer: bool = False
    cross: bool = False
    scores: bool = False
    depth: bool = False


class Attended(NamedTuple):
    """The attention of a block: weights of the mixer and of cross-attention, and its scores; None if there is none.

    `depth` are the weights (B, L, N) of each sublayer over the outputs before it, if requested. `first` are the values
    of the lowest attention of a stack whose layers share these.
    """

    mixer: Tensor | None
    cross: Tensor | None = None
    scores: Tensor | None = None
    depth: tuple[Tensor, ...] = ()
    first: Tensor | None = None


@dataclass(frozen=True)
class BlockState(State):
    """The state of a block with Canon layers: those of its mixer and of its Canon layers."""

    mixer: State
    mixer_canon: CanonState | None = None
    feed_forward_canon: CanonState | None = None
    feed_forward_inner_canon: CanonState | None = None


class Block(nn.Module):
    """A mixer, cross-attention if the stack reads a source, and a feed-forward network, each in a residual connection.

    Args:
        mixer: mixes information between positions.
        cross: attention to an encoded source; None in a stack that reads one sequence.
        feed_forward: maps each position.
        residual: builds the residual connection of a sublayer; its argument says whether it is the first.
        mixer_canon: applied to the mixer's input within its residual, after a pre-norm: point A of the paper.
        feed_forward_canon: the same before the feed-forward network: point C.
        feed_forward_inner_canon: applied to the hidden layer before the activation: point D.
    """

    def __init__(
        self,
        mixer: Mixer,
        cross: CrossMixer | None,
        feed_forward: FeedForward,
        residual: Callable[[bool], Residual],
        mixer_canon: Canon | None = None,
        feed_forward_canon: Canon | None = None,
        feed_forward_inner_canon: Canon | None = None,
    ) -> None:
        super().__init__()
        self.mixer, self.mixer_residual = mixer, residual(True)
        self.cross = cross
        if cross is not None:
            self.cross_residual = residual(False)
        self.feed_forward, self.feed_forward_residual = feed_forward, residual(False)
        self.mixer_canon, self.feed_forward_canon = mixer_canon, feed_forward_canon
        self.feed_forward_inner_canon = feed_forward_inner_canon

    def forward(
        self,
        x: Stream,
        mask: Tensor | None,
        memory: Tensor | None = None,
        memory_mask: Tensor | None = None,
        wanted: Wanted = Wanted(),  # noqa: B008
        first: Tensor | None = None,
    ) -> tuple[Stream, Attended]:
        """Compute all positions x (B, L, D), real where `mask` is True, reading `memory` (B, S, D).

        `first` are the values of the lowest attention of the stack, if layers share these.
        """
        values, merged = [] if first is None else [first], self.mixer.reads_source

        def mix(x: Tensor) -> tuple[Tensor, Tensor | None]:
            x = x if self.mixer_canon is None else self.mixer_canon(x, mask)
            options: dict[str, Any] = {"first": values} if self.mixer.shares_values else {}
            if merged:
                assert memory is not None
                options["view"] = self.view(memory, memory_mask)
            mixed = self.mixer(x, mask, need_weights=wanted.mixer or (merged and wanted.cross), **options)
            return mixed.values, mixed.weights

        def read(x: Tensor, cross: CrossMixer) -> tuple[Tensor, tuple[Tensor | None, Tensor | None]]:
            assert memory is not None
            view = cross.project(memory, memory_mask)
            mixed = cross(x, view, need_weights=wanted.cross)
            weights = mixed.weights if wanted.cross else None
            return mixed.values, (weights, cross.scores(x, view) if wanted.scores else None)

        def feed(x: Tensor) -> tuple[Tensor, None]:
            x = x if self.feed_forward_canon is None else self.feed_forward_canon(x, mask)
            if self.feed_forward_inner_canon is None:
                return self.feed_forward(x), None
            assert isinstance(self.feed_forward, HiddenFeedForward)
            return self.feed_forward.finish(self.feed_forward_inner_canon(self.feed_forward.hidden(x), mask)), None

        depth: list[Tensor] | None = [] if wanted.depth else None
        x, weights, attended, _ = self._through(x, mix, read, feed, depth)
        crossed, scores = attended or (None, None)
        if merged and weights is not None:
            assert memory is not None
            crossed, weights = torch.split(weights, [memory.shape[1], weights.shape[-1] - memory.shape[1]], -1)
            crossed, weights = crossed if wanted.cross else None, weights if wanted.mixer else None
        return x, Attended(weights, crossed, scores, tuple(depth or ()), values[0] if values else None)

    def view(self, memory: Tensor, mask: Tensor | None) -> View:
        """The part of attention to `memory` (B, S, D) that does not depend on the target."""
        reader: Any = self.mixer if self.mixer.reads_source else self.cross
        view: View = reader.project(memory, mask)
        return view

    def points(self) -> Points:
        """Intervention points: outputs of sublayers, parts of mixer and cross-attention, and the block's output."""
        found: Points = {".residual": self.feed_forward_residual.stream}
        sublayers: dict[str, tuple[Any, Residual]] = {
            ".self": (self.mixer, self.mixer_residual),
            ".feed_forward": (self.feed_forward, self.feed_forward_residual),
        }
        if self.cross is not None:
            sublayers[".cross"] = self.cross, self.cross_residual
        for name, (sublayer, residual) in sublayers.items():
            within = sublayer.points() if isinstance(sublayer, Mixer | CrossMixer) else {}
            found |= {name: residual.added} | {f"{name}{part}": place for part, place in within.items()}
        return found

    def initial_state(self, rows: int, capacity: int) -> State:
        """The state of R rows before their first position, with room for `capacity` positions each.

        Raises:
            ValueError: the block is not causal.
        """
        mixer = self.mixer.initial_state(rows, capacity)
        canons = self.mixer_canon, self.feed_forward_canon, self.feed_forward_inner_canon
        if canons == (None, None, None):
            return mixer
        return BlockState(mixer, *(None if canon is None else canon.initial_state(rows) for canon in canons))

    def extend(
        self,
        x: Stream,
        state: State,
        view: View | None = None,
        width: int = 1,
        positions: Tensor | None = None,
        lengths: Tensor | None = None,
        first: list[Tensor] | None = None,
    ) -> tuple[Stream, State]:
        """Compute the next n positions of every row, and return them with the new state.

        Args:
            x: (R, n, D).
            state: of the block, before these positions.
            view: of the sources, if the block reads them; `width` rows share each.
            width: hypotheses per sentence.
            positions: (R,) of the first of the n, if the block reads a source.
            lengths: (R,), how many of the n are real; None if all are.
            first: the list to which the lowest attention appends its values, if layers share these.
        """

        before = state if isinstance(state, BlockState) else BlockState(state)

        def mix(x: Tensor) -> tuple[Tensor, tuple[State, CanonState | None]]:
            x, canon = extend_canon(self.mixer_canon, x, before.mixer_canon, lengths)
            options: dict[str, Any] = {"first": first} if self.mixer.shares_values else {}
            options |= {"view": view} if self.mixer.reads_source else {}
            values, after = self.mixer.extend(x, before.mixer, lengths, **options)
            return values, (after, canon)

        def read(x: Tensor, cross: CrossMixer) -> tuple[Tensor, None]:
            assert view is not None
            assert positions is not None
            return cross.extend(x, view, width, positions).values, None

        def feed(x: Tensor) -> tuple[Tensor, tuple[CanonState | None, CanonState | None]]:
            x, canon = extend_canon(self.feed_forward_canon, x, before.feed_forward_canon, lengths)
            if self.feed_forward_inner_canon is None:
                return self.feed_forward(x), (canon, None)
            assert isinstance(self.feed_forward, HiddenFeedForward)
            hidden, inner = self.feed_forward.hidden(x), before.feed_forward_inner_canon
            hidden, inner = extend_canon(self.feed_forward_inner_canon, hidden, inner, lengths)
            return self.feed_forward.finish(hidden), (canon, inner)

        x, (mixer, mixer_canon), _, canons = self._through(x, mix, read, feed)
        return x, BlockState(mixer, mixer_canon, *canons) if before is state else mixer

    def _through(
        self,
        x: Stream,
        mix: Callable[[Tensor], tuple[Tensor, Beside]],
        read: Callable[[Tensor, CrossMixer], tuple[Tensor, Other]],
        feed: Callable[[Tensor], tuple[Tensor, Last]],
        depth: list[Tensor] | None = None,
    ) -> tuple[Stream, Beside, Other | None, Last]:
        """Apply mixer, cross-attention and feed-forward network, and return x with the second result of each.

        The weights of each over the outputs before it are appended to `depth`.
        """

        def within(residual: Residual, x: Stream, sublayer: Callable[[Tensor], Any]) -> Any:
            if depth is not None:
                assert isinstance(residual, DepthResidual)
                depth.append(residual.weights(x))
            return residual(x, sublayer)

        x, mixed = within(self.mixer_residual, x, mix)
        crossed, cross = None, self.cross
        if cross is not None:
            x, crossed = within(self.cross_residual, x, lambda y: read(y, cross))
        x, last = within(self.feed_forward_residual, x, feed)
        return x, mixed, crossed, last


def points_of(**stacks: nn.ModuleList) -> Points:
    """The intervention points of the blocks of stacks, by name of stack and number of block."""
    return {
        f"{name}.{number}{point}": place
        for name, stack in stacks.items()
        for number, block in enumerate(stack, start=1)
        for point, place in block.points().items()  # type: ignore[operator]
    }
