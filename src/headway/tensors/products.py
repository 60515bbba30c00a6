"""Products of rows with a weight that does not change any more, prepared once for speed.

Shapes: R rows, D inputs, O outputs.
"""

from __future__ import annotations

import math
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

# Packing for so many rows serves any number of them from 2 on; packing for few makes many slow (benchmarks/linear.py).
PACKED_FOR = 256
TINY = torch.finfo(torch.float32).tiny


Multiply = Callable[[Tensor], Tensor]  # rows (R, D) to (R, O)


class Product(ABC):
    """x W^T + b for rows x (R, D) that lie one behind the other, float32 in and out, without gradients."""

    @abstractmethod
    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        """Prepare W (O, D) and b (O,)."""

    @abstractmethod
    def __call__(self, rows: Tensor) -> Tensor:
        """(R, O)."""


class PlainProduct(Product):
    """torch's own product."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight, self.bias = weight.detach(), None if bias is None else bias.detach()

    def __call__(self, rows: Tensor) -> Tensor:
        return F.linear(rows, self.weight, self.bias)


class OneDnnProduct(PlainProduct):
    """The same product by oneDNN, with W in the order in which it reads it."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight, bias)
        self.packed = torch.ops.mkldnn._reorder_linear_weight(self.weight, None)

    def __call__(self, rows: Tensor) -> Tensor:
        if not rows.shape[0]:
            return super().__call__(rows)
        product: Tensor = torch.ops.mkldnn._linear_pointwise(rows, self.packed, self.bias, "none", [], "")
        return product


class PackedProduct(PlainProduct):
    """The same product, with W in the order in which MKL reads it.

    MKL takes a packed matrix with any number of rows. torch's operator wants to be told the number, and does nothing
    else with it than to compare it with that of the rows.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight, bias)
        self.packed = torch.ops.mkl._mkl_reorder_linear_weight(self.weight, PACKED_FOR)

    def __call__(self, rows: Tensor) -> Tensor:
        count = rows.shape[0]
        if count <= 1:
            return super().__call__(rows)
        product: Tensor = torch.ops.mkl._mkl_linear(rows, self.packed, self.weight, self.bias, count)
        return product


class TransposedProduct(PlainProduct):
    """The same product as (W x^T)^T + b, laid out by columns.

    With few rows a CPU is bound by reading the weight: W x^T streams it once, x W^T goes through it in blocks made for
    many rows (benchmarks/linear.py).
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight, bias)
        self.column = None if bias is None else bias.detach()[:, None]

    def __call__(self, rows: Tensor) -> Tensor:
        if self.column is None:
            return torch.mm(self.weight, rows.t()).t()
        return torch.addmm(self.column, self.weight, rows.t()).t()


class Bf16Product(Product):
    """Inputs and weights rounded to bf16, sums in float32."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight = weight.detach().bfloat16()
        self.bias = None if bias is None else bias.detach().bfloat16()

    def __call__(self, rows: Tensor) -> Tensor:
        return F.linear(rows.bfloat16(), self.weight, self.bias).float()


class Int8Product(Product):
    """Weights of 8 bits, scaled by output; inputs of 8 bits, scaled by row, so that no row depends on another.

    `steps` are the integers on either side of zero for an input; by default as many as `exact_steps` finds.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, steps: int | None = None) -> None:
        self.steps = exact_steps(type(self)) if steps is None else steps
        weight = weight.detach().float()
        self.bias = weight.new_zeros(len(weight)) if bias is None else bias.detach().float()
        self.prepare(weight, weight.abs().amax(1).clamp(min=TINY) / 127)

    @abstractmethod
    def prepare(self, weight: Tensor, scales: Tensor) -> None:
        """Round W (O, D) to integers times the scales (O,)."""

    @abstractmethod
    def multiply(self, rows: Tensor) -> Tensor:
        """(R, O): the product without the bias of rows (R, D) between -1 and 1."""

    def __call__(self, rows: Tensor) -> Tensor:
        if not rows.shape[0]:
            return rows.new_empty(0, len(self.bias))
        largest = rows.abs().amax(1, keepdim=True).clamp_(min=TINY)
        return torch.addcmul(self.bias, self.multiply(rows / largest), largest)


class FbgemmInt8(Int8Product):
    """The product of FBGEMM, for AVX2 and AVX-512."""

    def prepare(self, weight: Tensor, scales: Tensor) -> None:
        engine, zeros = torch.backends.quantized.engine, torch.zeros(len(weight), dtype=torch.int64)
        torch.backends.quantized.engine = "fbgemm"
        try:
            with warnings.catch_warnings():
                # The type of its argument is deprecated, and there is no other way to FBGEMM.
                warnings.simplefilter("ignore", UserWarning)
                whole = torch.quantize_per_channel(weight, scales.double(), zeros, 0, torch.qint8)
                self.packed = torch.ops.quantized.linear_prepack(whole, None)
        finally:
            torch.backends.quantized.engine = engine

    def multiply(self, rows: Tensor) -> Tensor:
        quantized = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32
        product: Tensor = quantized(rows, 1 / self.steps, self.steps + 1, self.packed)
        return product


