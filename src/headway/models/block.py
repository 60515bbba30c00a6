"""The blocks of a Transformer. A block receives its mixer and never asks which one it has.

Shapes: B batch, L positions, S source positions, D model, R rows of a decoding step.
"""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor, nn
from torch.nn import functional as F

from headway.mixers import Mixer, State
from headway.mixers.attention import CrossAttention
from headway.tensors.dropout import Dropout
from headway.tensors.linear import few_rows_linear

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu}


class FeedForward(nn.Module):
    """Two linear maps with an activation in between: ReLU(x W1 + b1) W2 + b2, equation 2."""

    def __init__(self, dim: int, hidden: int, activation: str) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(dim, hidden), nn.Linear(hidden, dim)
        self.activation = ACTIVATIONS[activation]
        for layer in (self.inner, self.outer):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) to (..., D), each position on its own."""
        return self.outer(self.activation(self.inner(x)))  # type: ignore[no-any-return]

    def step(self, x: Tensor) -> Tensor:
        """`forward` for the few rows (R, D) of a decoding step."""
        return few_rows_linear(self.activation(few_rows_linear(x, self.inner)), self.outer)


class Residual(nn.Module):
    """What stands around a sublayer: post-norm LayerNorm(x + Sublayer(x)), or pre-norm x + Sublayer(LayerNorm(x))."""

    def __init__(self, dim: int, dropout: float, norm: str) -> None:
        super().__init__()
        self.norm, self.dropout = nn.LayerNorm(dim), Dropout(dropout)
        self.post = norm == "post"

    def before(self, x: Tensor) -> Tensor:
        """What the sublayer reads."""
        return x if self.post else self.norm(x)

    def after(self, x: Tensor, sublayer: Tensor) -> Tensor:
        """The sum of x and what the sublayer said."""
        total = x + self.dropout(sublayer)
        return self.norm(total) if self.post else total  # type: ignore[no-any-return]


class SourceView(NamedTuple):
    """What a decoder layer sees of the source while decoding: keys and values (B, K, S, d)."""

    keys: Tensor
    values: Tensor


class EncoderLayer(nn.Module):
    """A mixer and a feed-forward network, each within a residual; with a causal mixer it can go step by step."""

    def __init__(self, mixer: Mixer, feed_forward: FeedForward, dim: int, dropout: float, norm: str) -> None:
        super().__init__()
        self.mixer, self.mixer_residual = mixer, Residual(dim, dropout, norm)
        self.feed_forward, self.feed_forward_residual = feed_forward, Residual(dim, dropout, norm)

    def forward(self, x: Tensor, mask: Tensor | None, need_weights: bool) -> tuple[Tensor, Tensor | None]:
        """x (B, L, D) after the layer, and the mixer's weights where asked for."""
        mixed = self.mixer(self.mixer_residual.before(x), mask, need_weights=need_weights)
        x = self.mixer_residual.after(x, mixed.values)
        x = self.feed_forward_residual.after(x, self.feed_forward(self.feed_forward_residual.before(x)))
        return x, mixed.weights

    def prefill(self, x: Tensor) -> tuple[Tensor, State]:
        """x (R, L, D), the first positions of every row, after the layer, and the state to go on from with `step`."""
        values, state = self.mixer.prefill(self.mixer_residual.before(x))
        x = self.mixer_residual.after(x, values)
        return self.feed_forward_residual.after(x, self.feed_forward(self.feed_forward_residual.before(x))), state

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """One more position of every row, x (R, D)."""
        values, state = self.mixer.step(self.mixer_residual.before(x), state)
        x = self.mixer_residual.after(x, values)
        return self.feed_forward_residual.after(x, self.feed_forward.step(self.feed_forward_residual.before(x))), state


class DecoderLayer(nn.Module):
    """A causal mixer, attention to the source and a feed-forward network, each within a residual."""

    def __init__(
        self, mixer: Mixer, cross: CrossAttention, feed_forward: FeedForward, dim: int, dropout: float, norm: str
    ) -> None:
        super().__init__()
        self.mixer, self.mixer_residual = mixer, Residual(dim, dropout, norm)
        self.cross, self.cross_residual = cross, Residual(dim, dropout, norm)
        self.feed_forward, self.feed_forward_residual = feed_forward, Residual(dim, dropout, norm)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None,
        memory: Tensor,
        memory_mask: Tensor | None,
        need: tuple[bool, bool, bool],
    ) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
        """x (B, L, D) after the layer, and what is needed of: the mixer's weights, cross-attention's, its scores."""
        mixed = self.mixer(self.mixer_residual.before(x), mask, need_weights=need[0])
        x = self.mixer_residual.after(x, mixed.values)
        asked = self.cross_residual.before(x)
        read = self.cross(asked, memory, memory_mask, need_weights=need[1])
        scores = cross_scores(self.cross, asked, memory) if need[2] else None
        x = self.cross_residual.after(x, read.values)
        x = self.feed_forward_residual.after(x, self.feed_forward(self.feed_forward_residual.before(x)))
        return x, mixed.weights, read.weights, scores

    def source_view(self, memory: Tensor) -> SourceView:
        """What `step` needs of the encoded source (B, S, D)."""
        return SourceView(*self.cross.project(memory))

    def step(self, x: Tensor, state: State, source: SourceView, allowed: Tensor | None) -> tuple[Tensor, State]:
        """One more position of every row, x (R, D); R is a multiple of the number of sources."""
        values, state = self.mixer.step(self.mixer_residual.before(x), state)
        x = self.mixer_residual.after(x, values)
        read = self.cross.step(self.cross_residual.before(x), source.keys, source.values, allowed)
        x = self.cross_residual.after(x, read)
        return self.feed_forward_residual.after(x, self.feed_forward.step(self.feed_forward_residual.before(x))), state


def cross_scores(cross: CrossAttention, x: Tensor, memory: Tensor) -> Tensor:
    """(B, K, L, S): Q K^T / sqrt(d), of which cross-attention's weights are the softmax where no source is masked.

    They are computed anew: attention itself keeps weights only, and hardly anything asks for more.
    """
    key, _ = cross.project(memory)
    query = cross.query_projection(x).unflatten(-1, (cross.heads, cross.head_dim)).transpose(1, 2)
    return query @ key.transpose(2, 3) * cross.head_dim**-0.5  # type: ignore[no-any-return]
