"""Precision of arithmetic: float32, or products in bf16 under autocast, and how quick this machine is in either.

Shapes: R rows, L positions, D the size of vectors.
"""

import math
import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from headway.tensors.linear import LEAST_GAIN, Linear

DTYPES = {"float32": torch.float32, "bf16": torch.bfloat16}

POSITIONS = 8
FEW_ROWS, MOST_ROWS = 32, 2048
PRODUCTS = 1 << 27  # multiplications of a pass: a few milliseconds in float32
TRIES, PATIENCE = 3, 0.1  # a pass that takes longer than so many seconds is not repeated
HOPELESS = 0.25


def exact_dtype(device: torch.device) -> torch.dtype:
    """The widest floating point numbers that `device` has."""
    return torch.float32 if device.type == "mps" else torch.float64


def autocast(device: torch.device, precision: str) -> AbstractContextManager[Any]:
    """The context in which a model computes in `precision`."""
    return torch.autocast(device.type, torch.bfloat16) if precision == "bf16" else nullcontext()


def fitting_precision(speed: float) -> str:
    """The precision for a machine on which bf16 has this speed, in times that of float32."""
    return "bf16" if speed >= LEAST_GAIN else "float32"


def compared(speed: float) -> str:
    """A speed of bf16, in times that of float32, in words."""
    if speed == 0:
        return "cannot be computed"
    if speed < 1:
        return f"takes {1 / speed:.1f} times as long as float32"
    return f"is {speed:.1f} times as fast as float32"


def trial_linear(dim: int) -> tuple[Linear, int]:
    """The trial of a model whose time goes into products with matrices of D x D, up to 1,024; and the D it reads."""
    dim = min(dim, 1024)
    return Linear(dim, dim), dim


def _most(layer: nn.Module, rows: int) -> int:
    """As many rows as a CPU multiplies in some milliseconds."""
    weights = sum(parameter.numel() for parameter in layer.parameters())
    return min(rows, MOST_ROWS, max(2 * FEW_ROWS, PRODUCTS // weights))


@torch.enable_grad()
def bf16_speed(layer: nn.Module, dim: int, device: torch.device, rows: int = MOST_ROWS) -> float:
    """Measure how many times as fast as float32 a forward and backward pass in bf16 is; 0 where it is refused.

    A pass of few rows comes first, so that a processor without bf16 is recognised in milliseconds.

    Args:
        layer: maps (R / L, L, D); moved to `device`.
        dim: D.
        device: where.
        rows: R of the product's batches; a slow device is asked for fewer.
    """
    layer = layer.to(device)
    most = _most(layer, rows) if device.type == "cpu" else rows
    speed = 0.0
    for count in (FEW_ROWS, most):
        x = torch.randn(max(1, count // POSITIONS), POSITIONS, dim, device=device, requires_grad=True)
        speed = _compared(layer, x)
        if speed < HOPELESS:
            break
    return speed


def _compared(layer: nn.Module, x: Tensor) -> float:
    """The seconds in float32 for each in bf16, each the least of a few tries that take turns; 0 without a kernel."""
    _pass(layer, x, "float32")
    try:
        first = _pass(layer, x, "bf16")
        if first > PATIENCE:  # making the kernels may have taken that long
            first = _pass(layer, x, "bf16")
    except RuntimeError:
        return 0.0
    best = {"bf16": first if first > PATIENCE else math.inf, "float32": math.inf}
    tried = ["float32"] if first > PATIENCE else list(best)
    for _ in range(TRIES):
        for precision in tried:
            best[precision] = min(best[precision], _pass(layer, x, precision))
    return best["float32"] / best["bf16"]


def _pass(layer: nn.Module, x: Tensor, precision: str) -> float:
    """The seconds of a forward and backward pass."""
    wait_for(x.device)
    began = time.perf_counter()
    with autocast(x.device, precision):
        y = layer(x)
    torch.autograd.grad(y, [x, *layer.parameters()], torch.ones_like(y))
    wait_for(x.device)
    return time.perf_counter() - began


def wait_for(device: torch.device) -> None:
    """Return when the device has done all that it was asked for."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
