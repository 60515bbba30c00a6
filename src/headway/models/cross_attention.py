"""Attention from a target to an encoded source: the interface of all kinds, and multi-head attention.

Shapes: B sentences, T queries, S source, K heads, d_k key, d_v value, D query, E memory, W hypotheses of a sentence, R
= B * W rows of a decoding step, grouped by sentence, n new positions of a row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn

from headway.core.config import Probability, Width
from headway.mixers.attention import attend, sizes_of_head
from headway.mixers.mixer import mapped
from headway.mixers.points import Points, head_points
from headway.tensors.linear import Linear


class Choice(NamedTuple):
    """Attention weights (B, T, S) and, for hard attention, the chosen `position` (B, T).

    `log_probability` and `entropy` (B, T) of the distribution it was drawn from are None unless REINFORCE needs them.
    """

    weights: Tensor
    position: Tensor | None = None
    log_probability: Tensor | None = None
    entropy: Tensor | None = None


@dataclass(frozen=True)
class View:
    """The part of cross-attention that depends only on the source: tensors whose first axis are sentences, or None."""

    def select(self, sentences: Tensor) -> Self:
        view: Self = mapped(self, lambda part: part.index_select(0, sentences), Tensor)
        return view


class Read(NamedTuple):
    """The result of cross-attention: values (B, T, `size`), weights (B, K, T, S) if requested or computed anyway, and
    the choices of hard attention."""

    values: Tensor
    weights: Tensor | None
    choice: Choice | None = None


class CrossMixer(nn.Module, ABC):
    """Attention from a target to an encoded source, for Transformers and recurrent models.

    A subclass takes `dim` (D), `memory_dim` (E), `positions` (the longest source in training) and its `Config` or
    keyword-only options.

    Attributes:
        size: the size of its values.
        ordered: whether a query needs the source position that the query before it chose.
        sampled: whether positions are drawn in training, so that the model must add the losses of REINFORCE.
    """

    size: int
    ordered: bool = False
    sampled: bool = False

    @abstractmethod
    def project(self, memory: Tensor, mask: Tensor | None) -> View:
        """The view of memory (B, S, E), real where mask (B, S) is True; None if all of it is real."""

    @abstractmethod
    def forward(self, x: Tensor, view: View, *, need_weights: bool = False) -> Read:
        """Attend with all queries x (B, T, D) of whole targets. The weights are those before dropout."""

    @abstractmethod
    def extend(
        self,
        x: Tensor,
        view: View,
        width: int,
        positions: Tensor,
        previous: Tensor | None = None,
        *,
        need_weights: bool = False,
    ) -> Read:
        """Attend with the next n queries of each hypothesis; equal to `forward` at their positions.

        Args:
            x: (R, n, D).
            view: of the B sentences.
            width: W.
            positions: (R,) the target position of the first of the n.
            previous: (R,), for `ordered` attention: the source position that each row chose last.
            need_weights: return the weights.

        Returns:
            Values (R, n, `size`); weights and choices have the W * n queries of a sentence instead of T.
        """

    def points(self) -> Points:
        """Intervention points: the heads, if `out_projection` joins `heads` of them."""
        return head_points(self)

    @abstractmethod
    def scores(self, x: Tensor, view: View) -> Tensor:
        """The scores (B, K, T, S) of queries x (B, T, D), before masking and softmax."""

    def value_map(self) -> tuple[nn.Module, slice] | None:
        """The map that computes the values of a source, and the slice of its outputs; None if there is no such map."""
        return None


@dataclass(frozen=True)
class MultiHeadView(View):
    """Keys (B, K, S, d_k), values (B, K, S, d_v), and the allowed positions (B, 1, 1, S); None if all are allowed."""

    keys: Tensor
    values: Tensor
    allowed: Tensor | None


class MultiHeadCross(CrossMixer):
    """Multi-head attention to the source (Vaswani et al. 2017, section 3.2.3).

    Args:
        dim: D, also the size of the values.
        memory_dim: E.
        positions: not used.
        heads: K, the number of heads.
        head_dim: the default of d_k and d_v, itself by default D / K.
        key_dim: d_k, of queries and keys.
        value_dim: d_v, of values.
        dropout: probability of dropping a weight while training.
        bias: whether the three maps have one.

    Raises:
        ValueError: dim is not divisible by heads, and no size of a head is set.
    """

    def __init__(
        self,
        dim: int,
        memory_dim: int,
        positions: int,
        *,
        heads: Width = 8,
        head_dim: Width | None = None,
        key_dim: Width | None = None,
        value_dim: Width | None = None,
        dropout: Probability = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.size, self.heads, self.dropout = dim, heads, dropout
        self.key_dim, self.value_dim = sizes_of_head(dim, heads, head_dim, key_dim, value_dim)
        self.widths = [heads * self.key_dim, heads * self.value_dim]
        self.query_projection = Linear(dim, self.widths[0], bias=bias)
        self.memory_projection = Linear(memory_dim, self.widths, bias=bias)  # keys, then values
        self.out_projection = Linear(self.widths[1], dim, bias=bias)
        query, memory, out = self.query_projection, self.memory_projection, self.out_projection
        for block in (query.weight, *memory.matrices(), out.weight):
            nn.init.xavier_uniform_(block)
        for layer in (query, memory, out) if bias else ():
            nn.init.zeros_(layer.bias)

    def project(self, memory: Tensor, mask: Tensor | None) -> MultiHeadView:
        projected = torch.split(self.memory_projection(memory), self.widths, -1)
        keys, values = (part.view(*memory.shape[:2], self.heads, -1).transpose(1, 2) for part in projected)
        if not torch.is_grad_enabled():  # otherwise every decoding step would copy them
            keys, values = keys.contiguous(), values.contiguous()
        return MultiHeadView(keys, values, None if mask is None else mask[:, None, None, :])

    def forward(self, x: Tensor, view: View, *, need_weights: bool = False) -> Read:
        assert isinstance(view, MultiHeadView)
        dropout = self.dropout if self.training else 0.0
        values, weights = attend(
            self._queries(x), view.keys, view.values, view.allowed, dropout=dropout, need_weights=need_weights
        )
        return Read(self.out_projection(values.transpose(1, 2).reshape(*x.shape[:2], -1)), weights)

    def extend(
        self,
        x: Tensor,
        view: View,
        width: int,
        positions: Tensor,
        previous: Tensor | None = None,
        *,
        need_weights: bool = False,
    ) -> Read:
        read = self(x.reshape(-1, width * x.shape[1], x.shape[2]), view, need_weights=need_weights)
        return read._replace(values=read.values.reshape(*x.shape[:2], -1))  # type: ignore[no-any-return]

    def scores(self, x: Tensor, view: View) -> Tensor:
        assert isinstance(view, MultiHeadView)
        scores: Tensor = self._queries(x) @ view.keys.transpose(2, 3) * self.key_dim**-0.5
        return scores

    def value_map(self) -> tuple[nn.Module, slice]:
        return self.memory_projection, slice(self.widths[0], None)

    def _queries(self, x: Tensor) -> Tensor:
        return self.query_projection(x).unflatten(-1, (self.heads, self.key_dim)).transpose(1, 2)  # type: ignore[no-any-return]
