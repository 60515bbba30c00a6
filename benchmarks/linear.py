"""A linear map of few rows: x W^T as torch.nn.functional.linear has it, beside W x^T (headway.tensors.linear).

Each call takes another of many weights, as the layers of a model do, so that no weight waits in the cache.
"""

import itertools
from collections.abc import Iterator
from functools import partial

import torch
from rounds import print_medians
from torch import Tensor
from torch.nn import functional as F

SIZES = ((256, 256), (256, 1024), (1024, 256), (256, 8000), (512, 512), (512, 2048), (2048, 512), (512, 10000))
FLOATS = 32 << 20  # 128 MB of weights in all


def plain(x: Tensor, weights: Iterator[Tensor], bias: Tensor) -> Tensor:
    """x W^T."""
    return F.linear(x, next(weights), bias)


def transposed(x: Tensor, weights: Iterator[Tensor], bias: Tensor) -> Tensor:
    """W x^T, transposed."""
    return torch.addmm(bias[:, None], next(weights), x.t()).t()


def main() -> None:
    """Sizes of transformer-small and transformer-base, rows from one hypothesis to a batch of beams."""
    for inputs, outputs in SIZES:
        weights, bias = torch.randn(FLOATS // (inputs * outputs), outputs, inputs), torch.randn(outputs)
        for rows in (1, 2, 4, 8, 12, 16, 64):
            arguments = torch.randn(rows, inputs), itertools.cycle(weights), bias
            functions = {"x W^T": partial(plain, *arguments), "W x^T": partial(transposed, *arguments)}
            print_medians(f"{inputs} to {outputs}, {rows} rows", functions, turns=30)


if __name__ == "__main__":
    with torch.inference_mode():
        main()
