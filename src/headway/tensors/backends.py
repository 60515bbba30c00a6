"""The library that multiplies matrices in float32 on a CPU: the one that torch was built with, or oneDNN.

torch leaves float32 to MKL as a rule, which reaches half of what oneDNN does on AMD's processors with AVX-512,
and nine tenths where these are told to use AVX2 (benchmarks/backends.py).

Shapes: R rows, D inputs, O outputs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn import functional as F

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

    It is a rule, and no measurement, so that a recipe computes the same in every run on a machine, whatever else that
    does.

    Args:
        device: where a model computes.
        processor: its name, as `headway.device.processor` has it.
    """
    wide = torch.backends.cpu.get_cpu_capability().startswith("AVX512")
    return "onednn" if device.type == "cpu" and wide and "AMD" in processor and has_onednn() else "torch"


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, backend: str) -> Tensor:
    """x W^T + b for x (..., D) and W (O, D), by a backend of `BACKENDS`; by torch where oneDNN has no such product."""
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
    """x W^T + b, and its gradients, by oneDNN."""

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """x (..., D), W (O, D) and b (O,) to (..., O)."""
        ctx.save_for_backward(x, weight)
        return _onednn(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """The gradients of x, W and b for that of the result (..., O)."""
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
    """g^T x (O, D) for x (R, D) and g (R, O): oneDNN is quicker with fewer rows in the result than columns."""
    if gradient.shape[1] >= x.shape[1]:
        return _onednn(x.t(), gradient.t(), None).t().contiguous()
    return _onednn(gradient.t(), x.t(), None)


def _onednn(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    product: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return product
