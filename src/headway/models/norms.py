"""Normalisations of the vectors of single positions."""

from typing import Annotated

from pydantic import Field
from torch import nn


class LayerNorm(nn.LayerNorm):
    """Each vector minus its mean, over its deviation, with a learned scale and shift (Ba et al. 2016).

    Args:
        dim: D.
        eps: what is added to the variance.
    """

    def __init__(self, dim: int, *, eps: Annotated[float, Field(gt=0, le=1)] = 1e-5) -> None:
        super().__init__(dim, eps=eps)


class RmsNorm(nn.RMSNorm):
    """Each vector over its root mean square, with a learned scale (Zhang and Sennrich 2019).

    Args:
        dim: D.
        eps: what is added to the mean square.
    """

    def __init__(self, dim: int, *, eps: Annotated[float, Field(gt=0, le=1)] = 1e-6) -> None:
        super().__init__(dim, eps=eps)
