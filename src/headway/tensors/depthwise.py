"""Depthwise convolution along a sequence: each channel is a weighted sum of its own neighbours.

Shapes: B batch, L length, D channels, k positions of the window.
"""

from torch import Tensor
from torch.nn import functional as F


def depthwise(padded: Tensor, weight: Tensor) -> Tensor:
    """y_{t,c} = sum over j = 0 .. k - 1 of w_{c,j} x_{t+j,c}: (B, L, D).

    A convolution in two dimensions, of which one has size one, since that one reads the memory as it lies, channels
    last; on a CPU it beats one in one dimension and a sum of shifted products (benchmarks/depthwise.py).

    Args:
        padded: x (B, L + k - 1, D), what windows see on either side of the sequence included.
        weight: w (D, k).
    """
    image = padded.transpose(1, 2).unsqueeze(2)  # (B, D, 1, L + k - 1)
    return F.conv2d(image, weight[:, None, None], groups=len(weight)).squeeze(2).transpose(1, 2)
