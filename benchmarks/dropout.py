"""Dropout forward and backward: headway's random words beside torch's Bernoulli numbers."""

from collections.abc import Callable
from functools import partial

import torch
from rounds import print_medians
from torch import Tensor
from torch.nn import functional as F

from headway.core.device import keep_freed_memory
from headway.tensors.dropout import dropout


def both_ways(function: Callable[[Tensor, float], Tensor], x: Tensor) -> None:
    """Forward and backward."""
    torch.autograd.grad(function(x, 0.1), x, x)


def main() -> None:
    """Activations of a batch of 4,096 tokens."""
    for dim in (256, 512, 2048):
        x = torch.randn(4096, dim, requires_grad=True)
        functions = {"headway": partial(both_ways, dropout, x), "torch": partial(both_ways, F.dropout, x)}
        print_medians(f"4096 x {dim}", functions)


if __name__ == "__main__":
    keep_freed_memory()
    main()
