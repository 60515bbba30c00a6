"""Token embeddings and the output projection, which may share one matrix.

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
    """A module that maps the sources of a batch, ids or frames, to the input vectors of the encoder."""

    @abstractmethod
    def read(self, source: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Map padded sources with a mask (B, S) to vectors (B, S', D) with a mask (B, S')."""

    @abstractmethod
    def lengths(self, lengths: Tensor) -> Tensor:
        """The output lengths S' for sources of these lengths, which count end-of-sentence tokens."""

    @abstractmethod
    def longest(self, positions: int) -> int:
        """The maximum source length, without end-of-sentence token, whose output length S' is at most `positions`."""

    @abstractmethod
    def trial(self, length: int) -> NDArray[Any]:
        """A dummy source of this length, without end-of-sentence token."""


class Embedding(SourceReader):
    """Token vectors times a factor, plus positions, then dropout (Vaswani et al. 2017, sections 3.4, 3.5 and 5.4).

    Args:
        tokens: the token embedding.
        position: the position vectors.
        dropout: the probability of dropout.
        scale: the factor.
        zero_first: whether position 0 has a zero vector instead of its token's, as in Marian's decoders.
        norm: applied to the sum, before dropout, as in BART (Lewis et al. 2020); None for none.
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
        """Map whole sequences of ids (B, L) to vectors (B, L, D)."""
        x = self._scaled(ids, torch.arange(ids.shape[-1], device=ids.device) if self.zero_first else None)
        return self._end(x + self.position.between(0, ids.shape[-1]))

    def at(self, ids: Tensor, positions: Tensor) -> Tensor:
        """Map ids (R, n) at `positions` (R, n) to vectors (R, n, D)."""
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
    """A new embedding with elements of variance 1 / D, so that the factor sqrt(D) scales them to variance one."""
    embedding = TokenEmbedding(size, dim)
    nn.init.normal_(embedding.weight, std=dim**-0.5)
    return embedding


def tying(config: ModelConfig, shared: bool) -> Tied:
    """`model.tied`, by default `all` if the vocabulary is shared, else `target`. Raises UserError if it cannot be."""
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
    """A map from (..., D) to logits (..., V), whose weight is the target embedding's unless `tied` is `none`."""
    projection = Linear(target.embedding_dim, target.num_embeddings, bias=False)
    if bias:
        projection.bias = nn.Parameter(torch.zeros(target.num_embeddings))
    nn.init.normal_(projection.weight, std=target.embedding_dim**-0.5)
    if tied != "none":
        projection.weight = target.weight
    return projection
