"""Mixers whose heads have a matrix as memory: the base class of linear attention and the delta rule.

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

EPSILON = 1e-6  # added to the mean square of a head's output


def fading_rates(directions: int, heads: int) -> nn.Parameter:
    """A of gates exp(-exp(A_h) softplus(...)), initialised so that exp(A) is between 1 and 16, as in Mamba-2's code."""
    return nn.Parameter(torch.empty(directions, heads).uniform_(1, 16).log_())


def step_sizes(count: int) -> nn.Parameter:
    """b, initialised so that softplus(b) is log-uniform between 0.001 and 0.1, as in Mamba-2's code."""
    sizes = torch.empty(count).uniform_(math.log(1e-3), math.log(1e-1)).exp_()
    return nn.Parameter(sizes + torch.log(-torch.expm1(-sizes)))  # the inverse of softplus


@dataclass(frozen=True)
class MatrixState(MixerState):
    """The memory (R, K, d, d_v), in float32 at least, and the state of the short convolution."""

    memory: Tensor
    recent: CanonState | None


class MatrixMemory(Mixer):
    """W_o [g^1 * norm(o^1); ...; g^K * norm(o^K)], where head h reads o_t^h = S_t^T q_t from its memory S_t.

    Queries, keys and values are linear maps of x, optionally followed by a short convolution (a Canon layer at point B,
    Allen-Zhu 2025). norm divides by the root mean square of a head, with one learned scale for all heads, and g =
    Swish(x W_g); both are optional. A subclass defines the update of the memory from position to position.

    Args:
        dim: D.
        causal: whether a position may only see itself and those before it.
        heads: K.
        head_dim: the default of d and d_v, itself by default D / K.
        key_dim: d, of queries and keys.
        value_dim: d_v, of values.
        canon: whether queries, keys and values are mixed with those of their neighbours (point B of Canon layers).
        output_norm: whether the output of each head is normalised.
        output_gate: whether it is gated.
        bias: whether the input and output projections have one.

    Raises:
        ValueError: dim is not divisible by heads, and no size of a head is set.
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
        self.in_projection = Linear(dim, self.widths, bias=bias)  # queries, keys, values, concatenated
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
        """Update the memory with each position, and read from it.

        Args:
            x: (B, L, D), the input of gates.
            query: (B, K, L, d), zero at padding like key and value.
            key: (B, K, L, d).
            value: (B, K, L, d_v).
            mask: (B, L), True at real positions, with padding anywhere; None if all are real. Padding keeps the memory.
            memory: (B, K, d, d_v) before the first position; None for zeros, if the last memory is not needed.

        Returns:
            The values (B, K, L, d_v), in float32 at least, and the last memory, or None if `memory` is None.
        """

    def weights(self, x: Tensor, query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor | None:
        """The weights (B, K, L, L) of each value in the output, or None by default; arguments as in `read`."""
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
        parts = torch.split(projected, self.widths, -1)
        query, key, value = (part.view(*part.shape[:2], self.heads, -1).transpose(1, 2) for part in parts)
        return query, key, value

    def _finish(self, read: Tensor, x: Tensor) -> Tensor:
        """The output (B, L, D) from the values (B, K, L, d_v) that were read."""
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
