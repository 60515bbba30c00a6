"""Products of rows with a weight that does not change any more, prepared once for speed.

Shapes: R rows, D inputs, O outputs.
"""

from __future__ import annotations

import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

# Packing for so many rows serves any number of them from 2 on; packing for few makes many slow (benchmarks/linear.py).
PACKED_FOR = 256
TINY = torch.finfo(torch.float32).tiny


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


class PackedProduct(PlainProduct):
    """The same product, with W in the order in which MKL reads it.

    MKL takes a packed matrix with any number of rows. torch's operator wants to be told the number, and does nothing
    else with it than to compare it with that of the rows.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight, bias)
        self.packed = torch.ops.mkl._mkl_reorder_linear_weight(self.weight, PACKED_FOR)

    def __call__(self, rows: Tensor) -> Tensor:
        count = len(rows)
        if count <= 1:
            return super().__call__(rows)
        product: Tensor = torch.ops.mkl._mkl_linear(rows, self.packed, self.weight, self.bias, count)
        return product


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
        if not len(rows):
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
    "float32": (PackedProduct, PlainProduct),
    "bf16": (Bf16Product,),
    "int8": (FbgemmInt8, OneDnnInt8),
}
TRIAL_ROWS, TRIES, SMALL = 16, 4, 32
CLEARLY = 1.1
CACHED = 1 << 21  # numbers that are touched before each try, so that no weight waits in the processor's own caches


class ProductTrial(NamedTuple):
    """The quickest kind of product of a precision for weights of one shape, and its seconds for `TRIAL_ROWS` rows."""

    kind: type[Product]
    seconds: float


@cache
def trial(precision: str, outputs: int, inputs: int) -> ProductTrial | None:
    """Measure the kinds of products of a precision in turns, each by its best try; None where none works here.

    In decoding a weight is read anew at each step, while the code that reads it stays in the cache: between two tries
    other memory is touched, and a small product is computed. The time is this thread's own, so that what else the
    machine does hardly counts.
    """
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(outputs, inputs, generator=generator) * inputs**-0.5
    rows, between = torch.randn(TRIAL_ROWS, inputs, generator=generator), torch.zeros(CACHED)
    products = [(_working(kind, weight, rows), kind) for kind in KINDS[precision]]
    small = {kind: kind(weight[:SMALL, :SMALL].contiguous(), None) for product, kind in products if product is not None}
    seconds: dict[type[Product], float] = {}
    for _ in range(TRIES):
        for product, kind in products:
            if product is not None:
                between.add_(1)
                small[kind](rows[:, :SMALL].contiguous())
                began = time.thread_time()
                product(rows)
                spent = time.thread_time() - began
                seconds[kind] = min(spent, seconds.get(kind, spent))
    order = list(seconds)
    best = min(order, key=lambda kind: seconds[kind] * CLEARLY ** order.index(kind), default=None)
    return None if best is None else ProductTrial(best, seconds[best])


def _working(kind: type[Product], weight: Tensor, rows: Tensor) -> Product | None:
    """A product that has been tried once, which makes its kernels; None where torch or the processor has none."""
    try:
        product = kind(weight, None)
        product(rows)
    except (RuntimeError, AttributeError):  # an operator that is not built, or not for this processor
        return None
    return product
