"""Linear maps that are quick for the few rows of a decoding step.

Shapes: R rows, D inputs, O outputs.
"""

import torch
from torch import Tensor, addmm, mm, nn
from torch.nn import functional as F

# With so few rows a CPU is bound by reading the weight: W x^T streams it once, x W^T goes through it in blocks made for
# many rows. It pays where outputs are at least as many as inputs (2.4 times at 256 -> 8000; see benchmarks/linear.py),
# and where the weight is large: its result lies in columns, which the next map has to copy.
MOST_ROWS = 8
LEAST_WEIGHTS = 1 << 20


class Linear(nn.Linear):
    """`torch.nn.Linear` that is quicker, and equal to rounding, for few rows where no gradient is needed."""

    def forward(self, x: Tensor) -> Tensor:
        """x (..., D) to (..., O)."""
        if torch.is_grad_enabled() or torch.compiler.is_compiling() or x.device.type != "cpu":
            return F.linear(x, self.weight, self.bias)
        outputs, inputs = self.weight.shape
        few = 1 < x.numel() // inputs <= MOST_ROWS and outputs >= inputs and outputs * inputs >= LEAST_WEIGHTS
        if not few and x.is_contiguous():
            return F.linear(x, self.weight, self.bias)
        # Rows that do not lie one behind the other are copied first: the product of such takes many times as long.
        rows = x.reshape(-1, inputs)
        product = _transposed(rows, self) if few else F.linear(rows.contiguous(), self.weight, self.bias)
        return product.view(*x.shape[:-1], outputs)


def _transposed(x: Tensor, layer: nn.Linear) -> Tensor:
    """(R, O), laid out by columns, for x (R, D)."""
    if layer.bias is None:
        return mm(layer.weight, x.t()).t()
    return addmm(layer.bias[:, None], layer.weight, x.t()).t()
