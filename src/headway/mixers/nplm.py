"""The mixer of the neural probabilistic language model (Bengio et al. 2003), with a distant context (Sun and Iyyer
2021, section 2): the n most recent vectors, and averages over blocks of earlier ones, are mapped by one hidden layer.

Shapes: B batch, L length, D model, H hidden, M blocks, b positions of a block, C kernels, R rows of a state, N new
positions.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headway.core.config import Whole, Width
from headway.mixers.mixer import Contributions, Mixed, Mixer, MixerState, Span, State, latest, require_causal
from headway.tensors.depthwise import depthwise
from headway.tensors.linear import Linear
from headway.tensors.masks import zero_padding


@dataclass(frozen=True)
class NplmState(MixerState):
    """The last n - 1 + M b vectors (R, n - 1 + M b, D), zero before the first position."""

    recent: Tensor


class Nplm(Mixer):
    """A neural probabilistic language model: the last n positions, and means of blocks before these.

    z_t = W_2 ReLU(W_1 [x_t; x_{t-1}; ...; x_{t-n+1}; a_{t,1}; ...; a_{t,M}]), with zeros outside the sequence. a_{t,m}
    are C weighted averages over the m-th block before the n recent positions, x_{t-n-(m-1)b} .. x_{t-n-mb+1}; the
    weights, position kernels of size b, are learned and initialised to 1 / b. A mixer that is not causal has windows
    and blocks on both sides, with separate kernels. `n: 1` reads only the position itself and the distant context, as
    in the higher layers of Sun and Iyyer's language model.

    Args:
        dim: D.
        causal: whether a position may only see itself and those before it.
        n: size of the window on either side, including the position itself.
        blocks: M, the distant blocks on either side; 0 for none.
        block_size: b, the positions of a block.
        kernels: C, the averages of a block.
        hidden: H, the size of the hidden layer, by default D.
        bias: whether W_1 and W_2 have one.

    Raises:
        ValueError: a size that is too small.
    """

    def __init__(
        self,
        dim: int,
        causal: bool,
        *,
        n: Width = 5,
        blocks: Whole = 4,
        block_size: Width = 8,
        kernels: Width = 1,
        hidden: Width | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.causal, self.n, self.blocks, self.block_size = causal, n, blocks, block_size
        hidden, sides = hidden or dim, 1 if causal else 2
        window = n if causal else 2 * n - 1
        self.reach = n - 1 + blocks * block_size
        self.near = nn.Parameter(torch.empty(hidden, dim, window))  # from left to right
        self.far = nn.Parameter(torch.empty(sides, hidden, kernels * dim, blocks)) if blocks else None  # nearest first
        self.kernels = nn.Parameter(torch.full((sides, kernels, block_size), 1 / block_size)) if blocks else None
        self.bias = nn.Parameter(torch.zeros(hidden)) if bias else None
        self.out_projection = Linear(hidden, dim, bias=bias)
        inputs = dim * (window + sides * blocks * kernels)
        for weight in (self.near, self.far):
            if weight is not None:
                nn.init.normal_(weight, std=(2 / inputs) ** 0.5)
        nn.init.xavier_uniform_(self.out_projection.weight)
        if bias:
            nn.init.zeros_(self.out_projection.bias)

    def forward(self, x: Tensor, mask: Tensor | None, *, need_weights: bool = False) -> Mixed:
        if self.edits:
            return Mixed(self.contributions(x, mask).values, None)
        x = zero_padding(x, mask)
        after = 0 if self.causal else self.n - 1
        hidden = F.conv2d(_as_image(F.pad(x, (0, 0, self.n - 1, after))), self.near.unsqueeze(2), self.bias)
        if self.far is not None:
            for side in range(len(self.far)):
                far = _as_read(self.far[side], side).unsqueeze(2)
                hidden = hidden + F.conv2d(_as_image(self._averages(x, side)), far, dilation=(1, self.block_size))
        return Mixed(zero_padding(self.out_projection(hidden.relu().squeeze(2).transpose(1, 2)), mask), None)

    def _averages(self, x: Tensor, side: int) -> Tensor:
        """Averages over b positions of x (B, L, D), at every position: (B, L + (M - 1) b, C D).

        If blocks are before a position (side 0), the last L are those of its nearest block; if they are after it (side
        1), the first L are. Those of each further block are shifted by b positions.
        """
        assert self.kernels is not None
        dim, taken = x.shape[2], x.shape[1] + self.reach - self.n
        # An average at every position, then a convolution with dilation b: the cost is linear in L.
        padded = F.pad(x, (0, 0, 0, self.reach))[:, -taken:] if side else F.pad(x, (0, 0, self.reach, 0))[:, :taken]
        kernels = _as_read(self.kernels[side], side)
        return torch.cat([depthwise(padded, kernel.expand(dim, -1)) for kernel in kernels], 2)

    def contributions(self, x: Tensor, mask: Tensor | None) -> Contributions:
        """The terms of the sum before the ReLU: one per offset, then one per block. There is one head."""
        x = zero_padding(x, mask)
        after = 0 if self.causal else self.n - 1
        windows = F.pad(x, (0, 0, self.n - 1, after)).unfold(1, self.near.shape[2], 1)  # (B, L, D, window)
        terms = [torch.einsum("bldw,hdw->blwh", windows, self.near)]
        terms += [self._contributions_of_blocks(x, side) for side in range(0 if self.far is None else len(self.far))]
        joined, spans = torch.cat(terms, 2)[:, None], self.spans()  # (B, 1, L, P, H)
        joined = self.edited(joined, spans) if self.edits else joined
        if mask is not None:
            joined = joined.masked_fill(~mask[:, None, :, None, None], 0)
        hidden = joined.sum(3).squeeze(1)
        hidden = hidden if self.bias is None else hidden + self.bias
        return Contributions(spans, joined, zero_padding(self.out_projection(hidden.relu()), mask))

    def spans(self) -> tuple[Span, ...]:
        spans = [Span.of(offset) for offset in range(1 - self.n, 1 if self.causal else self.n)]
        for side in range(0 if self.far is None else len(self.far)):
            for block in range(self.blocks):
                nearest = self.n + block * self.block_size
                furthest = nearest + self.block_size - 1
                spans.append(Span.of(nearest, furthest) if side else Span.of(-furthest, -nearest))
        return tuple(spans)

    def _contributions_of_blocks(self, x: Tensor, side: int) -> Tensor:
        """The terms (B, L, M, H) of blocks, nearest first, for x (B, L, D)."""
        assert self.far is not None
        averages, length = self._averages(x, side), x.shape[1]
        starts = [(block if side else self.blocks - 1 - block) * self.block_size for block in range(self.blocks)]
        by_block = torch.stack([averages[:, start : start + length] for start in starts], 2)  # (B, L, M, C D)
        return torch.einsum("blmc,hcm->blmh", by_block, self.far[side])

    def initial_state(self, rows: int, capacity: int) -> MixerState:
        require_causal(self.causal)
        recent = self.near.new_zeros(rows, self.reach, self.near.shape[1])
        return NplmState(torch.zeros(rows, dtype=torch.int64, device=recent.device), recent)

    def extend(self, x: Tensor, state: State, lengths: Tensor | None = None) -> tuple[Tensor, MixerState]:
        assert isinstance(state, NplmState)
        window = torch.cat([state.recent, x], 1)  # (R, n - 1 + M b + N, D)
        after = NplmState(state.lengths_after(x.shape[1], lengths), latest(window, self.reach, lengths))
        if x.shape[1] > 1 or self.edits:
            return self.forward(window, None).values[:, self.reach :], after
        return self._read_one_window(window), after

    def _read_one_window(self, window: Tensor) -> Tensor:
        """The values (R, 1, D) at the last position of windows (R, n + M b, D), faster than convolutions."""
        hidden = torch.einsum("bnd,hdn->bh", window[:, -self.n :], self.near)
        if self.far is not None and self.kernels is not None:
            blocks = window[:, : -self.n].reshape(len(window), self.blocks, self.block_size, -1).flip(1, 2)
            averages = torch.einsum("bmpd,cp->bcdm", blocks, self.kernels[0]).flatten(1, 2)  # nearest block first
            hidden = hidden + torch.einsum("bcm,hcm->bh", averages, self.far[0])
        hidden = hidden if self.bias is None else hidden + self.bias
        return self.out_projection(hidden.relu()[:, None])  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, n={self.n}, blocks={self.blocks}, block_size={self.block_size}"


def _as_image(x: Tensor) -> Tensor:
    """x (B, L, D) as an image (B, D, 1, L), channels last, which convolutions in two dimensions read in place."""
    return x.transpose(1, 2).unsqueeze(2)


def _as_read(weights: Tensor, side: int) -> Tensor:
    """Weights (..., nearest first) in the order in which a convolution reads positions, left to right."""
    return weights if side else weights.flip(-1)
