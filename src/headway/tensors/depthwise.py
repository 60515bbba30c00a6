"""Depthwise convolution along a sequence: each channel is a weighted sum of its own neighbours.

Shapes: B batch, L length, D channels, k positions of the window.
"""

from torch import Tensor
from torch.nn import functional as F


def depthwise(padded: Tensor, weight: Tensor) -> Tensor:
    """Depthwise convolution (B, L, D): y_{t,c} = sum over j = 0 .. k - 1 of w_{c,j} x_{t+j,c}.

    This is a convolution in two dimensions, one of them of size one, because it reads the memory in place, channels
    last. On a CPU it is faster than one in one dimension and than a sum of shifted products (benchmarks/depthwise.py).

    Args:
        padded: x (B, L + k - 1, D), including padding for the windows at both ends.
        weight: w (D, k).
    """
    image = padded.transpose(1, 2).unsqueeze(2)  # (B, D, 1, L + k - 1)
    return F.conv2d(image, weight[:, None, None], groups=len(weight)).squeeze(2).transpose(1, 2)
