"""Multi-head self-attention (Vaswani et al. 2017, section 3.2).

Shapes: B batch, L queries, S keys, K heads, G heads of keys and values, d_k key, d_v value, D model, R rows of a state,
C its capacity, n new positions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headway.core.config import Probability, Width
from headway.mixers.canon import Canon, CanonState, extend_canon
from headway.mixers.mixer import Mixed, Mixer, MixerState, State, require_causal, working_dtype
from headway.mixers.relative import RelativePositions
from headway.tensors.linear import Linear
from headway.tensors.masks import additive, causal_mask, padding_is_last, zero_padding

# On a CPU three tensor operations with explicit weights beat torch's fused kernel up to this number of weights (2 to 5
# times at 10 to 100 positions; benchmarks/attention.py); above it the fused kernel needs less memory.
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
    """Attention softmax(Q K^T / sqrt(d_k) + bias) V, equation 1: values (B, K, L, d_v), and the weights or None.

    Args:
        query: (B, K, L, d_k).
        key: (B, G, S, d_k), each shared by K / G query heads.
        value: (B, G, S, d_v).
        allowed: broadcastable to (B, K, L, S), True where a query may attend to a key; None for everywhere.
        causal: additionally restrict query t to keys 0 .. t.
        bias: (K, L, S) or (B, K, L, S), added to the scores.
        dropout: probability of dropping a weight.
        need_weights: return the weights (B, K, L, S), before dropout.
    """
    batch, heads, length, size = query.shape
    groups, keys = key.shape[1:3]
    explicit = query.device.type == "cpu" and batch * heads * length * keys <= MOST_EXPLICIT_WEIGHTS
    alone = allowed is None and bias is None
    if causal and (explicit or need_weights or not alone):
        past = causal_mask(length, query.device)
        allowed, causal = past if allowed is None else allowed & past, False
    if not (explicit or need_weights):
        added = allowed if bias is None else _added(allowed, bias, query.dtype)
        values = F.scaled_dot_product_attention(
            query, key, value, added, dropout_p=dropout, is_causal=causal, enable_gqa=groups != heads
        )
        return values, None
    rows = heads // groups * length  # query rows with the same keys
    scores = torch.bmm((query * size**-0.5).reshape(-1, rows, size), key.reshape(-1, keys, size).transpose(1, 2))
    scores = scores.view(batch, heads, length, keys)
    if bias is not None:
        scores = scores.add_(bias)
    if allowed is not None:
        scores = scores.add_(additive(allowed, scores.dtype))
    weights = scores.softmax(-1)
    dropped = F.dropout(weights, dropout) if dropout else weights
    values = torch.bmm(dropped.view(-1, rows, keys), value.reshape(-1, keys, value.shape[3]))
    return values.view(batch, heads, length, value.shape[3]), weights if need_weights else None


def _added(allowed: Tensor | None, bias: Tensor, dtype: torch.dtype) -> Tensor:
    return bias.to(dtype) if allowed is None else additive(allowed, dtype) + bias.to(dtype)


@dataclass(frozen=True)
class AttentionState(MixerState):
    """Keys (C + 1, R, G, d_k) and values (C + 1, R, G, d_v) so far; the last slot receives padding.

    Attention with forget gates also stores their cumulated logarithms (C + 1, R, K). Time is the first axis, so that a
    step of rows at the same position writes one contiguous block of memory.
    """

    keys: Tensor
    values: Tensor
    gates: Tensor | None = None
    canon: CanonState | None = None

    @property
    def capacity(self) -> int:
        return self.keys.shape[0] - 1

    def slots(self) -> list[Tensor]:
        return [self.keys, self.values, *([] if self.gates is None else [self.gates])]

    def select(self, index: Tensor) -> "AttentionState":
        """A copy of the rows `index`.

        Beam search selects at every step, and this copy is half of its cost. So on a CPU only slots that some row has
        filled are copied, and the others are left uninitialised.
        """
        rows, extremes = index.reshape(-1), self.bounds()
        filled = None if extremes is None else extremes[1]
        lengths = self.lengths.index_select(0, rows)
        keys, values, *gates = (_select_rows(slots, rows, filled) for slots in self.slots())
        canon = None if self.canon is None else self.canon.select(rows)
        return AttentionState(lengths, keys, values, gates[0] if gates else None, canon)

    def grown(self, count: int) -> "AttentionState":
        keys, values, *gates = (F.pad(slots, (0, 0) * (slots.dim() - 1) + (0, count)) for slots in self.slots())
        return replace(self, keys=keys, values=values, gates=gates[0] if gates else None)


def _select_rows(slots: Tensor, rows: Tensor, filled: int | None) -> Tensor:
    """Select `rows` (R',) of slots (C + 1, R, ...); slots from `filled` on may be left uninitialised."""
    if filled is None or (slots.requires_grad and torch.is_grad_enabled()):  # `out` has no gradient
        return slots.index_select(1, rows)
    selected = slots.new_empty(slots.shape[0], rows.shape[0], *slots.shape[2:])
    torch.index_select(slots.narrow(0, 0, filled), 1, rows, out=selected.narrow(0, 0, filled))
    return selected


class Attention(Mixer):
    """Self-attention: each position takes a weighted mean over all positions, or, if causal, over those up to it.

    Args:
        dim: D.
        causal: whether a position may only see itself and those before it.
        heads: K, the number of heads.
        head_dim: the default of d_k and d_v, itself by default D / K.
        key_dim: d_k, of queries and keys (table 3, row B changes only this).
        value_dim: d_v, of values.
        dropout: probability of dropping an attention weight while training.
        bias: whether the four projections have one.
        value_residual: whether to mix in the values of the lowest attention of the stack, v = lambda v + (1 - lambda)
            v_1 with a learned lambda that begins at 1/2 (Zhou et al. 2024).
        position: the relative positions that scores depend on: a kind (t5, alibi, rotary), a kind with its options, or
            a `RelativePositions` shared by several mixers.
        key_value_heads: G, the number of heads of keys and values, a divisor of K; by default K (Ainslie et al. 2023).
        query_key_norm: divide queries and keys by their root mean square, with a learned scale, before rotation
            (Dehghani et al. 2023).
        forget: add -|c_i - c_j| to the score of query i and key j, c_i the sum of log sigmoid(w x_l + b) over l <= i, w
            and b of each head (forgetting attention; Lin et al. 2025).
        canon: apply a Canon layer to queries, keys and values first (Allen-Zhu 2025, point B).

    Raises:
        ValueError: dim is not divisible by heads and no size of a head is set, or G does not divide K.
        UserError: a position that does not exist, or that attention does not read.
    """

    def __init__(
        self,
        dim: int,
        causal: bool,
        *,
        heads: Width = 8,
        head_dim: Width | None = None,
        key_dim: Width | None = None,
        value_dim: Width | None = None,
        dropout: Probability = 0.0,
        bias: bool = True,
        value_residual: bool = False,
        position: RelativePositions | Mapping[str, Any] | str | None = None,
        key_value_heads: Width | None = None,
        query_key_norm: bool = False,
        forget: bool = False,
        canon: bool = False,
    ) -> None:
        super().__init__()
        self.causal, self.heads, self.dropout = causal, heads, dropout
        self.key_dim, self.value_dim = sizes_of_head(dim, heads, head_dim, key_dim, value_dim)
        if not isinstance(position, RelativePositions):
            position = RelativePositions(position, causal)
        self.position = position.build(heads, self.key_dim)
        self.key_value_heads = key_value_heads or heads
        if heads % self.key_value_heads:
            raise ValueError(f"key_value_heads ({key_value_heads}) do not divide heads ({heads})")
        groups = self.key_value_heads
        self.widths = [heads * self.key_dim, groups * self.key_dim, groups * self.value_dim]
        self.in_projection = Linear(dim, self.widths, bias=bias)  # queries, keys, values, concatenated
        self.out_projection = Linear(heads * self.value_dim, dim, bias=bias)
        for block in self.in_projection.matrices():
            nn.init.xavier_uniform_(block)
        nn.init.xavier_uniform_(self.out_projection.weight)
        if bias:
            nn.init.zeros_(self.in_projection.bias)
            nn.init.zeros_(self.out_projection.bias)
        self.query_norm, self.key_norm = (
            nn.RMSNorm(self.key_dim, eps=1e-6) if query_key_norm else None for _ in range(2)
        )
        self.canon = Canon(sum(self.widths), causal) if canon else None
        self.forget = Linear(dim, heads) if forget else None
        if self.forget is not None:
            nn.init.xavier_uniform_(self.forget.weight)
            nn.init.zeros_(self.forget.bias)
        self.shares_values = value_residual
        self.value_share = nn.Parameter(torch.full((1,), 0.5)) if value_residual else None  # lambda

    @property
    def plain(self) -> bool:
        """Whether all but sizes and positions is as in Vaswani et al., which other engines require."""
        return self.key_value_heads == self.heads and not (self.query_norm or self.forget or self.canon)

    def forward(
        self, x: Tensor, mask: Tensor | None, *, need_weights: bool = False, first: list[Tensor] | None = None
    ) -> Mixed:
        length = x.shape[1]
        query, key, value = self._project(x, torch.arange(length, device=x.device), mask)
        value = self._with_first(value, first)
        gates = self._cumulated_gates(x, mask)
        values, weights = attend(
            query,
            key,
            value,
            self._real_keys(mask),
            causal=self.causal,
            bias=with_gates(self.position(length, length, device=x.device), gates, gates),
            dropout=self.dropout if self.training else 0.0,
            need_weights=need_weights,
        )
        return self._finish(values, weights, mask)

    def value_map(self) -> tuple[nn.Module, slice]:
        return self.in_projection, slice(-self.widths[2], None)

    def _real_keys(self, mask: Tensor | None) -> Tensor | None:
        """The keys (B, 1, L or 1, L) that are not padding; None if causal queries see no padding."""
        if mask is None or (self.causal and padding_is_last(mask)):
            return None
        keys = mask[:, None, None, :]
        # Padding before a causal sequence attends to itself, so that every query has a key.
        return keys | torch.eye(mask.shape[1], dtype=torch.bool, device=mask.device) if self.causal else keys

    def _project(self, x: Tensor, positions: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        projected = self.in_projection(x)
        return self._heads(projected if self.canon is None else self.canon(projected, mask), positions)

    def _heads(self, projected: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Split into queries (B, K, L, d_k), keys (B, G, L, d_k), rotated to `positions` (L,) or (B, L), and values."""
        parts = torch.split(projected, self.widths, -1)
        heads = self.heads, self.key_value_heads, self.key_value_heads
        query, key, value = (
            part.view(*part.shape[:2], count, -1).transpose(1, 2) for part, count in zip(parts, heads, strict=True)
        )
        query, key = _normalised(query, self.query_norm), _normalised(key, self.key_norm)
        return self.position.rotate(query, positions), self.position.rotate(key, positions), value

    def _with_first(self, value: Tensor, first: list[Tensor] | None) -> Tensor:
        """Mix those in `first` into values (B, K, L, d_v), or append the values to `first` if it is empty."""
        if first is not None and not first:
            first.append(value)
        if not first or self.value_share is None:
            return value
        share = self.value_share.to(value.dtype)
        return share * value + (1 - share) * first[0]

    def _cumulated_gates(self, x: Tensor, mask: Tensor | None) -> Tensor | None:
        """The logarithms of forget gates (B, K, L), cumulated over positions; None without forget gates."""
        if self.forget is None:
            return None
        gates = F.logsigmoid(self.forget(x).to(self.forget.weight.dtype))  # float32 at least
        return zero_padding(gates, mask).transpose(1, 2).cumsum(2)

    def _finish(self, values: Tensor, weights: Tensor | None, mask: Tensor | None) -> Mixed:
        """Join the heads' values (B, K, L, d_v), and zero values and weights at padding."""
        values = self.out_projection(values.transpose(1, 2).flatten(2))
        if weights is not None and mask is not None:
            weights = weights.masked_fill(~mask[:, None, :, None], 0)
        return Mixed(zero_padding(values, mask), weights)

    def initial_state(self, rows: int, capacity: int) -> MixerState:
        require_causal(self.causal)
        weight = self.out_projection.weight
        lengths = torch.zeros(rows, dtype=torch.int64, device=weight.device)
        gates = None if self.forget is None else weight.new_zeros(capacity + 1, rows, self.heads)
        canon = None if self.canon is None else self.canon.initial_state(rows)
        return AttentionState(lengths, *self._slots(weight, capacity + 1, rows), gates, canon)

    def _slots(self, weight: Tensor, count: int, rows: int) -> tuple[Tensor, Tensor]:
        """Zeros for keys (count, R, G, d_k) and values (count, R, G, d_v), on the device of `weight`."""
        shape, dtype = (count, rows, self.key_value_heads), working_dtype(weight)
        return weight.new_zeros(*shape, self.key_dim, dtype=dtype), weight.new_zeros(
            *shape, self.value_dim, dtype=dtype
        )

    def extend(
        self,
        x: Tensor,
        state: State,
        lengths: Tensor | None = None,
        *,
        first: list[Tensor] | None = None,
        **source: Any,
    ) -> tuple[Tensor, MixerState]:
        """Incremental decoding, as in `Mixer.extend`. `source` is the view of merged attention."""
        assert isinstance(state, AttentionState)
        count = x.shape[1]
        projected, canon = extend_canon(self.canon, self.in_projection(x), state.canon, lengths)
        after = replace(state, lengths=state.lengths_after(count, lengths), canon=canon)
        extremes, capacity, positions = state.bounds(), state.capacity, state.positions(count)
        _require_room(after, count, extremes, lengths is None)
        query, key, value = self._heads(projected, positions)
        value = self._with_first(value, first)
        gates, held = self._gates_after(x, state), state.slots()
        new = [key.permute(2, 0, 1, 3), value.permute(2, 0, 1, 3)]  # (n, R, G, d)
        if gates is not None:
            new.append(gates.permute(2, 0, 1))
        if extremes is not None and extremes[0] == extremes[1] and extremes[1] + count <= capacity:
            begin, filled = extremes[0], extremes[0] + count
            for slots, more in zip(held, new, strict=True):
                slots.narrow(0, begin, count).copy_(more)
            return self._read(query, gates, [slots.narrow(0, 0, filled) for slots in held], begin, **source), after
        filled = capacity if extremes is None else min(capacity, extremes[1] + count)
        if extremes is not None:  # slots that only some rows are about to fill
            for slots in held:
                slots[extremes[1] : filled] = 0
        places = positions
        if lengths is not None:
            places = torch.where(torch.arange(count, device=x.device) < lengths[:, None], positions, capacity)
        index = places.t(), torch.arange(len(x), device=x.device)
        for slots, more in zip(held, new, strict=True):
            slots[index] = more.to(slots.dtype)
        return self._read_rows(query, gates, [slots[:filled] for slots in held], positions, **source), after

    def _gates_after(self, x: Tensor, state: AttentionState) -> Tensor | None:
        """The cumulated forget gates (R, K, n) of new positions x (R, n, D)."""
        gates = self._cumulated_gates(x, None)
        if gates is None or state.gates is None:
            return None
        reached = state.gates[(state.lengths - 1).clamp(min=0), torch.arange(len(x), device=x.device)]
        return gates + reached.masked_fill((state.lengths == 0)[:, None], 0)[..., None]

    def _read(self, query: Tensor, gates: Tensor | None, held: list[Tensor], first: int, **source: Any) -> Tensor:
        """Attend with queries (R, K, n, d_k) at positions `first`, ... to all of `held` (S, R, ...): (R, n, D)."""
        keys, values, *all_gates = held
        count, filled = query.shape[2], keys.shape[0]
        read = self._attend(
            query,
            keys.permute(1, 2, 0, 3),
            values.permute(1, 2, 0, 3),
            causal_mask(filled, query.device)[first:] if first and count > 1 else None,
            causal=first == 0 and count > 1,
            bias=with_gates(
                self.position(count, filled, -first, query.device),
                gates,
                *(each.permute(1, 2, 0) for each in all_gates),
            ),
            **source,
        )
        return self._finish(read, None, None).values

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None, **options: Any) -> Tensor:
        """The values (R, K, n, d_v) of queries (R, K, n, d_k)."""
        return attend(query, key, value, allowed, **options)[0]

    def _read_rows(
        self, query: Tensor, gates: Tensor | None, held: list[Tensor], positions: Tensor, **source: Any
    ) -> Tensor:
        """Attend with queries (R, K, n, d_k) to `held` (S, R, ...) up to `positions` (R, n): (R, n, D)."""
        slots = torch.arange(len(held[0]), device=query.device)
        if torch.compiler.is_compiling() and query.device.type == "cpu":
            # Slots that an eager `select` left uninitialised may be NaN, and zero times NaN is NaN.
            beyond = slots[:, None] > positions[:, -1]
            held = [each.masked_fill(beyond.view(*beyond.shape, *[1] * (each.ndim - 2)), 0) for each in held]
        keys, values, *all_gates = held
        read = self._attend(
            query,
            keys.permute(1, 2, 0, 3),
            values.permute(1, 2, 0, 3),
            (slots <= positions[:, :, None])[:, None],
            bias=with_gates(
                self.position(query.shape[2], len(keys), -positions[:, 0], query.device),
                gates,
                *(each.permute(1, 2, 0) for each in all_gates),
            ),
            **source,
        )
        return self._finish(read, None, None).values

    def extra_repr(self) -> str:
        sizes = f"key_dim={self.key_dim}, value_dim={self.value_dim}"
        groups = "" if self.key_value_heads == self.heads else f", key_value_heads={self.key_value_heads}"
        return f"{super().extra_repr()}, heads={self.heads}, {sizes}, dropout={self.dropout}{groups}"


def _normalised(x: Tensor, norm: nn.RMSNorm | None) -> Tensor:
    """Queries or keys (..., d_k) after `norm`, if given, which computes in its own type."""
    return x if norm is None else norm(x.to(norm.weight.dtype)).to(x.dtype)


def with_gates(bias: Tensor | None, queries: Tensor | None, keys: Tensor | None = None) -> Tensor | None:
    """A bias of scores (B, K, L, S) minus distances between cumulated gates (B, K, L) and (B, K, S), if given."""
    if queries is None or keys is None:
        return bias
    forgotten = -(queries[..., None] - keys[:, :, None]).abs()
    return forgotten if bias is None else bias + forgotten


def _require_room(after: AttentionState, count: int, extremes: tuple[int, int] | None, all_real: bool) -> None:
    """Raise ValueError if `count` new positions, all or some of them real, are known to exceed the capacity.

    Args:
        after: the state after them.
        count: n.
        extremes: the bounds of the lengths before them, if known.
        all_real: whether every row has all n.
    """
    if all_real:
        needed = count + (extremes[1] if extremes else 0)
    else:
        highest = after.bounds()
        needed = highest[1] if highest else 0
    if needed > after.capacity:
        raise ValueError(f"a state with room for {after.capacity} positions cannot hold {needed}")


def size_of_head(dim: int, heads: int, head_dim: int | None) -> int:
    """d: `head_dim`, or D / K by default. Raises ValueError if K does not divide D."""
    if head_dim is None and dim % heads:
        raise ValueError(f"heads ({heads}) do not divide dim ({dim}); give head_dim or another number of heads")
    return head_dim or dim // heads


def sizes_of_head(
    dim: int, heads: int, head_dim: int | None, key_dim: int | None, value_dim: int | None
) -> tuple[int, int]:
    """d_k and d_v: each by default `head_dim`, or else D / K. Raises ValueError if K does not divide D."""
    usual = 0 if key_dim and value_dim else size_of_head(dim, heads, head_dim)
    return key_dim or usual, value_dim or usual
