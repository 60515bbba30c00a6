"""Dropout, in a form that is fast on a CPU.

Torch draws one Bernoulli number per element. Here a 64-bit random word serves four elements, 16 bits each, and the mask
is stored as one byte per element (benchmarks/dropout.py). The probability is exact to 1 / 65536.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def keep_mask(shape: torch.Size, probability: float) -> Tensor:
    """A boolean CPU tensor, with elements True with probability 1 - `probability`, from torch's global generator."""
    count = shape.numel()
    words = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    return (words.view(torch.int16)[:count] >= round(probability * 65536) - 32768).view(shape)


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor, probability: float) -> Tensor:
        keep = keep_mask(x.shape, probability)
        context.save_for_backward(keep)
        context.scale = 1 / (1 - probability)
        dropped: Tensor = torch.ops.aten.native_dropout_backward(x, keep, context.scale)
        return dropped

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (keep,) = context.saved_tensors
        return torch.ops.aten.native_dropout_backward(gradients[0], keep, context.scale), None


def dropout(x: Tensor, probability: float) -> Tensor:
    """Set elements of x to zero with `probability`, and divide others by 1 - `probability` (Srivastava et al. 2014)."""
    if x.device.type == "cpu" and not torch.compiler.is_compiling():
        return _Dropout.apply(x, probability)  # type: ignore[no-any-return, no-untyped-call]
    return F.dropout(x, probability)


class Dropout(nn.Module):
    """`dropout` while training, the identity otherwise."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.probability) if self.training and self.probability else x

    def extra_repr(self) -> str:
        return str(self.probability)
