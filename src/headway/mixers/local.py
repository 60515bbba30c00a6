"""Local attention: softmax attention within a window of n positions, in time and memory linear in the length.

Shapes: B batch, L length, K heads, D model, d head, C blocks, M queries of a block, S keys that a block sees.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from headway.mixers.attention import Attention, attend
from headway.mixers.mixer import Mixed, State, require_causal
from headway.mixers.relative import RelativePositions
from headway.tensors.masks import band_mask

# A block shares its keys among M queries: many make the products large, few make them hold little beyond the window.
SMALLEST_BLOCK = 32


@dataclass(frozen=True)
class LocalState(State):
    """Keys and values of the last n - 1 positions, each (at most n - 1, B, K, d), and how many there were in all."""

    keys: Tensor
    values: Tensor
    position: int

    def select(self, index: Tensor) -> "LocalState":
        """The state of rows `index`."""
        rows = index.reshape(-1)
        return LocalState(self.keys.index_select(1, rows), self.values.index_select(1, rows), self.position)


class LocalAttention(Attention):
    """Self-attention restricted to |i - t| < n or, if causal, to the n positions t - n + 1 .. t.

    The sequence is cut into blocks of M queries, each of which sees its own M keys and the n - 1 on either side.

    Args:
        dim: D.
        causal: whether a position may only see itself and those before it.
        n: size of the window on either side, the position itself counted.
        heads, head_dim, dropout, bias, position: as for `Attention`.

    Raises:
        ValueError: n is below 1, or what `Attention` refuses.
    """

    def __init__(
        self,
        dim: int,
        causal: bool,
        *,
        n: int = 5,
        heads: int = 8,
        head_dim: int | None = None,
        dropout: float = 0.0,
        bias: bool = True,
        position: RelativePositions | Mapping[str, Any] | str | None = None,
    ) -> None:
        if n < 1:
            raise ValueError(f"n must be at least 1; received {n}")
        super().__init__(dim, causal, heads=heads, head_dim=head_dim, dropout=dropout, bias=bias, position=position)
        self.n, self.block = n, max(n - 1, SMALLEST_BLOCK)

    def forward(self, x: Tensor, mask: Tensor | None, *, need_weights: bool = False) -> Mixed:
        if need_weights or x.shape[1] <= 2 * self.block:
            return self._dense(x, mask, need_weights)
        length, before, after = x.shape[1], self.n - 1, 0 if self.causal else self.n - 1
        query, key, value = (_blocks(each, self.block) for each in self._project(x))  # each (B, C, K, M, d)
        key, value = _with_neighbours(key, before, after), _with_neighbours(value, before, after)
        values, _ = attend(
            query.flatten(0, 1),
            key.flatten(0, 1),
            value.flatten(0, 1),
            self._allowed(x, mask),
            bias=self.position(self.block, key.shape[3], -before),
            dropout=self.dropout if self.training else 0.0,
        )
        values = values.view(query.shape).transpose(1, 2).flatten(2, 3)  # (B, K, C M, d)
        return self._finish(values[:, :, :length], None, mask)

    def _dense(self, x: Tensor, mask: Tensor | None, need_weights: bool) -> Mixed:
        """All L x L weights: quicker for a few blocks, and what is asked for with `need_weights`."""
        length = x.shape[1]
        allowed = band_mask(length, length, self.n, self.causal, device=x.device)
        values, weights = attend(
            *self._project(x),
            allowed if mask is None else allowed & mask[:, None, None, :],
            bias=self.position(length, length),
            dropout=self.dropout if self.training else 0.0,
            need_weights=need_weights,
        )
        return self._finish(values, weights, mask)

    def _allowed(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """(B C, 1, M, S): which keys each query of a block may attend to."""
        real = x.new_ones(1, x.shape[1], dtype=torch.bool) if mask is None else mask
        keys = _with_neighbours(
            _blocks(real[:, None, :, None], self.block), self.n - 1, 0 if self.causal else self.n - 1
        )
        band = band_mask(self.block, keys.shape[3], self.n, self.causal, 1 - self.n, x.device)
        allowed = band & keys.transpose(3, 4)  # (B or 1, C, 1, M, S)
        return allowed.expand(len(x), -1, -1, -1, -1).flatten(0, 1)

    def initial_state(self, batch_size: int) -> LocalState:  # type: ignore[override]
        require_causal(self.causal)
        empty = self.out_projection.weight.new_zeros(0, batch_size, self.heads, self.head_dim)
        return LocalState(empty, empty, 0)

    def prefill(self, x: Tensor) -> tuple[Tensor, LocalState]:  # type: ignore[override]
        require_causal(self.causal)
        first = max(0, x.shape[1] - self.n + 1)
        _, key, value = self._project(x[:, first:], first)
        return self.forward(x, None).values, LocalState(key.permute(2, 0, 1, 3), value.permute(2, 0, 1, 3), x.shape[1])

    def step(self, x: Tensor, state: State) -> tuple[Tensor, LocalState]:  # type: ignore[override]
        assert isinstance(state, LocalState)
        query, key, value = self._project_step(x, state.position)
        keys, values = torch.cat([state.keys, key]), torch.cat([state.values, value])
        kept = max(0, len(keys) - self.n + 1)
        return self._read(query, keys, values), LocalState(keys[kept:], values[kept:], state.position + 1)


def _blocks(x: Tensor, size: int) -> Tensor:
    """(B, K, L, d) cut into blocks (B, C, K, M, d), with zeros after the last position."""
    missing = -x.shape[2] % size
    padded = F.pad(x, (0, 0, 0, missing)) if missing else x
    batch, heads, length, dim = padded.shape
    return padded.reshape(batch, heads, length // size, size, dim).transpose(1, 2)


def _with_neighbours(blocks: Tensor, before: int, after: int) -> Tensor:
    """Blocks (B, C, K, M, d) with the last positions of the one before and the first of the next: (B, C, K, S, d)."""
    size = blocks.shape[3]
    left = F.pad(blocks[:, :-1, :, size - before :], (0, 0, 0, 0, 0, 0, 1, 0))
    right = F.pad(blocks[:, 1:, :, :after], (0, 0, 0, 0, 0, 0, 0, 1))
    return torch.cat([left, blocks, right], 3)
