"""Multi-head self-attention and cross-attention (Vaswani et al. 2017, section 3.2).

Shapes: B batch, L queries, S keys, K heads, d head, D model, W hypotheses of one sentence.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headway.mixers.mixer import Mixed, Mixer, State, require_causal
from headway.mixers.relative import RelativePositions
from headway.tensors.linear import few_rows_linear
from headway.tensors.masks import additive, causal_mask, zero_padding

# On a CPU three tensor operations with the weights in between beat torch's fused kernel up to this many weights (2 to 5
# times at 10 to 100 positions; benchmarks/attention.py); above it the fused kernel's flat memory counts.
MOST_EXPLICIT_WEIGHTS = 1 << 27


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    allowed: Tensor | None,
    *,
    causal: bool = False,
    bias: Tensor | None = None,
    dropout: float = 0.0,
    need_weights: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """softmax(Q K^T / sqrt(d) + bias) V, equation 1.

    Args:
        query: (B, K, L, d).
        key: (B, K, S, d).
        value: (B, K, S, d).
        allowed: broadcastable to (B, K, L, S), True where a query may attend to a key; None for everywhere.
        causal: additionally restrict query t to keys 0 .. t.
        bias: (K, L, S), added to the scores.
        dropout: probability of dropping a weight.
        need_weights: return the weights (B, K, L, S), before dropout.
    """
    batch, heads, length, size = query.shape
    keys = key.shape[2]
    explicit = query.device.type == "cpu" and batch * heads * length * keys <= MOST_EXPLICIT_WEIGHTS
    alone = allowed is None and bias is None
    if causal and (explicit or need_weights or not alone):
        past = causal_mask(length, query.device)
        allowed, causal = past if allowed is None else allowed & past, False
    if not (explicit or need_weights):
        added = allowed if bias is None else _added(allowed, bias, query.dtype)
        values = F.scaled_dot_product_attention(query, key, value, added, dropout_p=dropout, is_causal=causal)
        return values, None
    scores = torch.bmm((query * size**-0.5).reshape(-1, length, size), key.reshape(-1, keys, size).transpose(1, 2))
    scores = scores.view(batch, heads, length, keys)
    if bias is not None:
        scores = scores.add_(bias)
    if allowed is not None:
        scores = scores.add_(additive(allowed, scores.dtype))
    weights = scores.softmax(-1)
    dropped = F.dropout(weights, dropout) if dropout else weights
    values = torch.bmm(dropped.view(-1, length, keys), value.reshape(-1, keys, size))
    return values.view(batch, heads, length, size), weights if need_weights else None


def _added(allowed: Tensor | None, bias: Tensor, dtype: torch.dtype) -> Tensor:
    """Mask and bias as one tensor to add to the scores."""
    return bias.to(dtype) if allowed is None else additive(allowed, dtype) + bias.to(dtype)


@dataclass(frozen=True)
class AttentionState(State):
    """Keys and values of the n positions so far, each (n, B, K, d): time first, so that a step appends one block."""

    keys: Tensor
    values: Tensor

    def select(self, index: Tensor) -> "AttentionState":
        """The state of rows `index`."""
        rows = index.reshape(-1)
        return AttentionState(self.keys.index_select(1, rows), self.values.index_select(1, rows))


class Attention(Mixer):
    """Self-attention: each position takes a weighted mean over all positions, or, if causal, over those up to it.

    Args:
        dim: D.
        causal: whether a position may only see itself and those before it.
        heads: K.
        head_dim: d, by default D / K (table 3, row B frees it).
        dropout: probability of dropping an attention weight while training.
        bias: whether the four projections have one.
        position: the relative positions that scores depend on: a kind (t5, alibi, rotary), a kind with its options, or
            what makes one for several mixers.

    Raises:
        ValueError: heads do not divide dim and head_dim is not given, or a position that does not exist.
    """

    def __init__(
        self,
        dim: int,
        causal: bool,
        *,
        heads: int = 8,
        head_dim: int | None = None,
        dropout: float = 0.0,
        bias: bool = True,
        position: RelativePositions | Mapping[str, Any] | str | None = None,
    ) -> None:
        super().__init__()
        self.causal, self.heads, self.head_dim = causal, heads, size_of_head(dim, heads, head_dim)
        self.dropout = dropout
        if not isinstance(position, RelativePositions):
            position = RelativePositions(position, causal)
        self.position = position.build(heads, self.head_dim)
        width = heads * self.head_dim
        self.in_projection = nn.Linear(dim, 3 * width, bias=bias)  # queries, keys, values, one below the other
        self.out_projection = nn.Linear(width, dim, bias=bias)
        for block in self.in_projection.weight.chunk(3):
            nn.init.xavier_uniform_(block)
        nn.init.xavier_uniform_(self.out_projection.weight)
        if bias:
            nn.init.zeros_(self.in_projection.bias)
            nn.init.zeros_(self.out_projection.bias)

    def forward(self, x: Tensor, mask: Tensor | None, *, need_weights: bool = False) -> Mixed:
        length = x.shape[1]
        query, key, value = self._project(x)
        # Padding follows the real positions, so a causal mixer never sees it from a real one.
        allowed = None if mask is None or self.causal else mask[:, None, None, :]
        values, weights = attend(
            query,
            key,
            value,
            allowed,
            causal=self.causal,
            bias=self.position(length, length),
            dropout=self.dropout if self.training else 0.0,
            need_weights=need_weights,
        )
        return self._finish(values, weights, mask)

    def _project(self, x: Tensor, first: int = 0) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys, values of x (B, L, D), each (B, K, L, d), rotated as at positions `first`, `first` + 1, ..."""
        projected = self.in_projection(x).view(*x.shape[:2], 3, self.heads, self.head_dim)
        query, key, value = projected.permute(2, 0, 3, 1, 4)
        return self.position.rotate(query, first), self.position.rotate(key, first), value

    def _finish(self, values: Tensor, weights: Tensor | None, mask: Tensor | None) -> Mixed:
        """Join the heads' values (B, K, L, d), and leave nothing at padding."""
        values = self.out_projection(values.transpose(1, 2).flatten(2))
        if weights is not None and mask is not None:
            weights = weights.masked_fill(~mask[:, None, :, None], 0)
        return Mixed(zero_padding(values, mask), weights)

    def initial_state(self, batch_size: int) -> AttentionState:
        require_causal(self.causal)
        empty = self.out_projection.weight.new_zeros(0, batch_size, self.heads, self.head_dim)
        return AttentionState(empty, empty)

    def step(self, x: Tensor, state: State) -> tuple[Tensor, AttentionState]:
        assert isinstance(state, AttentionState)
        query, key, value = self._project_step(x, len(state.keys))
        after = AttentionState(torch.cat([state.keys, key]), torch.cat([state.values, value]))
        return self._read(query, after.keys, after.values), after

    def prefill(self, x: Tensor) -> tuple[Tensor, AttentionState]:
        require_causal(self.causal)
        query, key, value = self._project(x)
        bias = self.position(x.shape[1], x.shape[1])
        values, _ = attend(query, key, value, None, causal=True, bias=bias)
        return self._finish(values, None, None).values, AttentionState(
            key.permute(2, 0, 1, 3), value.permute(2, 0, 1, 3)
        )

    def _project_step(self, x: Tensor, position: int) -> tuple[Tensor, Tensor, Tensor]:
        """Query (B, K, 1, d), key and value (1, B, K, d) of x (B, D), which stands at `position`."""
        projected = few_rows_linear(x, self.in_projection).reshape(1, x.shape[0], 3, self.heads, self.head_dim)
        query, key, value = projected.unbind(2)
        query = self.position.rotate(query.permute(1, 2, 0, 3), position)
        key = self.position.rotate(key.permute(1, 2, 0, 3), position).permute(2, 0, 1, 3)
        return query, key, value

    def _read(self, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """(B, D): what the last position (B, K, 1, d) takes from keys and values (n, B, K, d), its own the last."""
        bias = self.position(1, len(keys), 1 - len(keys))
        read, _ = attend(query, keys.permute(1, 2, 0, 3), values.permute(1, 2, 0, 3), None, bias=bias)
        return few_rows_linear(read.flatten(1), self.out_projection)


class CrossAttention(nn.Module):
    """Attention from the target to the encoded source ("encoder-decoder attention", section 3.2.3).

    Keys and values are computed once a source by `project`; `step` attends to them from the W hypotheses of each
    sentence without copying them W times. Arguments as for `Attention`.
    """

    def __init__(self, dim: int, *, heads: int = 8, head_dim: int | None = None, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.head_dim, self.dropout = heads, size_of_head(dim, heads, head_dim), dropout
        width = heads * self.head_dim
        self.query_projection = nn.Linear(dim, width)
        self.memory_projection = nn.Linear(dim, 2 * width)  # keys, then values
        self.out_projection = nn.Linear(width, dim)
        for block in (
            self.query_projection.weight,
            *self.memory_projection.weight.chunk(2),
            self.out_projection.weight,
        ):
            nn.init.xavier_uniform_(block)
        for layer in (self.query_projection, self.memory_projection, self.out_projection):
            nn.init.zeros_(layer.bias)

    def project(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values, each (B, K, S, d), of the encoded source (B, S, D)."""
        batch, length, _ = memory.shape
        projected = self.memory_projection(memory).view(batch, length, 2, self.heads, self.head_dim)
        key, value = projected.permute(2, 0, 3, 1, 4)
        return key, value

    def forward(self, x: Tensor, memory: Tensor, memory_mask: Tensor | None, *, need_weights: bool = False) -> Mixed:
        """x (B, L, D) attends to memory (B, S, D); weights (B, K, L, S) where asked for."""
        batch, length, _ = x.shape
        key, value = self.project(memory)
        query = self.query_projection(x).view(batch, length, self.heads, self.head_dim).transpose(1, 2)
        allowed = None if memory_mask is None else memory_mask[:, None, None, :]
        values, weights = attend(
            query, key, value, allowed, dropout=self.dropout if self.training else 0.0, need_weights=need_weights
        )
        return Mixed(self.out_projection(values.transpose(1, 2).reshape(batch, length, -1)), weights)

    def step(self, x: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None) -> Tensor:
        """x (B * W, D), the W hypotheses of a sentence one after the other, attend to what `project` gave."""
        query = few_rows_linear(x, self.query_projection).reshape(key.shape[0], -1, self.heads, self.head_dim)
        values, _ = attend(query.transpose(1, 2), key, value, allowed)
        return few_rows_linear(values.transpose(1, 2).reshape(x.shape[0], -1), self.out_projection)


def size_of_head(dim: int, heads: int, head_dim: int | None) -> int:
    """d = D / K unless given. Raises ValueError where K does not divide D."""
    if head_dim is None and dim % heads:
        raise ValueError(f"heads ({heads}) do not divide dim ({dim}); give head_dim or another number of heads")
    return head_dim or dim // heads
