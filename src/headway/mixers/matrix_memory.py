"""Heads whose memory is a matrix: what linear attention and the delta rule share around their recurrence.

Shapes: B batch, L length, K heads, D model, d key, d_v value, R rows of a state, n new positions.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headway.mixers.attention import sizes_of_head
from headway.mixers.canon import Canon, CanonState
from headway.mixers.mixer import Mixed, Mixer, MixerState, State, require_causal
from headway.tensors.linear import Linear
from headway.tensors.masks import zero_padding

EPSILON = 1e-6  # added to the mean square of what a head has read


def fading_rates(directions: int, heads: int) -> nn.Parameter:
    """A of gates exp(-exp(A_h) softplus(...)), such that exp(A) begins between 1 and 16, as in Mamba-2's code."""
    return nn.Parameter(torch.empty(directions, heads).uniform_(1, 16).log_())


def step_sizes(count: int) -> nn.Parameter:
    """b such that softplus(b) begins between 0.001 and 0.1, evenly by its logarithm, as in Mamba-2's code."""
    sizes = torch.empty(count).uniform_(math.log(1e-3), math.log(1e-1)).exp_()
    return nn.Parameter(sizes + torch.log(-torch.expm1(-sizes)))  # the inverse of softplus


@dataclass(frozen=True)
class MatrixState(MixerState):
    """The memory (R, K, d, d_v), in float32 at least, and the last vectors that the short convolution sees."""

    memory: Tensor
    recent: CanonState | None


class MatrixMemory(Mixer):
    """W_o [g^1 * norm(o^1); ...; g^K * norm(o^K)], o_t^h = S_t^T q_t what head h reads of its memory S_t.

    Queries, keys and values are linear maps of x, by option after a short convolution (a Canon layer at point B,
    Allen-Zhu 2025). norm divides by the root mean square of a head, with one learned scale for all heads, and
    g = Swish(x W_g); an option leaves out either. A subclass says how the memory goes from position to position.

    Args:
        dim: D.
        causal: whether a position may only see itself and those before it.
        heads: K.
        head_dim: d and d_v where they are not given, by default D / K.
        key_dim: d, of queries and keys.
        value_dim: d_v, of values.
        canon: whether queries, keys and values are each mixed with those of their neighbours (point B of Canon layers).
        output_norm: whether what a head has read is normalised.
        output_gate: whether it is gated.
        bias: whether the maps to queries, keys and values and the last one have one.

    Raises:
        ValueError: heads do not divide dim and no size of a head is given.
    """

    def __init__(
        self,
        dim: int,
        causal: bool,
        *,
        heads: int,
        head_dim: int | None,
        key_dim: int | None,
        value_dim: int | None,
        canon: bool,
        output_norm: bool,
        output_gate: bool,
        bias: bool,
    ) -> None:
        super().__init__()
        self.causal, self.heads = causal, heads
        self.key_dim, self.value_dim = sizes_of_head(dim, heads, head_dim, key_dim, value_dim)
        self.widths = [heads * self.key_dim, heads * self.key_dim, heads * self.value_dim]
        self.in_projection = Linear(dim, self.widths, bias=bias)  # queries, keys, values, one below the other
        self.canon = Canon(sum(self.widths), causal) if canon else None
        self.norm = nn.RMSNorm(self.value_dim, eps=EPSILON) if output_norm else None
        self.output_gate = Linear(dim, heads * self.value_dim, bias=False) if output_gate else None
        self.out_projection = Linear(heads * self.value_dim, dim, bias=bias)
        for block in self.in_projection.matrices():
            nn.init.xavier_uniform_(block)
        for layer in (self.output_gate, self.out_projection):
            if layer is not None:
                nn.init.xavier_uniform_(layer.weight)
        if bias:
            nn.init.zeros_(self.in_projection.bias)
            nn.init.zeros_(self.out_projection.bias)

    @abstractmethod
    def read(
        self, x: Tensor, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, memory: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Read at each position.

        Args:
            x: (B, L, D), of which gates are made.
            query: (B, K, L, d), zero at padding as are key and value.
            key: (B, K, L, d).
            value: (B, K, L, d_v).
            mask: (B, L), True where a position is real, with padding anywhere; None when all are. Padding has to leave
                the memory as it is.
            memory: (B, K, d, d_v) before the first position; None for zeros, where no memory after the last is needed.

        Returns:
            (B, K, L, d_v) in float32 at least, and the memory after the last position where there was one before.
        """

    def weights(self, x: Tensor, query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor | None:
        """(B, K, L, L): the share of each value in what is read, where a subclass has it; arguments as in `read`."""
        return None

    def forward(self, x: Tensor, mask: Tensor | None, *, need_weights: bool = False) -> Mixed:
        projected = self.in_projection(x)
        if self.canon is not None:
            projected = self.canon(projected, mask)
        query, key, value = self._split(zero_padding(projected, mask))
        read, _ = self.read(x, query, key, value, mask, None)
        weights = self.weights(x, query, key, mask) if need_weights else None
        return Mixed(zero_padding(self._finish(read, x), mask), weights)

    def value_map(self) -> tuple[nn.Module, slice]:
        return self.in_projection, slice(-self.widths[2], None)

    def _split(self, projected: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries and keys (B, K, L, d) and values (B, K, L, d_v)."""
        parts = torch.split(projected, self.widths, -1)
        query, key, value = (part.view(*part.shape[:2], self.heads, -1).transpose(1, 2) for part in parts)
        return query, key, value

    def _finish(self, read: Tensor, x: Tensor) -> Tensor:
        """(B, L, D) of what is read (B, K, L, d_v)."""
        values = read.transpose(1, 2)
        values = (values if self.norm is None else self.norm(values)).flatten(2)
        if self.output_gate is not None:
            values = values * F.silu(self.output_gate(x))
        return self.out_projection(values)  # type: ignore[no-any-return]

    def initial_state(self, rows: int, capacity: int) -> MixerState:
        require_causal(self.causal)
        weight = self.out_projection.weight
        return MatrixState(
            torch.zeros(rows, dtype=torch.int64, device=weight.device),
            weight.new_zeros(rows, self.heads, *self._sizes(), dtype=torch.promote_types(weight.dtype, torch.float32)),
            None if self.canon is None else self.canon.initial_state(rows),
        )

    def _sizes(self) -> tuple[int, int]:
        """The sizes of a head's memory."""
        return self.key_dim, self.value_dim

    def extend(self, x: Tensor, state: State, lengths: Tensor | None = None) -> tuple[Tensor, MixerState]:
        assert isinstance(state, MatrixState)
        projected, recent, count = self.in_projection(x), state.recent, x.shape[1]
        if self.canon is not None:
            assert recent is not None
            projected, recent = self.canon.extend(projected, recent, lengths)
        mask = None if lengths is None else torch.arange(count, device=x.device) < lengths[:, None]
        query, key, value = self._split(zero_padding(projected, mask))
        read, memory = self.read(x, query, key, value, mask, state.memory)
        assert memory is not None
        return self._finish(read, x), MatrixState(state.lengths_after(count, lengths), memory, recent)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, heads={self.heads}, key_dim={self.key_dim}, value_dim={self.value_dim}"
