"""Local attention: softmax attention within a window of n positions, in time and memory linear in the length.

Shapes: B batch, L length, K heads, D model, d_k key, d_v value, C blocks, M queries of a block, S keys that a block
sees, R rows of a state, n the size of the window, N new positions.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from headway.core.config import Probability, Width
from headway.mixers.attention import Attention, attend
from headway.mixers.canon import CanonState, extend_canon
from headway.mixers.mixer import Mixed, MixerState, State, latest, require_causal
from headway.mixers.relative import RelativePositions
from headway.tensors.masks import band_mask

# The M queries of a block share its keys: a large M makes products large, a small one reads little beyond the window.
SMALLEST_BLOCK = 32


@dataclass(frozen=True)
class LocalState(MixerState):
    """Keys (n - 1, R, G, d_k) and values (n - 1, R, G, d_v) of the last positions, newest last; initially zero."""

    keys: Tensor
    values: Tensor
    canon: CanonState | None = None

    def select(self, index: Tensor) -> "LocalState":
        rows = index.reshape(-1)
        keys, values = self.keys.index_select(1, rows), self.values.index_select(1, rows)
        canon = None if self.canon is None else self.canon.select(rows)
        return LocalState(self.lengths.index_select(0, rows), keys, values, canon)


class LocalAttention(Attention):
    """Self-attention restricted to |i - t| < n or, if causal, to the n positions t - n + 1 .. t.

    The sequence is cut into blocks of M queries, each of which sees its own M keys and the n - 1 on either side.

    Args:
        dim: D.
        causal: whether a position may only see itself and those before it.
        n: size of the window on either side, including the position itself.
        heads, head_dim, key_dim, value_dim, dropout, bias, position, key_value_heads, query_key_norm, canon: as for
            `Attention`.

    Raises:
        ValueError: `Attention` refuses its options.
    """

    def __init__(
        self,
        dim: int,
        causal: bool,
        *,
        n: Width = 5,
        heads: Width = 8,
        head_dim: Width | None = None,
        key_dim: Width | None = None,
        value_dim: Width | None = None,
        dropout: Probability = 0.0,
        bias: bool = True,
        position: RelativePositions | Mapping[str, Any] | str | None = None,
        key_value_heads: Width | None = None,
        query_key_norm: bool = False,
        canon: bool = False,
    ) -> None:
        super().__init__(
            dim, causal, heads=heads, head_dim=head_dim, key_dim=key_dim, value_dim=value_dim, dropout=dropout,
            bias=bias, position=position, key_value_heads=key_value_heads, query_key_norm=query_key_norm,
            canon=canon,
        )  # fmt: skip
        self.n, self.block = n, max(n - 1, SMALLEST_BLOCK)

    def forward(  # type: ignore[override]  # shares no values
        self, x: Tensor, mask: Tensor | None, *, need_weights: bool = False
    ) -> Mixed:
        if need_weights or x.shape[1] <= 2 * self.block:
            return self._dense(x, mask, need_weights)
        query, key, value = self._project(x, torch.arange(x.shape[1], device=x.device), mask)
        return self._finish(self._attend_in_blocks(query, key, value, mask), None, mask)

    def _attend_in_blocks(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """The values (B, K, L, d_v) of queries (B, K, L, d_k) that attend within their windows, block by block."""
        rows, _, length, _ = query.shape
        before, after = self.n - 1, 0 if self.causal else self.n - 1
        query, key, value = (_blocks(x, self.block) for x in (query, key, value))  # each (B, C, K, M, ...)
        key, value = _with_neighbours(key, before, after), _with_neighbours(value, before, after)
        values, _ = attend(
            query.flatten(0, 1),
            key.flatten(0, 1),
            value.flatten(0, 1),
            self._allowed(rows, length, mask, query.device),
            bias=self.position(self.block, key.shape[3], -before, query.device),
            dropout=self.dropout if self.training else 0.0,
        )
        return values.view(*query.shape[:4], -1).transpose(1, 2).flatten(2, 3)[:, :, :length]  # (B, K, L, d_v)

    def _dense(self, x: Tensor, mask: Tensor | None, need_weights: bool) -> Mixed:
        """Attend with all L x L weights: faster for a few blocks, and required by `need_weights`."""
        length = x.shape[1]
        allowed = band_mask(length, length, self.n, self.causal, device=x.device)
        values, weights = attend(
            *self._project(x, torch.arange(length, device=x.device), mask),
            allowed if mask is None else allowed & (mask[:, None, None, :] | _themselves(length, length, 0, x.device)),
            bias=self.position(length, length, device=x.device),
            dropout=self.dropout if self.training else 0.0,
            need_weights=need_weights,
        )
        return self._finish(values, weights, mask)

    def _allowed(self, rows: int, length: int, mask: Tensor | None, device: torch.device) -> Tensor:
        """The mask (B C, 1, M, S) of the keys that each query of a block may attend to."""
        real = torch.ones(1, length, dtype=torch.bool, device=device) if mask is None else mask
        keys = _with_neighbours(
            _blocks(real[:, None, :, None], self.block), self.n - 1, 0 if self.causal else self.n - 1
        )
        band = band_mask(self.block, keys.shape[3], self.n, self.causal, 1 - self.n, device)
        own = _themselves(self.block, keys.shape[3], self.n - 1, device)
        allowed = band & (keys.transpose(3, 4) | own)  # (B or 1, C, 1, M, S)
        return allowed.expand(rows, -1, -1, -1, -1).flatten(0, 1)

    def initial_state(self, rows: int, capacity: int) -> MixerState:
        require_causal(self.causal)
        weight = self.out_projection.weight
        lengths = torch.zeros(rows, dtype=torch.int64, device=weight.device)
        canon = None if self.canon is None else self.canon.initial_state(rows)
        return LocalState(lengths, *self._slots(weight, self.n - 1, rows), canon)

    def extend(  # type: ignore[override]  # shares no values, reads no source
        self, x: Tensor, state: State, lengths: Tensor | None = None
    ) -> tuple[Tensor, MixerState]:
        assert isinstance(state, LocalState)
        count, before = x.shape[1], self.n - 1
        projected, canon = extend_canon(self.canon, self.in_projection(x), state.canon, lengths)
        query, key, value = self._heads(projected, state.positions(count))
        keys = torch.cat([state.keys, key.permute(2, 0, 1, 3)])  # (n - 1 + N, R, K, d)
        values = torch.cat([state.values, value.permute(2, 0, 1, 3)])
        recent = latest(keys, before, lengths, time=0), latest(values, before, lengths, time=0)
        after = LocalState(state.lengths_after(count, lengths), *recent, canon)
        return self._finish(self._read_window(query, keys, values, state), None, None).values, after

    def _read_window(self, query: Tensor, keys: Tensor, values: Tensor, state: LocalState) -> Tensor:
        """The values of queries (R, K, N, d_k) from keys and values (n - 1 + N, R, K, .), whose last N are theirs."""
        count, before, extremes = query.shape[2], self.n - 1, state.bounds()
        if extremes is not None and (extremes[0] == extremes[1] or extremes[0] >= before):
            skipped, real = max(0, before - extremes[0]), None
        else:
            skipped, real = 0, torch.arange(len(keys), device=query.device) >= before - state.lengths[:, None]  # (R, S)
        if skipped:
            keys, values = keys[skipped:], values[skipped:]
        key, value = keys.permute(1, 2, 0, 3), values.permute(1, 2, 0, 3)
        if count > 2 * self.block:
            query = F.pad(query, (0, 0, before - skipped, 0))  # queries of the old positions, whose values are dropped
            return self._attend_in_blocks(query, key, value, real)[:, :, before - skipped :]
        allowed = None if real is None else real[:, None, None, :]
        if count > 1:
            band = band_mask(count, key.shape[2], self.n, True, skipped - before, query.device)
            allowed = band if allowed is None else band & allowed
        bias = self.position(count, key.shape[2], skipped - before, query.device)
        return attend(query, key, value, allowed, bias=bias)[0]

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, n={self.n}"


def _themselves(queries: int, keys: int, shift: int, device: torch.device) -> Tensor:
    """The mask (queries, keys), True if key t + `shift` is that of query t itself.

    Padding may attend to itself, so that every query has a key; otherwise fused kernels return NaN.
    """
    return torch.arange(keys, device=device) == torch.arange(queries, device=device)[:, None] + shift


def _blocks(x: Tensor, size: int) -> Tensor:
    """Cut (B, K, L, d) into blocks (B, C, K, M, d), with zeros after the last position."""
    missing = -x.shape[2] % size
    padded = F.pad(x, (0, 0, 0, missing)) if missing else x
    batch, heads, length, dim = padded.shape
    return padded.reshape(batch, heads, length // size, size, dim).transpose(1, 2)


def _with_neighbours(blocks: Tensor, before: int, after: int) -> Tensor:
    """Extend blocks (B, C, K, M, d) by the last positions of the previous and the first of the next: (..., S, d)."""
    parts, size = [blocks], blocks.shape[3]
    if before:
        parts.insert(0, F.pad(blocks[:, :-1, :, size - before :], (0, 0, 0, 0, 0, 0, 1, 0)))
    if after:
        parts.append(F.pad(blocks[:, 1:, :, :after], (0, 0, 0, 0, 0, 0, 0, 1)))
    return torch.cat(parts, 3)
