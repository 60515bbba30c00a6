"""Precision of arithmetic: float32, or products in bf16 under autocast, and how quick this machine is in either.

Shapes: R rows, L positions, D the size of vectors.
"""

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from headway.tensors.linear import LEAST_GAIN, Linear

DTYPES = {"float32": torch.float32, "bf16": torch.bfloat16}

POSITIONS = 8
FEW_ROWS, MOST_ROWS = 32, 2048
PRODUCTS = 1 << 27  # multiplications of a pass: a few milliseconds in float32
PAIRS = 9
HOPELESS = 0.25


def exact_dtype(device: torch.device) -> torch.dtype:
    """The widest floating point numbers that `device` has."""
    return torch.float32 if device.type == "mps" else torch.float64


def autocast(device: torch.device, precision: str) -> AbstractContextManager[Any]:
    """The context in which a model computes in `precision`."""
    return torch.autocast(device.type, torch.bfloat16) if precision == "bf16" else nullcontext()


def without_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """The context in which numbers stay in their types; tensors on `meta`, where recipes are checked, know no other."""
    return nullcontext() if device.type == "meta" else torch.autocast(device.type, enabled=False)


class Speed(NamedTuple):
    """The speed of bf16, in times that of float32: the median of pairs of passes, and what three of four pairs reach.

    Both are 0 where bf16 is refused.
    """

    median: float
    steady: float


REFUSED = Speed(0.0, 0.0)


def fitting_precision(speed: Speed) -> str:
    """The precision for a machine: bf16 where three of four pairs of passes show that it pays, else float32."""
    return "bf16" if speed.steady >= LEAST_GAIN else "float32"


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


@torch.enable_grad()
def bf16_speed(layer: nn.Module, dim: int, device: torch.device, rows: int = MOST_ROWS) -> Speed:
    """Measure how many times as fast as float32 a forward and backward pass in bf16 is.

    Passes of few rows come first, so that a processor without bf16 is recognised in milliseconds. On a CPU the time is
    that of this thread on the processor, so that what else the machine does hardly counts; it should be the only one.

    Args:
        layer: maps (R / L, L, D); moved to `device`.
        dim: D.
        device: where.
        rows: R of the product's batches; a slow device is asked for fewer.
    """
    layer = layer.to(device)
    weights = sum(parameter.numel() for parameter in layer.parameters())
    # As many rows as a CPU multiplies in some milliseconds.
    most = min(rows, MOST_ROWS, max(2 * FEW_ROWS, PRODUCTS // weights)) if device.type == "cpu" else rows
    speed = REFUSED
    for count, pairs in ((FEW_ROWS, 1), (most, PAIRS)):
        x = torch.randn(max(1, count // POSITIONS), POSITIONS, dim, device=device, requires_grad=True)
        try:
            speed = speed_of([_pair(layer, x) for _ in range(1 + pairs)][1:])  # the first makes the kernels
        except RuntimeError:  # there is no kernel
            return REFUSED
        if speed.median < HOPELESS:
            break
    return speed


def speed_of(ratios: Sequence[float]) -> Speed:
    """The speed from that of each pair of passes."""
    return Speed(median(ratios), sorted(ratios)[len(ratios) // 4])


def _pair(layer: nn.Module, x: Tensor) -> float:
    """The seconds in float32 for each in bf16, of passes one after the other."""
    return _pass(layer, x, "float32") / max(_pass(layer, x, "bf16"), 1e-9)


def _pass(layer: nn.Module, x: Tensor, precision: str) -> float:
    """The seconds of a forward and backward pass."""
    clock = time.thread_time if x.device.type == "cpu" else time.perf_counter
    wait_for(x.device)
    began = clock()
    with autocast(x.device, precision):
        y = layer(x)
    torch.autograd.grad(y, [x, *layer.parameters()], torch.ones_like(y))
    wait_for(x.device)
    return clock() - began


def wait_for(device: torch.device) -> None:
    """Return when the device has done all that it was asked for."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