class OneDnnInt8(Int8Product):
    """The product of oneDNN, which knows the matrix units of newer processors."""

    def prepare(self, weight: Tensor, scales: Tensor) -> None:
        whole = (weight / scales[:, None]).round().to(torch.int8)
        self.scales, self.zeros = scales, torch.zeros(len(weight), dtype=torch.int64)
        self.packed = torch.ops.onednn.qlinear_prepack(whole, [PACKED_FOR, weight.shape[1]])
        self.middle = torch.tensor(self.steps + 1.5)  # half a step more than the zero, since conversion cuts

    def multiply(self, rows: Tensor) -> Tensor:
        whole = rows.mul(self.steps).add_(self.middle).to(torch.uint8)
        product: Tensor = torch.ops.onednn.qlinear_pointwise(
            whole, 1 / self.steps, self.steps + 1, self.packed, self.scales, self.zeros, None,
            1.0, 0, torch.float32, "none", [], "",
        )  # fmt: skip
        return product


@cache
def exact_steps(kind: type[Int8Product]) -> int:
    """127 where sums of the largest numbers are right, 63 where the processor adds pairs of products in 16 bits."""
    ones = torch.ones(16, 64)
    return 127 if bool(((kind(ones, None, 127).multiply(ones) - 64).abs() < 0.1).all()) else 63


# The kinds of products of each precision; one has to be clearly quicker than those before it.
KINDS: Mapping[str, tuple[type[Product], ...]] = {
    "float32": (OneDnnProduct, PackedProduct, TransposedProduct, PlainProduct),
    "bf16": (Bf16Product,),
    "int8": (FbgemmInt8, OneDnnInt8),
}
TRIAL_ROWS, TRIES = (4, 16), 3  # one sentence and its beam, and a few
FEW_ROWS = 8  # a single row has kernels of its own
CLEARLY = 1.05
CACHED = 1 << 20  # numbers in the weights of a try: more than the caches of one core hold
MOST_COPIES = 32


class ProductTrial(NamedTuple):
    """The quickest kinds of product of a precision for weights of one shape, and their seconds together.

    `few` is that for the first of `TRIAL_ROWS`, `many` that for the second.
    """

    few: type[Product]
    many: type[Product]
    seconds: float

    def prepared(self, weight: Tensor, bias: Tensor | None) -> Multiply:
        """The product with a weight."""
        many = self.many(weight, bias)
        return many if self.few is self.many else ProductByRows(self.few(weight, bias), many)


# What follows runs some twenty times in a step of decoding, so every call in it counts: `len` of a tensor takes a
# microsecond, its shape a fifth of one.
class ProductByRows:
    """One product for few rows, and another for a single row or many."""

    def __init__(self, few: Multiply, many: Multiply) -> None:
        self.few, self.many = few, many

    def __call__(self, rows: Tensor) -> Tensor:
        return self.few(rows) if 1 < rows.shape[0] <= FEW_ROWS else self.many(rows)


@cache
def trial(precision: str, outputs: int, inputs: int) -> ProductTrial | None:
    """Measure the kinds of products of a precision in turns, each by its best try; None where none works here.

    In decoding a weight is read anew at each step, after those of the other layers. So a try goes through more weights
    than a core's caches hold, and no kind shares its weights with another. The time is this thread's own, so that what
    else the machine does hardly counts.
    """
    copies = min(max(CACHED // (outputs * inputs), 1), MOST_COPIES)
    weights = torch.full((copies, outputs, inputs), inputs**-0.5)
    batches = [torch.ones(rows, inputs) for rows in TRIAL_ROWS]
    tried = [(kind, _working(kind, weights, batches)) for kind in KINDS[precision]]
    products = {kind: prepared for kind, prepared in tried if prepared}
    seconds = {kind: [math.inf] * len(batches) for kind in products}
    for _ in range(TRIES):
        for number, rows in enumerate(batches):
            for kind, prepared in products.items():
                began = time.thread_time()
                for product in prepared:
                    product(rows)
                seconds[kind][number] = min((time.thread_time() - began) / copies, seconds[kind][number])
    if not products:
        return None
    order = list(products)
    few, many = (
        min(order, key=lambda kind: seconds[kind][number] * CLEARLY ** order.index(kind))
        for number in range(len(batches))
    )
    return ProductTrial(few, many, seconds[few][0] + seconds[many][1])


def _working(kind: type[Product], weights: Tensor, batches: Sequence[Tensor]) -> list[Product]:
    """Products that have been tried once, which makes their kernels; none where torch or the processor has none."""
    try:
        products = [kind(weight, None) for weight in weights.clone()]
        for rows in batches:
            products[0](rows)
    except (RuntimeError, AttributeError):  # an operator that is not built, or not for this processor
        return []
    return products
