"""Linear maps and their products: with the library that suits a processor, for the few rows of a decoding step, and
prepared in advance for a weight that no longer changes.

On a CPU torch usually uses MKL for float32. On AMD's processors with AVX-512, MKL has half the speed of oneDNN, or nine
tenths if it is set to use AVX2 (benchmarks/backends.py).

Shapes: R rows, D inputs, O outputs.
"""

from __future__ import annotations

import math
import time
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn import functional as F

from headway.tensors.int8_rounding import LARGEST, RANGE, SMALLEST, InputRange, TokenEmbedding, as_int8, int8_scale

BACKENDS = ("torch", "onednn")


def has_onednn() -> bool:
    """Whether this torch has oneDNN's product of float32 matrices."""
    try:
        _onednn(torch.ones(2, 2), torch.ones(2, 2), None)
    except (RuntimeError, AttributeError):
        return False
    return True


def suited_backend(device: torch.device, processor: str) -> str:
    """The faster library of `BACKENDS` for a machine: oneDNN on AMD's processors with AVX-512, else torch's own.

    This is a fixed rule instead of a measurement, so that all runs of a recipe on a machine compute the same.

    Args:
        device: the device of the model.
        processor: its name, as returned by `headway.core.device.processor`.
    """
    wide = torch.backends.cpu.get_cpu_capability().startswith("AVX512")
    return "onednn" if device.type == "cpu" and wide and "AMD" in processor and has_onednn() else "torch"


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, backend: str) -> Tensor:
    """x W^T + b for x (..., D) and W (O, D), by a backend of `BACKENDS`; by torch if oneDNN has no such product."""
    if backend == "onednn" and _suits_onednn(x, weight):
        product: Tensor = OneDnnLinear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
        return product
    return F.linear(x, weight, bias)


def _suits_onednn(x: Tensor, weight: Tensor) -> bool:
    return (
        x.device.type == weight.device.type == "cpu"
        and x.dtype == weight.dtype == torch.float32
        and x.numel() > 0
        and not torch.compiler.is_compiling()
        and not torch.is_autocast_enabled("cpu")
    )


class OneDnnLinear(torch.autograd.Function):
    """x W^T + b and its gradients, computed by oneDNN."""

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The output (..., O) for x (..., D), W (O, D) and b (O,)."""
        ctx.save_for_backward(x, weight)
        return _onednn(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """The gradients of x, W and b from that of the output (..., O)."""
        x, weight = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.needs_input_grad
        outputs, inputs = weight.shape
        rows = gradient.reshape(-1, outputs).contiguous()
        return (
            _onednn(rows, weight.t(), None).view(x.shape) if of_x else None,
            _gradient_of_weight(x.reshape(-1, inputs), rows) if of_weight else None,
            rows.sum(0) if of_bias else None,
        )


def _gradient_of_weight(x: Tensor, gradient: Tensor) -> Tensor:
    """g^T x (O, D) for x (R, D) and g (R, O): oneDNN is faster if the result has fewer rows than columns."""
    if gradient.shape[1] >= x.shape[1]:
        return _onednn(x.t(), gradient.t(), None).t().contiguous()
    return _onednn(gradient.t(), x.t(), None)


def _onednn(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    product: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return product


# Packing for this number of rows serves any number from 2 on; packing for few makes many slow (benchmarks/linear.py).
PACKED_FOR = 256
TINY = torch.finfo(torch.float32).tiny


Multiply = Callable[[Tensor], Tensor]  # rows (R, D) to (R, O)


class Product(ABC):
    """x W^T + b for contiguous rows x (R, D), float32 in and out, without gradients."""

    @abstractmethod
    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        """Prepare W (O, D) and b (O,)."""

    @abstractmethod
    def __call__(self, rows: Tensor) -> Tensor:
        """The product (R, O) for rows (R, D)."""


class PlainProduct(Product):
    """The product by torch's own function."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight, self.bias = weight.detach(), None if bias is None else bias.detach()

    def __call__(self, rows: Tensor) -> Tensor:
        return F.linear(rows, self.weight, self.bias)


