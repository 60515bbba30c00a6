"""Rounding to 8 bits within arithmetic of floating point numbers, so that training sees what an engine will compute.

Gradients pass straight through (Bengio et al. 2013; Jacob et al. 2018): they are those of the numbers before rounding.
The scale is that of the largest number, so that none is clipped.
"""

import math

import torch
from torch import Tensor, nn

LARGEST = 127
SMALLEST = 1e-20  # numbers that are all smaller have the scale of this one, and stay zero


def int8_scale(x: Tensor) -> Tensor:
    """() the factor that makes 127 of the largest of |x|; no gradient passes through it."""
    largest: Tensor = torch.linalg.vector_norm(x.detach(), math.inf)
    return LARGEST / largest.clamp(min=SMALLEST)


def as_int8(x: Tensor, scale: Tensor) -> Tensor:
    """The integers next to x times `scale`, as numbers of x's type, or of float32 where that is wider."""
    scaled = x.to(torch.promote_types(x.dtype, torch.float32)) * scale
    return scaled + (scaled.round() - scaled).detach()


class TokenEmbedding(nn.Embedding):
    """`torch.nn.Embedding` that can read its vectors as the matrix in 8 bits has them.

    Attributes:
        rounds: whether it does (see `headway.tensors.linear.round_to_int8`).
    """

    rounds = False

    def forward(self, ids: Tensor) -> Tensor:
        """Ids (...) to vectors (..., D)."""
        vectors = super().forward(ids)
        if not self.rounds:
            return vectors
        scale = int8_scale(self.weight)
        return as_int8(vectors, scale) / scale
