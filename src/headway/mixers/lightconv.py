"""Lightweight convolution (Wu et al. 2019): each head averages a window of gated vectors with its own weights.

Shapes: B batch, L length, H heads, D model, d head, k positions of the window, R rows of a state, N new positions.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headway.core.config import Probability, Width
from headway.mixers.mixer import (
    Contributions,
    Mixed,
    Mixer,
    MixerState,
    Span,
    State,
    latest,
    require_causal,
    working_dtype,
)
from headway.tensors.depthwise import depthwise
from headway.tensors.dropout import dropout
from headway.tensors.linear import Linear
from headway.tensors.masks import zero_padding


@dataclass(frozen=True)
class LightConvState(MixerState):
    """The last k - 1 gated vectors (R, k - 1, D), zero before the first position."""

    recent: Tensor


class LightConv(Mixer):
    """Lightweight convolution: a weighted mean of the nearest `width` positions, with the same weights everywhere.

    z_t = W_o [o_t^1; ...; o_t^H], o_t^h = sum over j = 1 .. k of softmax(w^h)_j v_{t+j-ceil((k+1)/2)}^h. v = GLU(x W_i)
    is zero at padding and outside the sequence, and the other weights are not renormalised, as in the authors' code. If
    causal, the window ends at t: o_t^h = sum_j softmax(w^h)_j v_{t+j-k}^h. A window of even size that is not causal has
    one more position before t than after it. The weights do not sum to one at the ends of a sequence, so they are not
    returned as attention weights; `contributions` returns the term of each offset.

    Args:
        dim: D.
        causal: whether a position may only see itself and those before it.
        width: k, the size of the window.
        heads: H; the D / H channels of a head share its k weights.
        dropout: probability of dropping a normalised weight while training (DropConnect, as in Wu et al. 2019).
        bias: whether the two maps have one.

    Raises:
        ValueError: width is below 1, or dim is not divisible by heads.
    """

    def __init__(
        self,
        dim: int,
        causal: bool,
        *,
        width: Width = 7,
        heads: Width = 8,
        dropout: Probability = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if dim % heads:
            raise ValueError(f"heads ({heads}) do not divide dim ({dim}); give another number of heads")
        self.causal, self.width, self.heads, self.dropout = causal, width, heads, dropout
        self.before = width - 1 if causal else width // 2  # ceil((k + 1) / 2) - 1
        self.in_projection = Linear(dim, 2 * dim, bias=bias)  # values, then their gates
        self.weight = nn.Parameter(torch.empty(heads, width))
        self.out_projection = Linear(dim, dim, bias=bias)
        # Xavier's for a convolution with one input channel and H output channels, as in the authors' code.
        nn.init.xavier_uniform_(self.weight.unsqueeze(1))
        for layer in (self.in_projection, self.out_projection):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor, mask: Tensor | None, *, need_weights: bool = False) -> Mixed:
        mixed = self.out_projection(self._convolve(self._padded(x, mask)))
        return Mixed(zero_padding(mixed, mask), None)

    def value_map(self) -> tuple[nn.Module, slice]:
        return self.in_projection, slice(None)  # values and gates: the GLU of zero is zero

    def _gated(self, x: Tensor) -> Tensor:
        """v (B, L, D) for x (B, L, D)."""
        return F.glu(self.in_projection(x), -1)

    def _padded(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """v with zeros on either side of the sequence for the windows: (B, L + k - 1, D)."""
        return F.pad(zero_padding(self._gated(x), mask), (0, 0, self.before, self.width - 1 - self.before))

    def _weights(self) -> Tensor:
        """The normalised weights (H, k), with dropout while training."""
        weights = self.weight.softmax(-1)
        return dropout(weights, self.dropout) if self.training and self.dropout else weights

    def _convolve(self, padded: Tensor) -> Tensor:
        """The weighted means (B, L, D) of the windows of v (B, L + k - 1, D)."""
        if self.edits:
            return self.edited(self._terms(padded), self.spans()).sum(3).transpose(1, 2).flatten(2)
        return depthwise(padded, self._weights().repeat_interleave(padded.shape[2] // self.heads, 0))

    def contributions(self, x: Tensor, mask: Tensor | None) -> Contributions:
        """The terms of the weighted mean of each head, one per offset; no activation or bias follows."""
        terms, spans = self._terms(self._padded(x, mask)), self.spans()
        terms = self.edited(terms, spans) if self.edits else terms
        if mask is not None:
            terms = terms.masked_fill(~mask[:, None, :, None, None], 0)
        mixed = self.out_projection(terms.sum(3).transpose(1, 2).flatten(2))
        return Contributions(spans, terms, zero_padding(mixed, mask))

    def _terms(self, padded: Tensor) -> Tensor:
        """The terms (B, H, L, k, D / H) that `_convolve` sums over the positions of a window."""
        windows = padded.unfold(1, self.width, 1)  # (B, L, D, k)
        heads = windows.reshape(*windows.shape[:2], self.heads, -1, self.width)
        return torch.einsum("blhdk,hk->bhlkd", heads, self._weights())

    def spans(self) -> tuple[Span, ...]:
        return tuple(Span.of(offset - self.before) for offset in range(self.width))

    def initial_state(self, rows: int, capacity: int) -> MixerState:
        require_causal(self.causal)
        weight = self.out_projection.weight
        recent = weight.new_zeros(rows, self.width - 1, weight.shape[1], dtype=working_dtype(weight))
        return LightConvState(torch.zeros(rows, dtype=torch.int64, device=recent.device), recent)

    def extend(self, x: Tensor, state: State, lengths: Tensor | None = None) -> tuple[Tensor, MixerState]:
        assert isinstance(state, LightConvState)
        window = torch.cat([state.recent, self._gated(x)], 1)  # (R, k - 1 + N, D)
        after = LightConvState(state.lengths_after(x.shape[1], lengths), latest(window, self.width - 1, lengths))
        return self.out_projection(self._convolve(window)), after

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, width={self.width}, heads={self.heads}, dropout={self.dropout}"
