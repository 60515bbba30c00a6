"""Linear maps that are quick where no gradient is needed: for the few rows of a decoding step, and once prepared.

Shapes: R rows, D inputs, O outputs.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headway.tensors.backends import linear
from headway.tensors.products import FEW_ROWS, KINDS, Multiply, PlainProduct, TransposedProduct, trial

# Of few rows, W x^T pays where outputs are at least as many as inputs (2.4 times at 256 -> 8000; see
# benchmarks/linear.py), and where the weight is large: its result lies in columns, which the next map has to copy.
LEAST_WEIGHTS = 1 << 20

PRECISIONS = (*KINDS, "auto")
LEAST_PREPARED = 1 << 14  # smaller weights stay in the cache, and are what little they are in any precision
LEAST_GAIN = 1.2  # a precision is worth its rounding from this speed on, in times that of float32


class Linear(nn.Linear):
    """`torch.nn.Linear` that is quicker, and equal to rounding, where no gradient is needed.

    Attributes:
        backend: the library that multiplies, a name in `headway.tensors.backends.BACKENDS`.
        product: what `prepare` has made of the weight; None where it has not, and once the weight may change.
        low_rank: what is learned in the place of the weight (see `headway.tensors.low_rank`), if that is so.
    """

    backend = "torch"
    product: Multiply | None = None
    low_rank: nn.Module | None

    def __init__(self, inputs: int, outputs: int, bias: bool = True) -> None:
        super().__init__(inputs, outputs, bias)
        self.low_rank = None

    def forward(self, x: Tensor) -> Tensor:
        """x (..., D) to (..., O)."""
        return self._mapped(x) if self.low_rank is None else self._mapped(x) + self.low_rank(x)

    def _mapped(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled() or torch.compiler.is_compiling():
            return linear(x, self.weight, self.bias, self.backend)
        outputs, inputs = self.out_features, self.in_features
        if self.product is not None:
            return self.product(x.reshape(-1, inputs).contiguous()).view(*x.shape[:-1], outputs)
        if x.device.type != "cpu":
            return F.linear(x, self.weight, self.bias)
        few = 1 < x.numel() // inputs <= FEW_ROWS and outputs >= inputs and outputs * inputs >= LEAST_WEIGHTS
        if not few and x.is_contiguous():
            return linear(x, self.weight, self.bias, self.backend)
        # Rows that do not lie one behind the other are copied first: the product of such takes many times as long.
        rows = x.reshape(-1, inputs)
        if few:
            product = TransposedProduct(self.weight, self.bias)(rows)
        else:
            product = linear(rows.contiguous(), self.weight, self.bias, self.backend)
        return product.view(*x.shape[:-1], outputs)

    def train(self, mode: bool = True) -> Linear:
        if mode:
            self.product = None
        return super().train(mode)

    def _apply(self, fn: Any, recurse: bool = True) -> Linear:
        self.product = None
        return super()._apply(fn, recurse)  # type: ignore[no-any-return, no-untyped-call]

    def _load_from_state_dict(self, *given: Any) -> None:
        self.product = None
        super()._load_from_state_dict(*given)


def use_backend(model: nn.Module, backend: str) -> None:
    """Let all linear maps of a model multiply by a library of `headway.tensors.backends.BACKENDS`."""
    for layer in model.modules():
        if isinstance(layer, Linear):
            layer.backend = backend


def prepare(model: nn.Module, precision: str = "float32") -> str:
    """Make the linear maps of a model quick where no gradient is needed, in float32 weights that will not change.

    Each weight is kept a second time in the order, or the precision, in which the processor multiplies it fastest.
    A measurement of a few milliseconds for each shape says which this is. Training, moving the model and loading other
    weights undo it.

    Args:
        model: the model, where it will be used.
        precision: `float32` changes no result but by rounding; `bf16` and `int8` round weights and inputs; `auto` is
            the fastest of these, or float32 where none is `LEAST_GAIN` times as fast.

    Returns:
        The precision, which `auto` has chosen.

    Raises:
        ValueError: this machine has no product of that precision.
    """
    layers = [layer for layer in model.modules() if isinstance(layer, Linear) and _large(layer)]
    if precision == "auto":
        precision = _fastest(layers)
    for layer in layers:
        layer.product = _product(layer, precision)
    return precision


def _large(layer: Linear) -> bool:
    return layer.weight.dtype == torch.float32 and layer.weight.numel() >= LEAST_PREPARED


def _product(layer: Linear, precision: str) -> Multiply | None:
    """The quickest product of a precision; None for that which the layer has without it."""
    if layer.weight.device.type != "cpu":
        if precision == "int8":
            raise ValueError(f"there are no int8 products on {layer.weight.device.type}")
        return None if precision == "float32" else KINDS[precision][0](layer.weight, layer.bias)
    found = trial(precision, *layer.weight.shape)
    if found is None:
        raise ValueError(f"there are no {precision} products on this processor")
    return None if found.few is found.many is PlainProduct else found.prepared(layer.weight, layer.bias)


def _fastest(layers: list[Linear]) -> str:
    """The precision in which the products of these layers take the least time, as measured; on a CPU."""
    shapes = Counter(tuple(layer.weight.shape) for layer in layers if layer.weight.device.type == "cpu")
    seconds: dict[str, float] = {}
    for precision in KINDS:
        trials = [(trial(precision, *shape), count) for shape, count in shapes.items()]
        if all(found is not None for found, _ in trials):
            seconds[precision] = sum(found.seconds * count for found, count in trials if found is not None)
    best = min(seconds, key=lambda precision: seconds[precision])
    return best if seconds["float32"] > LEAST_GAIN * seconds[best] else "float32"