class OneDnnProduct(PlainProduct):
    """The product by oneDNN, with W in its preferred layout."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight, bias)
        self.packed = torch.ops.mkldnn._reorder_linear_weight(self.weight, None)

    def __call__(self, rows: Tensor) -> Tensor:
        if not rows.shape[0]:
            return super().__call__(rows)
        product: Tensor = torch.ops.mkldnn._linear_pointwise(rows, self.packed, self.bias, "none", [], "")
        return product


class PackedProduct(PlainProduct):
    """The product by MKL, with W in its packed layout.

    MKL accepts any number of rows with a packed matrix. torch's operator requires the number, but only checks it.
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
    """The product as (W x^T)^T + b, whose result is laid out by columns.

    With few rows a CPU is limited by reading the weight: W x^T streams it once, x W^T reads it in blocks that are
    optimised for many rows (benchmarks/linear.py).
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight, bias)
        self.column = None if bias is None else bias.detach()[:, None]

    def __call__(self, rows: Tensor) -> Tensor:
        if self.column is None:
            return torch.mm(self.weight, rows.t()).t()
        return torch.addmm(self.column, self.weight, rows.t()).t()


class Bf16Product(Product):
    """Inputs and weights rounded to bf16, with sums in float32."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight = weight.detach().bfloat16()
        self.bias = None if bias is None else bias.detach().bfloat16()

    def __call__(self, rows: Tensor) -> Tensor:
        return F.linear(rows.bfloat16(), self.weight, self.bias).float()


