"""Depthwise convolution: the form that headway uses beside the other forms of the same sums, forward and backward.

Shapes: B batch, L positions, D channels, H heads, k positions of the window.
"""

from functools import partial

import torch
from rounds import print_medians
from torch import Tensor
from torch.nn import functional as F

from headway.core.device import keep_freed_memory
from headway.tensors.depthwise import depthwise

DIM, HEADS, WIDTH = 256, 4, 7


def shifted_sum(padded: Tensor, weight: Tensor) -> Tensor:
    """The sum over the window of the shifted sequence times one weight a channel."""
    length = padded.shape[1] - WIDTH + 1
    total = padded[:, :length] * weight[:, 0]
    for tap in range(1, WIDTH):
        total = total + padded[:, tap : tap + length] * weight[:, tap]
    return total


def convolution_1d(padded: Tensor, weight: Tensor) -> Tensor:
    """A convolution that wants channels before positions."""
    return F.conv1d(padded.transpose(1, 2), weight[:, None], groups=DIM).transpose(1, 2)


def bands(padded: Tensor, weight: Tensor) -> Tensor:
    """A product with a band matrix for each head, where the channels of a head have the same weights."""
    length, shares = padded.shape[1] - WIDTH + 1, weight[:: DIM // HEADS]
    rows = F.pad(shares[:, None].expand(-1, length, -1), (0, length)).flatten(1)
    band = rows[:, : length * (length + WIDTH - 1)].view(HEADS, length, -1)
    columns = padded.unflatten(2, (HEADS, -1)).permute(2, 1, 0, 3)  # (H, L + k - 1, B, D / H)
    return torch.bmm(band, columns.flatten(2)).unflatten(2, columns.shape[2:]).permute(2, 1, 0, 3).flatten(2)


def run(function, inputs: list[Tensor]) -> None:
    """Forward and backward."""
    values = function(*inputs)
    torch.autograd.grad(values, inputs, torch.ones_like(values))


def main() -> None:
    """Batches of 2,048 tokens, with weights that the channels of a head share."""
    forms = {"shifted sum": shifted_sum, "convolution in one dimension": convolution_1d, "bands of heads": bands}
    for length in (16, 64, 512):
        padded = torch.randn(2048 // length, length + WIDTH - 1, DIM, requires_grad=True)
        weight = torch.randn(HEADS, WIDTH).softmax(-1).repeat_interleave(DIM // HEADS, 0).requires_grad_()
        functions = {"headway": partial(run, depthwise, [padded, weight])}
        for name, form in forms.items():
            assert torch.allclose(form(padded, weight), depthwise(padded, weight), atol=1e-5), name
            functions[name] = partial(run, form, [padded, weight])
        print_medians(f"L {length}", functions, turns=9)


if __name__ == "__main__":
    keep_freed_memory()
    main()
