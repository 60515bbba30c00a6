"""The front end of a model that reads speech: convolutions that shorten the frames, instead of an embedding of tokens.

Shapes: B batch, F frames, M numbers a frame, C channels, S output positions, D model.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from headway.core.config import Layers, Section, Width
from headway.mixers.positions import AbsolutePosition
from headway.models.embeddings import SourceReader
from headway.tensors.dropout import Dropout
from headway.tensors.masks import drop_full, padding_mask, zero_padding


class FrontEndConfig(Section):
    """Convolutions over frames, each with a gated linear unit, before the encoder of a model that reads speech.

    `layers`, `kernel`: the number of convolutions, and the frames that each reads. `stride`: each layer divides the
    number of positions by it. `channels`: the size between layers, before the gate halves it.
    """

    layers: Layers = 2
    kernel: Width = 5
    stride: Width = 2
    channels: Width = 1024

    @model_validator(mode="after")
    def _halves(self) -> FrontEndConfig:
        if self.channels % 2 or not self.kernel % 2:
            raise ValueError("channels must be even, for the gate to halve them, and kernel odd, to have a middle")
        return self


class FrontEnd(SourceReader):
    """Convolutions with gated linear units; the result is scaled, positions are added, and dropout is applied.

    This is the front end of fairseq's speech-to-text Transformer (Wang et al. 2020, section 3.1, after Synnaeve et al.
    2020). Two layers of kernel 5 and stride 2 leave one of four positions. Padding of every layer is zero, whether the
    utterance ends or a longer one is in the same batch, so padding never changes a real position.

    Args:
        config: layers, kernel, stride and channels C.
        features: M.
        dim: D.
        position: the vectors added to positions start .. stop - 1.
        dropout: its probability.
        scale: the factor, sqrt(D) in fairseq.
    """

    def __init__(
        self,
        config: FrontEndConfig,
        features: int,
        dim: int,
        position: AbsolutePosition,
        dropout: float,
        scale: float,
    ) -> None:
        super().__init__()
        inner = [config.channels // 2] * (config.layers - 1)
        sizes = zip([features, *inner], [*inner, dim], strict=True)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(before, 2 * after, config.kernel, config.stride, config.kernel // 2) for before, after in sizes
        )
        self.features, self.stride = features, config.stride
        self.position, self.dropout, self.scale = position, Dropout(dropout), scale

    def read(self, source: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        return self(source, mask)  # type: ignore[no-any-return]

    def forward(self, source: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Map frames (B, F, M) with a mask (B, F) to vectors (B, S, D) with a mask (B, S)."""
        x, lengths = zero_padding(source, drop_full(mask)), mask.sum(1)
        for convolution in self.convolutions:
            x = F.glu(convolution(x.transpose(1, 2)), dim=1).transpose(1, 2)
            lengths = self._after_layer(lengths)
            mask = padding_mask(lengths, x.shape[1])
            x = zero_padding(x, drop_full(mask))
        x = x * self.scale + self.position.between(0, x.shape[1])
        return self.dropout(x), mask

    def lengths(self, lengths: Tensor) -> Tensor:
        for _ in self.convolutions:
            lengths = self._after_layer(lengths)
        return lengths

    def longest(self, positions: int) -> int:
        return int(positions * self.stride ** len(self.convolutions))

    def trial(self, length: int) -> NDArray[Any]:
        return np.zeros((length, self.features), dtype=np.float32)

    def _after_layer(self, length: Tensor) -> Tensor:
        """The length after one layer, whose odd kernel is padded by half of its size: ceil(length / stride)."""
        return torch.div(length + self.stride - 1, self.stride, rounding_mode="floor")
