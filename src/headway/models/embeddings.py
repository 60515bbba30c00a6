"""Token embeddings and the projection to the vocabulary, which may be one and the same matrix.

Shapes: B batch, S source, L length, D model, V vocabulary.
"""

from abc import ABC, abstractmethod
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from headway.core.errors import UserError
from headway.mixers.positions import AbsolutePosition
from headway.models.model import ModelConfig
from headway.tensors.batch import UNKNOWN
from headway.tensors.dropout import Dropout
from headway.tensors.int8_rounding import TokenEmbedding
from headway.tensors.linear import Linear

Tied = Literal["all", "target", "none"]


class SourceReader(nn.Module, ABC):
    """The way from a source, as a batch holds it, into a model."""

    @abstractmethod
    def read(self, source: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """A padded source with its mask (B, S), to (B, S', D) with the mask (B, S') of what is left."""

    @abstractmethod
    def lengths(self, lengths: Tensor) -> Tensor:
        """How many positions are left of sources of these lengths, end marks included."""

    @abstractmethod
    def longest(self, positions: int) -> int:
        """The longest source, its end mark not counted, of which at most so many positions are left."""

    @abstractmethod
    def trial(self, length: int) -> NDArray[Any]:
        """A source of this length, without its end mark, that holds nothing in particular."""


class Embedding(SourceReader):
    """Token vectors times a factor, plus positions, then dropout (Vaswani et al. 2017, sections 3.4, 3.5 and 5.4).

    Args:
        tokens: their vectors.
        position: the vectors of positions.
        dropout: the share of elements that are left out.
        scale: the factor.
        zero_first: whether position 0 has a zero vector in the place of its token's, as Marian's decoders have.
        norm: of the sum, before dropout, as BART has it (Lewis et al. 2020); None for none.
    """

    def __init__(
        self,
        tokens: nn.Embedding,
        position: AbsolutePosition,
        dropout: float,
        scale: float,
        zero_first: bool = False,
        norm: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.tokens, self.position, self.dropout, self.scale = tokens, position, Dropout(dropout), scale
        self.zero_first, self.norm = zero_first, norm

    def forward(self, ids: Tensor) -> Tensor:
        """Whole sequences of ids (B, L) to (B, L, D)."""
        x = self._scaled(ids, torch.arange(ids.shape[-1], device=ids.device) if self.zero_first else None)
        return self._end(x + self.position.between(0, ids.shape[-1]))

    def at(self, ids: Tensor, positions: Tensor) -> Tensor:
        """Ids (R, n) at `positions` (R, n) to (R, n, D)."""
        return self._end(self._scaled(ids, positions) + self.position(positions))

    def _scaled(self, ids: Tensor, positions: Tensor | None) -> Tensor:
        x: Tensor = self.tokens(ids) * self.scale
        return x.masked_fill((positions == 0)[..., None], 0) if self.zero_first and positions is not None else x

    def _end(self, x: Tensor) -> Tensor:
        return self.dropout(x if self.norm is None else self.norm(x))  # type: ignore[no-any-return]

    def read(self, source: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        return self(source), mask

    def lengths(self, lengths: Tensor) -> Tensor:
        return lengths

    def longest(self, positions: int) -> int:
        return positions - 1

    def trial(self, length: int) -> NDArray[Any]:
        return np.full(length, UNKNOWN)


def token_embedding(size: int, dim: int) -> nn.Embedding:
    """Vectors of variance 1 / D, so that after the factor sqrt(D) each element has variance one."""
    embedding = TokenEmbedding(size, dim)
    nn.init.normal_(embedding.weight, std=dim**-0.5)
    return embedding


def tying(config: ModelConfig, shared: bool) -> Tied:
    """`model.tied`, or its default for a vocabulary that is `shared` or not. Raises UserError where it cannot be."""
    tied = config.tied or ("all" if shared else "target")
    if tied == "all" and not shared:
        raise UserError(
            "one embedding for both sides needs one vocabulary",
            where="model.tied",
            received="all",
            allowed="target or none" if config.reads_frames() else "target or none, or vocabulary.shared: true",
        )
    return tied


def output_projection(target: nn.Embedding, tied: Tied, *, bias: bool = False) -> Linear:
    """(..., D) to logits (..., V), with the target's embedding as its weight unless nothing is tied."""
    projection = Linear(target.embedding_dim, target.num_embeddings, bias=False)
    if bias:
        projection.bias = nn.Parameter(torch.zeros(target.num_embeddings))
    nn.init.normal_(projection.weight, std=target.embedding_dim**-0.5)
    if tied != "none":
        projection.weight = target.weight
    return projection
