"""Dropout, and the residual sum with dropout, in the form that is quick on a CPU.

Torch draws one Bernoulli number an element; here a 64-bit random word serves four elements, 16 bits each, and the mask
is kept as one byte an element (benchmarks/dropout.py). The probability is exact to 1 / 65536.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def keep_mask(shape: torch.Size, probability: float) -> Tensor:
    """A boolean CPU tensor of `shape`, each element True with 1 - `probability`, from torch's global generator."""
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
    """x, each element zero with `probability`, else divided by 1 - `probability` (Srivastava et al. 2014)."""
    if x.device.type == "cpu" and not torch.compiler.is_compiling():
        return _Dropout.apply(x, probability)  # type: ignore[no-any-return, no-untyped-call]
    return F.dropout(x, probability)


class Dropout(nn.Module):
    """`dropout` while training, the identity otherwise."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, x: Tensor) -> Tensor:
        """x, some of it dropped."""
        return dropout(x, self.probability) if self.training and self.probability else x

    def extra_repr(self) -> str:
        """The probability, for print(model)."""
        return str(self.probability)