class Int8Product(Product):
    """Weights of 8 bits, scaled by output; inputs of 8 bits, scaled by row, so that rows are independent.

    `steps` is the number of integers on either side of zero for an input; by default that of `exact_steps`.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, steps: int | None = None) -> None:
        self.steps = exact_steps(type(self)) if steps is None else steps
        weight = weight.detach().float()
        self.outputs, self.bias = len(weight), None if bias is None else bias.detach().float()
        self.prepare(weight, weight.abs().amax(1).clamp(min=TINY) / 127)

    @abstractmethod
    def prepare(self, weight: Tensor, scales: Tensor) -> None:
        """Round W (O, D) to integers times the scales (O,), and store it."""

    @abstractmethod
    def multiply(self, rows: Tensor, largest: Tensor) -> Tensor:
        """A new tensor, the product (R, O) without bias of rows (R, D) divided by their `largest` (R, 1) numbers."""

    def __call__(self, rows: Tensor) -> Tensor:
        if not rows.shape[0]:
            return rows.new_empty(0, self.outputs)
        largest = rows.abs().amax(1, keepdim=True).clamp_(min=SMALLEST)
        product = self.multiply(rows, largest)
        if self.bias is None:
            return product.mul_(largest)
        return torch.addcmul(self.bias, product, largest, out=product)


class FbgemmInt8(Int8Product):
    """The product by FBGEMM, for AVX2 and AVX-512."""

    def prepare(self, weight: Tensor, scales: Tensor) -> None:
        engine, zeros = torch.backends.quantized.engine, torch.zeros(len(weight), dtype=torch.int64)
        torch.backends.quantized.engine = "fbgemm"
        try:
            with warnings.catch_warnings():
                # Its argument type is deprecated, but FBGEMM accepts no other.
                warnings.simplefilter("ignore", UserWarning)
                whole = torch.quantize_per_channel(weight, scales.double(), zeros, 0, torch.qint8)
                self.packed = torch.ops.quantized.linear_prepack(whole, None)
        finally:
            torch.backends.quantized.engine = engine

    def multiply(self, rows: Tensor, largest: Tensor) -> Tensor:
        quantized = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32
        product: Tensor = quantized(rows / largest, 1 / self.steps, self.steps + 1, self.packed)
        return product


class OneDnnInt8(Int8Product):
    """The product by oneDNN, which uses the matrix units of newer processors."""

    def prepare(self, weight: Tensor, scales: Tensor) -> None:
        whole = (weight / scales[:, None]).round().to(torch.int8)
        self.scales, self.zeros = scales, torch.zeros(len(weight), dtype=torch.int64)
        self.packed = torch.ops.onednn.qlinear_prepack(whole, [PACKED_FOR, weight.shape[1]])
        self.middle = torch.tensor(self.steps + 1.5)  # the zero point plus half a step, because conversion truncates

    def multiply(self, rows: Tensor, largest: Tensor) -> Tensor:
        whole = torch.addcmul(self.middle, rows, self.steps / largest).to(torch.uint8)
        product: Tensor = torch.ops.onednn.qlinear_pointwise(
            whole, 1 / self.steps, self.steps + 1, self.packed, self.scales, self.zeros, None,
            1.0, 0, torch.float32, "none", [], "",
        )  # fmt: skip
        return product


@cache
def exact_steps(kind: type[Int8Product]) -> int:
    """127 if sums of the largest numbers are exact, 63 if the processor adds pairs of products in 16 bits."""
    ones = torch.ones(16, 64)
    return 127 if bool(((kind(ones, None, 127)(ones) - 64).abs() < 0.1).all()) else 63


class RoundedProduct:
    """A8 W8^T / (a m) + b, which translation engines in browsers use for x W^T + b, with gradients of the latter.

    A8 = rint(a x) with a = 127 / max |x| over the whole input, or with a fixed a; W8 = rint(m W), m = 127 / max |W|, or
    64 / max |W|. Sums of such integers are exact in float32, up to 2^24.

    Args:
        weight: concatenated matrices, each with its own m.
        bias: b.
        parts: the rows of each matrix.
        backend: of the product.
        fixed: the range of inputs that fixes a; None for that of each input.
    """

    def __init__(
        self, weight: Tensor, bias: Tensor | None, parts: list[int], backend: str, fixed: InputRange | None = None
    ) -> None:
        matrices, self.fixed = torch.split(weight, parts), fixed
        most: Sequence[Tensor | int] = [LARGEST] * len(parts) if fixed is None else list(fixed.most)
        scales = [int8_scale(*each) for each in zip(matrices, most, strict=True)]
        self.weight = torch.cat([as_int8(matrix, scale) for matrix, scale in zip(matrices, scales, strict=True)])
        self.scale = torch.cat([scale.expand(rows) for rows, scale in zip(parts, scales, strict=True)])
        self.bias, self.backend = bias, backend

    def __call__(self, x: Tensor) -> Tensor:
        """Map x (..., D) to (..., O)."""
        if self.fixed is None:
            scale = int8_scale(x)
            whole = as_int8(x, scale)
        else:
            whole, scale = self.fixed.rounded(x)
        product = linear(whole, self.weight, None, self.backend) / (scale * self.scale)
        return product if self.bias is None else product + self.bias


# The kinds of products of each precision; a kind is chosen if it is clearly faster than those before it.
KINDS: Mapping[str, tuple[type[Product], ...]] = {
    "float32": (OneDnnProduct, PackedProduct, TransposedProduct, PlainProduct),
    "bf16": (Bf16Product,),
    "int8": (FbgemmInt8, OneDnnInt8),
}
TRIAL_ROWS, TRIES = (4, 16), 3  # one sentence with its beam, and several sentences
FEW_ROWS = 8  # a single row has other kernels
CLEARLY = 1.05
CACHED = 1 << 20  # numbers in the weights of a trial: more than the caches of one core hold
MOST_COPIES = 32


class ProductTrial(NamedTuple):
    """The fastest kinds of product of a precision for weights of one shape, and the sum of their seconds.

    `few` is for the first number of `TRIAL_ROWS`, `many` for the second.
    """

    few: type[Product]
    many: type[Product]
    seconds: float

    def prepared(self, weight: Tensor, bias: Tensor | None) -> Multiply:
        many = self.many(weight, bias)
        return many if self.few is self.many else ProductByRows(self.few(weight, bias), many)


# This runs about twenty times per decoding step, so every call matters: `len` of a tensor takes a microsecond, its
# shape a fifth of one.
class ProductByRows:
    """One product for 2 to `FEW_ROWS` rows, and another for a single row or more rows."""

    def __init__(self, few: Multiply, many: Multiply) -> None:
        self.few, self.many = few, many

    def __call__(self, rows: Tensor) -> Tensor:
        return self.few(rows) if 1 < rows.shape[0] <= FEW_ROWS else self.many(rows)


# The results of trials, by precision, outputs and inputs: the names of the two kinds, and the seconds.
TRIALS: dict[str, tuple[str, str, float]] = {}


@cache
def trial(precision: str, outputs: int, inputs: int) -> ProductTrial | None:
    """Measure the kinds of products of a precision in turns, by their best times; None if no kind is supported.

    A trial whose result is in `TRIALS` is not repeated.

    A decoding step reads each weight after those of all other layers. So a trial uses more weights than a core's caches
    hold, and kinds do not share weights. The time is that of this thread on the processor.
    """
    kinds, key = {kind.__name__: kind for kind in KINDS[precision]}, f"{precision} {outputs} {inputs}"
    first, second, known = TRIALS.get(key, ("", "", 0.0))
    if first in kinds and second in kinds:
        return ProductTrial(kinds[first], kinds[second], known)
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
                    product(rows).contiguous()  # the next map copies a result that is laid out by columns
                seconds[kind][number] = min((time.thread_time() - began) / copies, seconds[kind][number])
    if not products:
        return None
    order = list(products)
    few, many = (
        min(order, key=lambda kind: seconds[kind][number] * CLEARLY ** order.index(kind))
        for number in range(len(batches))
    )
    TRIALS[key] = few.__name__, many.__name__, seconds[few][0] + seconds[many][1]
    return ProductTrial(few, many, TRIALS[key][2])


def _working(kind: type[Product], weights: Tensor, batches: Sequence[Tensor]) -> list[Product]:
    """The products of a kind, run once to build kernels; empty if torch or the processor does not support them."""
    try:
        products = [kind(weight, None) for weight in weights.clone()]
        for rows in batches:
            products[0](rows)
    except (RuntimeError, AttributeError):  # the operator is missing, or does not support this processor
        return []
    return products


# For few rows, W x^T is faster if there are at least as many outputs as inputs (2.4 times at 256 -> 8000; see
# benchmarks/linear.py) and the weight is large: its result is laid out by columns, which the next map must copy.
LEAST_WEIGHTS = 1 << 20

PRECISIONS = (*KINDS, "auto")
LEAST_PREPARED = 1 << 14  # smaller weights stay in the cache, and take little time in any precision
LEAST_GAIN = 1.2  # the minimum speed, relative to float32, at which a precision is worth its rounding


class Linear(nn.Linear):
    """`torch.nn.Linear` that is faster without gradients, and equal up to rounding.

    Args:
        inputs: D.
        outputs: O, or those of several matrices that are concatenated in the weight.
        bias: whether there is one.

    Attributes:
        parts: the outputs of each matrix.
        backend: the library of products, a name in `BACKENDS`.
        rounds: whether it simulates an 8-bit engine (see `round_to_int8`).
        product: the prepared product (see `prepare`); None if there is none, or the weight may have changed.
        low_rank: the learned change of a frozen weight (see `headway.tensors.low_rank`), or None.
        input_range: the fixed range of rounded inputs, or None.
    """

    backend = "torch"
    rounds = False
    product: Multiply | None = None
    low_rank: nn.Module | None
    input_range: InputRange | None

    def __init__(self, inputs: int, outputs: int | Sequence[int], bias: bool = True) -> None:
        parts = [outputs] if isinstance(outputs, int) else list(outputs)
        super().__init__(inputs, sum(parts), bias)
        self.parts, self.low_rank, self.input_range = parts, None, None

    def matrices(self) -> Sequence[Tensor]:
        return torch.split(self.weight, self.parts)

    def forward(self, x: Tensor) -> Tensor:
        """Map x (..., D) to (..., O)."""
        return self._mapped(x) if self.low_rank is None else self._mapped(x) + self.low_rank(x)

    def _mapped(self, x: Tensor) -> Tensor:
        if self.rounds:
            matrices = self.weight, self.bias, self.parts, self.backend
            rounded = self.product or RoundedProduct(*matrices, self.input_range)
            self.product = None if self.training or torch.is_grad_enabled() else rounded
            return rounded(x)
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
        # Rows that are not contiguous are copied first: their product takes many times as long.
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
    """Set the library of products, a name in `BACKENDS`, of all linear maps of a model."""
    for layer in model.modules():
        if isinstance(layer, Linear):
            layer.backend = backend


def round_to_int8(model: nn.Module, *, fixed: bool = False) -> None:
    """Let all linear maps and token embeddings of a model round weights and inputs in computation; weights are kept.

    With `fixed`, each linear map gets an `InputRange`, which an embedding that shares its weight reads, too.
    """
    ranges = dict[int, InputRange]()
    for layer in rounding_layers(model):
        layer.rounds = True
        if fixed and isinstance(layer, Linear):
            layer.input_range = ranges[id(layer.weight)] = InputRange(len(layer.parts))
    for layer in rounding_layers(model) if fixed else ():
        if not isinstance(layer, Linear) and id(layer.weight) in ranges:
            layer.add_module(RANGE, ranges[id(layer.weight)])


def undo_rounding(model: nn.Module) -> None:
    """Undo `round_to_int8`: the model computes with floating point numbers."""
    for layer in rounding_layers(model):
        layer.rounds = False
        if isinstance(layer, Linear):
            layer.product = None
        if getattr(layer, RANGE, None) is not None:
            setattr(layer, RANGE, None)


def rounding_layers(model: nn.Module) -> list[Linear | TokenEmbedding]:
    """The layers that `round_to_int8` changes."""
    return [layer for layer in model.modules() if isinstance(layer, Linear | TokenEmbedding)]


def integer_matrices(model: nn.Module) -> dict[str, tuple[Tensor, Tensor, Tensor | None]]:
    """The integers of rounded weights by name, the factor m of each row, and the factor a of the inputs if it is fixed.

    A weight that an embedding and a linear map share has the factors of the linear map.
    """
    names, found = {id(weight): name for name, weight in model.named_parameters()}, {}
    for layer in sorted(rounding_layers(model), key=lambda layer: isinstance(layer, Linear)):
        fixed: InputRange | None = getattr(layer, RANGE, None)
        parts = layer.parts if isinstance(layer, Linear) else [len(layer.weight)]
        product = RoundedProduct(layer.weight.detach(), None, parts, "torch", fixed)
        found[names[id(layer.weight)]] = product.weight, product.scale, None if fixed is None else fixed.scale
    return found


def prepare(model: nn.Module, precision: str = "float32") -> str:
    """Prepare the float32 linear maps of a model for fast products without gradients, with weights that do not change.

    Each weight is stored a second time in the layout, or the precision, in which the processor multiplies it fastest.
    This is measured in a few milliseconds for each shape. Training, moving the model and loading other weights undo it.

    Args:
        model: the model, on its final device.
        precision: `float32` changes results only by rounding; `bf16` and `int8` round weights and inputs; `auto` is the
            fastest of these, or float32 if none is `LEAST_GAIN` times as fast.

    Returns:
        The precision, as chosen by `auto`.

    Raises:
        ValueError: this machine has no product of that precision.
    """
    linears = [layer for layer in model.modules() if isinstance(layer, Linear)]
    single = [layer for layer in linears if layer.weight.dtype == torch.float32]
    layers = [layer for layer in single if layer.weight.numel() >= LEAST_PREPARED]
    if precision == "auto":
        precision = _fastest(layers)
    for layer in layers:
        layer.product = _product(layer, precision)
    return precision


def _product(layer: Linear, precision: str) -> Multiply | None:
    """The fastest product of a precision; None if that is the one without preparation."""
    if layer.weight.device.type != "cpu":
        if precision == "int8":
            raise ValueError(f"there are no int8 products on {layer.weight.device.type}")
        return None if precision == "float32" else KINDS[precision][0](layer.weight, layer.bias)
    found = trial(precision, *layer.weight.shape)
    if found is None:
        raise ValueError(f"there are no {precision} products on this processor")
    return None if found.few is found.many is PlainProduct else found.prepared(layer.weight, layer.bias)


def _fastest(layers: list[Linear]) -> str:
    """The precision in which the products of these layers on a CPU take the least time, by measurement."""
    shapes = Counter(tuple(layer.weight.shape) for layer in layers if layer.weight.device.type == "cpu")
    seconds: dict[str, float] = {}
    for precision in KINDS:
        trials = [(trial(precision, *shape), count) for shape, count in shapes.items()]
        if all(found is not None for found, _ in trials):
            seconds[precision] = sum(found.seconds * count for found, count in trials if found is not None)
    best = min(seconds, key=lambda precision: seconds[precision])
    return best if seconds["float32"] > LEAST_GAIN * seconds[best] else "float32"
