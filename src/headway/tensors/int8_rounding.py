"""Rounding to 8 bits within floating point arithmetic, so that training simulates an 8-bit engine.

Gradients are those without rounding (straight-through; Bengio et al. 2013; Jacob et al. 2018). The scale is determined
by the largest absolute value, so no number is clipped.
"""

import math

import torch
from torch import Tensor, nn

LARGEST = 127
SMALLEST = 1e-20  # the minimum of the largest absolute value, which avoids a division by zero


def int8_scale(x: Tensor) -> Tensor:
    """The scalar factor that maps the largest of |x| to 127; no gradient passes through it."""
    largest: Tensor = torch.linalg.vector_norm(x.detach(), math.inf)
    return LARGEST / largest.clamp(min=SMALLEST)


def as_int8(x: Tensor, scale: Tensor) -> Tensor:
    """The nearest integers to x times `scale`, as floating point numbers of x's type or float32, whichever is wider."""
    scaled = x.to(torch.promote_types(x.dtype, torch.float32)) * scale
    return scaled + (scaled.round() - scaled).detach()


class TokenEmbedding(nn.Embedding):
    """`torch.nn.Embedding` with optional rounding of its vectors to 8 bits.

    Attributes:
        rounds: whether vectors are rounded (see `headway.tensors.linear.round_to_int8`).
    """

    rounds = False

    def forward(self, ids: Tensor) -> Tensor:
        """Map ids (...) to vectors (..., D)."""
        vectors = super().forward(ids)
        if not self.rounds:
            return vectors
        scale = int8_scale(self.weight)
        return as_int8(vectors, scale) / scale
