"""Rounding to 8 bits within floating point arithmetic, so that training simulates an 8-bit engine.

Gradients are those without rounding (straight-through; Bengio et al. 2013; Jacob et al. 2018). By default, the scale is
determined by the largest absolute value, so no number is clipped. An `InputRange` fixes the scale of the inputs of a
linear map, as engines have it, and larger inputs are clipped.
"""

import math

import torch
from torch import Tensor, nn

LARGEST = 127
NARROW = 64  # the largest weight of 7 bits, for which no two products saturate 16 bits
RANGE = "input_range"  # the name of the module of an `InputRange`
SMALLEST = 1e-20  # the minimum of the largest absolute value, which avoids a division by zero


def int8_scale(x: Tensor, most: Tensor | int = LARGEST) -> Tensor:
    """The scalar factor that maps the largest of |x| to `most`; no gradient passes through it."""
    largest: Tensor = torch.linalg.vector_norm(x.detach(), math.inf)
    return most / largest.clamp(min=SMALLEST)


def as_int8(x: Tensor, scale: Tensor, *, clip: bool = False) -> Tensor:
    """The nearest integers to x times `scale`, as floating point numbers of x's type or float32, whichever is wider.

    With `clip`, larger numbers become 127 and have no gradient.
    """
    scaled = x.to(torch.promote_types(x.dtype, torch.float32)) * scale
    if clip:
        scaled = scaled.clamp(-LARGEST, LARGEST)
    return scaled + (scaled.round() - scaled).detach()


class InputRange(nn.Module):
    """The fixed range of the inputs of a linear map, which an engine stores with the integers of the matrices.

    Args:
        parts: the number of matrices of the linear map.

    Attributes:
        largest: () the absolute value that is mapped to 127.
        most: (parts,) the integer that the largest weight of each matrix is mapped to, 127 or 64.
        observes: whether inputs in training are observed.
        observed: () the largest observed input since it was last set to None.
    """

    largest: Tensor
    most: Tensor

    def __init__(self, parts: int) -> None:
        super().__init__()
        self.register_buffer("largest", torch.zeros(()))
        self.register_buffer("most", torch.full((parts,), float(LARGEST)))
        self.observes = False
        self.observed: Tensor | None = None

    def rounded(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The integers of the inputs x, and their factor ()."""
        if self.observes and self.training:
            largest: Tensor = torch.linalg.vector_norm(x.detach(), math.inf).to(self.largest.dtype)
            self.observed = largest if self.observed is None else torch.maximum(self.observed, largest)
        return as_int8(x, self.scale, clip=True), self.scale

    @property
    def scale(self) -> Tensor:
        """The factor () of the inputs."""
        return LARGEST / self.largest.clamp(min=SMALLEST)


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
        fixed: InputRange | None = getattr(self, RANGE, None)  # of the linear map that shares the weight
        scale = int8_scale(self.weight, LARGEST if fixed is None else fixed.most[0])
        return as_int8(vectors, scale) / scale
