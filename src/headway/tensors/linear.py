"""A linear map that is quick for the few rows of a decoding step."""

from torch import Tensor, addmm, mm, nn
from torch.nn import functional as F

# With so few rows a CPU is bound by reading the weight: W x^T streams it once, x W^T goes through it in blocks made for
# many rows. It pays where outputs are at least as many as inputs (2.4 times at 256 -> 8000; see benchmarks/linear.py).
MOST_ROWS = 8


def few_rows_linear(x: Tensor, layer: nn.Linear) -> Tensor:
    """`layer(x)` for x (B, D), to rounding."""
    rows, (outputs, inputs) = x.shape[0], layer.weight.shape
    if x.device.type != "cpu" or not 1 < rows <= MOST_ROWS or outputs < inputs:
        return F.linear(x, layer.weight, layer.bias)
    if layer.bias is None:
        return mm(layer.weight, x.t()).t()
    return addmm(layer.bias[:, None], layer.weight, x.t()).t()
