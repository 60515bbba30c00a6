"""Multi-head neural n-grams (Loem et al. 2023): each position reads its neighbours through one matrix per head.

Shapes: B batch, L length, K heads, D model, d head, w positions of the window, R rows of a state, N new positions.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headway.core.config import Width
from headway.mixers.attention import size_of_head
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
from headway.tensors.linear import Linear
from headway.tensors.masks import zero_padding


@dataclass(frozen=True)
class NgramState(MixerState):
    """The last n - 1 projected vectors (R, n - 1, K d), zero before the first, and the maximum so far (R, K d)."""

    recent: Tensor
    highest: Tensor | None


class Ngram(Mixer):
    """Multi-head neural n-grams: each position reads the words next to it, in heads.

    h_t^k = ReLU([x_{t-n+1}^k; ...; x_{t+n-1}^k (; g^k)] W^k), z_t = [h_t^1; ...; h_t^K] W (equations 4 to 8).
    x_t^k = x_t W_x^k (equation 6) is zero outside the sequence. If causal, the window is x_{t-n+1}^k .. x_t^k.

    Args:
        dim: D.
        causal: whether a position may only see itself and those before it.
        n: size of the window on either side, including the position itself.
        heads: K, the number of heads.
        head_dim: d, by default D / K.
        global_context: True adds g^k, the maximum of x^k over the whole sequence (equation 7); "prefix" the maximum
            over x_1^k .. x_t^k, which does not see the future.
        bias: whether the three maps have one.

    Raises:
        ValueError: dim is not divisible by heads and head_dim is not set, or a causal mixer has the global context.
    """

    def __init__(
        self,
        dim: int,
        causal: bool,
        *,
        n: Width = 5,
        heads: Width = 8,
        head_dim: Width | None = None,
        global_context: bool | Literal["prefix"] = False,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if global_context not in (True, False, "prefix"):
            raise ValueError(f"global_context is true, false or prefix; received {global_context!r}")
        if global_context != "prefix":
            global_context = bool(global_context)  # also for 1 and NumPy's bool
        if causal and global_context is True:
            raise ValueError(
                "global_context: true takes the maximum over the whole sequence, so a causal mixer (a decoder) would"
                " see the future; global_context: prefix takes it over the positions so far"
            )
        self.causal, self.n, self.heads, self.head_dim = causal, n, heads, size_of_head(dim, heads, head_dim)
        width, self.window = heads * self.head_dim, n if causal else 2 * n - 1
        self.in_projection = Linear(dim, width, bias=bias)  # the W_x^k, concatenated
        self.weight = nn.Parameter(torch.empty(heads, self.head_dim, self.head_dim, self.window))  # (K, out, in, w)
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None
        self.global_weight = nn.Parameter(torch.empty(heads, self.head_dim, self.head_dim)) if global_context else None
        self.global_context, self.prefix = global_context, global_context == "prefix"
        self.out_projection = Linear(width, dim, bias=bias)
        # Twice the variance of Xavier's because a ReLU follows (He et al. 2015); the inputs are all those of a head.
        inputs = self.head_dim * (self.window + (self.global_weight is not None))
        for weight in (self.weight, self.global_weight):
            if weight is not None:
                nn.init.normal_(weight, std=(2 / inputs) ** 0.5)
        for layer in (self.in_projection, self.out_projection):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor, mask: Tensor | None, *, need_weights: bool = False) -> Mixed:
        projected = zero_padding(self.in_projection(x), mask)
        return Mixed(zero_padding(self._read(projected, self._context(projected, mask)), mask), None)

    def value_map(self) -> tuple[nn.Module, slice]:
        return self.in_projection, slice(None)

    def _context(self, projected: Tensor, mask: Tensor | None) -> Tensor | None:
        """The context vectors (B, L or 1, K d) of projected vectors (B, L, K d), equation 7; None without context."""
        if self.global_weight is None:
            return None
        return _highest_so_far(projected, mask) if self.prefix else _highest(projected, mask)

    def _read(self, projected: Tensor, highest: Tensor | None) -> Tensor:
        """Equations 4 and 5 (or 8, with `highest`) for projected vectors (B, L, K d)."""
        if self.causal:
            projected = F.pad(projected, (0, 0, self.n - 1, 0))
        return self._finish(self._read_window(projected), highest)

    def _finish(self, hidden: Tensor, highest: Tensor | None) -> Tensor:
        """Add the context, if given, to windows (B, L, K d) mapped by the W^k, and apply equation 4."""
        hidden = hidden if highest is None else hidden + self._read_global(highest)
        return self.out_projection(hidden.relu())  # type: ignore[no-any-return]

    def _read_window(self, projected: Tensor) -> Tensor:
        """Map the windows of all positions by the W^k: (B, L, K d), or (B, L - n + 1, K d) if causal.

        This is a convolution in two dimensions, one of them of size one, because it reads the memory in place, channels
        last. It is the fastest way to compute these sums (benchmarks/ngram.py).
        """
        if self.edits:
            hidden = self._joined(self.edited(self._terms(projected), self.spans()[: self.window]))
            return hidden if self.bias is None else hidden + self.bias
        weight = self.weight.flatten(0, 1).unsqueeze(2)  # (K d, d, 1, w)
        padding = 0 if self.causal else self.n - 1
        image = projected.transpose(1, 2).unsqueeze(2)  # (B, K d, 1, L)
        hidden = F.conv2d(image, weight, self.bias, padding=(0, padding), groups=self.heads)
        return hidden.squeeze(2).transpose(1, 2)

    def _read_global(self, highest: Tensor) -> Tensor:
        """Map context vectors (B, L or 1, K d) by their part of the W^k."""
        assert self.global_weight is not None
        read = torch.einsum("blki,koi->blko", self._heads(highest), self.global_weight)
        if self.edits:
            return self._joined(self.edited(read.transpose(1, 2).unsqueeze(3), self.spans()[-1:]))
        return read.flatten(2)

    def _heads(self, x: Tensor) -> Tensor:
        """x (B, L, K d, ...) to (B, L, K, d, ...)."""
        return x.reshape(*x.shape[:2], self.heads, self.head_dim, *x.shape[3:])

    def contributions(self, x: Tensor, mask: Tensor | None) -> Contributions:
        """The terms of the sum in equation 5 (or 8): one per offset, then the context."""
        projected = zero_padding(self.in_projection(x), mask)
        before = F.pad(projected, (0, 0, self.n - 1, 0)) if self.causal else projected
        terms, spans = self._terms(before), self.spans()
        terms = self.edited(terms, spans[: self.window]) if self.edits else terms
        highest = self._context(projected, mask)
        if highest is not None:
            context = self._heads(self._read_global(highest)).transpose(1, 2)  # (B, K, L or 1, d)
            terms = torch.cat([terms, context.expand(-1, -1, x.shape[1], -1)[:, :, :, None]], 3)
        if mask is not None:
            terms = terms.masked_fill(~mask[:, None, :, None, None], 0)
        hidden = self._joined(terms)
        hidden = hidden if self.bias is None else hidden + self.bias
        return Contributions(spans, terms, zero_padding(self.out_projection(hidden.relu()), mask))

    def spans(self) -> tuple[Span, ...]:
        offsets = [Span.of(offset) for offset in range(1 - self.n, 1 if self.causal else self.n)]
        context = [Span("prefix", None, 0) if self.prefix else Span("global", None, None)]
        return (*offsets, *(context if self.global_context else ()))

    def _terms(self, projected: Tensor) -> Tensor:
        """The terms (B, K, L, w, d) that `_read_window` sums over the positions of a window."""
        padded = projected if self.causal else F.pad(projected, (0, 0, self.n - 1, self.n - 1))
        windows = padded.unfold(1, self.window, 1)  # (B, L, K d, w)
        return torch.einsum("blkiw,koiw->bklwo", self._heads(windows), self.weight)

    def _joined(self, terms: Tensor) -> Tensor:
        return terms.sum(3).transpose(1, 2).flatten(2)

    def initial_state(self, rows: int, capacity: int) -> MixerState:
        require_causal(self.causal)
        width = self.heads * self.head_dim
        recent = self.weight.new_zeros(rows, self.n - 1, width, dtype=working_dtype(self.weight))
        highest = recent.new_full((rows, width), -torch.inf) if self.prefix else None
        return NgramState(torch.zeros(rows, dtype=torch.int64, device=recent.device), recent, highest)

    def extend(self, x: Tensor, state: State, lengths: Tensor | None = None) -> tuple[Tensor, MixerState]:
        assert isinstance(state, NgramState)
        count = x.shape[1]
        projected = self.in_projection(x)
        window = torch.cat([state.recent, projected], 1)  # (R, n - 1 + N, K d)
        hidden = self._read_one_window(window) if count == 1 and not self.edits else self._read_window(window)
        so_far, highest = None, None
        if state.highest is not None:
            so_far = torch.maximum(state.highest[:, None], projected.cummax(1).values if count > 1 else projected)
            highest = latest(torch.cat([state.highest[:, None], so_far], 1), 1, lengths).squeeze(1)
        after = NgramState(state.lengths_after(count, lengths), latest(window, self.n - 1, lengths), highest)
        return self._finish(hidden, so_far), after

    def _read_one_window(self, window: Tensor) -> Tensor:
        """`_read_window` for one window of each row (R, n, K d): (R, 1, K d), faster than a convolution."""
        # Per head, the window in the order of its weights: (K, d n, R).
        columns = window.view(len(window), self.n, self.heads, self.head_dim).permute(2, 3, 1, 0).flatten(1, 2)
        hidden = torch.bmm(self.weight.flatten(2), columns).permute(2, 0, 1).flatten(1)[:, None]
        return hidden if self.bias is None else hidden + self.bias

    def extra_repr(self) -> str:
        context = f", global_context={self.global_context!r}" if self.global_context else ""
        return f"{super().extra_repr()}, n={self.n}, heads={self.heads}, head_dim={self.head_dim}{context}"


def _highest(projected: Tensor, mask: Tensor | None) -> Tensor:
    """The maximum (B, 1, K d) over real positions (equation 7); zero for a row without any."""
    if mask is None:
        return projected.amax(1, keepdim=True)
    highest = projected.masked_fill(~mask[..., None], -torch.inf).amax(1, keepdim=True)
    return highest.masked_fill(~mask.any(1)[:, None, None], 0)


def _highest_so_far(projected: Tensor, mask: Tensor | None) -> Tensor:
    """The maximum (B, L, K d) over the real positions up to each position; zero before the first."""
    if mask is None:
        return projected.cummax(1).values
    highest = projected.masked_fill(~mask[..., None], -torch.inf).cummax(1).values
    return highest.masked_fill(highest.isneginf(), 0)
