"""Self-attention in which some heads are biaffine, to be supervised with dependency heads (Deguchi et al.,
dependency-based self-attention; the biaffine score is that of Dozat and Manning 2017).

Shapes: B batch, L length, K heads, N dependency heads, D model, d key.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from headway.core.config import Probability, Width
from headway.mixers.attention import Attention
from headway.mixers.relative import RelativePosition, RelativePositions


class DependencyAttention(Attention):
    """Self-attention whose first N heads have the weights softmax(Q U K^T / sqrt(d)), equation 5.

    Each of them has its own U (d x d). Only the dependency loss makes A[t, q] the probability that q is the head of t;
    without it the mixer is attention with a few more weights.

    Args:
        dim: D.
        causal: whether a position may only see itself and those before it.
        dependency_heads: N, the number of these heads.
        key_bias: add u K^T / sqrt(d) to the scores of a dependency head, u learned: the prior of each word to be a
            head. With rotary positions, U and u are applied to the rotated queries.
        heads, head_dim, key_dim, value_dim, dropout, bias, position, key_value_heads, query_key_norm, canon, forget: as
            for `Attention`.

    Raises:
        ValueError: N is not between 1 and K, or `Attention` refuses its options.
    """

    def __init__(
        self,
        dim: int,
        causal: bool,
        *,
        dependency_heads: Width = 1,
        key_bias: bool = False,
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
        forget: bool = False,
    ) -> None:
        super().__init__(
            dim, causal, heads=heads, head_dim=head_dim, key_dim=key_dim, value_dim=value_dim, dropout=dropout,
            bias=bias, position=position, key_value_heads=key_value_heads, query_key_norm=query_key_norm,
            canon=canon,
            forget=forget,
        )  # fmt: skip
        if not 1 <= dependency_heads <= heads:
            raise ValueError(f"dependency_heads must be between 1 and heads ({heads}); received {dependency_heads}")
        self.dependency_heads = dependency_heads
        self.bilinear = nn.Parameter(torch.empty(dependency_heads, self.key_dim, self.key_dim))
        for matrix in self.bilinear:
            nn.init.xavier_uniform_(matrix)
        self.key_bias = nn.Parameter(torch.zeros(dependency_heads, 1, self.key_dim)) if key_bias else None
        # U and u are applied between the rotations, so absolute positions matter, and padding must come last.
        self.needs_padding_last = type(self.position).rotate is not RelativePosition.rotate

    def _heads(self, projected: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """As in `Attention`, but with Q U + u as queries of dependency heads; all else of their scores is the same."""
        query, key, value = super()._heads(projected, positions)
        biaffine, plain = query[:, : self.dependency_heads], query[:, self.dependency_heads :]
        biaffine = biaffine @ self.bilinear
        if self.key_bias is not None:
            biaffine = biaffine + self.key_bias
        return torch.cat([biaffine.to(query.dtype), plain], 1), key, value

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, dependency_heads={self.dependency_heads}, key_bias={self.key_bias is not None}"
