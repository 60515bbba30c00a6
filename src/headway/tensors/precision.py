"""Precision of arithmetic: float32, or products in bf16 under autocast, and measurements of their speed."""

import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from statistics import median
from typing import Any, NamedTuple

import torch

from headway.tensors.linear import LEAST_GAIN

DTYPES = {"float32": torch.float32, "bf16": torch.bfloat16}
# How a device with TF32 multiplies float32: torch's setting for matrices, and whether cuDNN may round to TF32.
# `cudnn` is torch's default, and the value of runs from before this was an option.
FLOAT32 = {"exact": ("highest", False), "cudnn": ("highest", True), "tf32": ("high", True)}

PAIRS, FEWEST_PAIRS = 9, 3
MOST_SECONDS = 1.0  # of all pairs, unless the fewest pairs take longer
HOPELESS = 0.25


def has_tf32(device: torch.device) -> bool:
    """Whether a device can round factors to TF32, with 10 bits of 23: NVIDIA GPUs from compute capability 8."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)


def use_float32(kind: str, device: torch.device) -> None:
    """Set how a device with TF32 multiplies float32 in this process, by a `kind` of `FLOAT32`.

    These are torch's older settings. Its compiler and `cudnn.flags` read them, and fail if only the newer ones,
    `fp32_precision`, are set.
    """
    if has_tf32(device):
        with warnings.catch_warnings(action="ignore"):  # torch 2.9 recommends the newer ones
            products, torch.backends.cudnn.allow_tf32 = FLOAT32[kind]
            torch.set_float32_matmul_precision(products)


def exact_dtype(device: torch.device) -> torch.dtype:
    """The widest floating point type of `device`."""
    return torch.float32 if device.type == "mps" else torch.float64


def autocast(device: torch.device, precision: str) -> AbstractContextManager[Any]:
    return torch.autocast(device.type, torch.bfloat16) if precision == "bf16" else nullcontext()


def without_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """A context in which types are kept. Recipes are checked on `meta`, which has no autocast."""
    return nullcontext() if device.type == "meta" else torch.autocast(device.type, enabled=False)


class Speed(NamedTuple):
    """The speed of bf16 relative to float32: the median over pairs of steps, and the lower quartile (`steady`).

    Both are 0 if bf16 is not supported.
    """

    median: float
    steady: float


REFUSED = Speed(0.0, 0.0)


def fitting_precision(speed: Speed) -> str:
    """The precision for a machine: bf16 if at least three of four pairs of steps are fast enough, else float32."""
    return "bf16" if speed.steady >= LEAST_GAIN else "float32"


def compared(speed: float) -> str:
    """A relative speed of bf16 in words."""
    if speed == 0:
        return "cannot be computed"
    if speed < 1:
        return f"takes {1 / speed:.1f} times as long as float32"
    return f"is {speed:.1f} times as fast as float32"


@torch.enable_grad()
def bf16_speed(step: Callable[[int, str], object], device: torch.device, rows: int, most: int) -> Speed:
    """Measure the speed of a training step in bf16, relative to float32.

    A few rows are tried first, to recognise a processor without bf16 early. On a CPU the time is the processor time of
    this thread, so other processes hardly affect it; this should be the only thread.

    Args:
        step: runs a step with a number of rows in a precision of `DTYPES`.
        device: the device of the step.
        rows: of a training step. If these are more than `most`, the time is extrapolated linearly from steps of `most`
            rows and of a quarter of them, which separates work per row from constant work.
        most: the number of rows that there is time for, 2 or more.
    """
    few = max(1, min(rows, most) // 4)

    def seconds(precision: str) -> float:
        if rows <= most:
            return _seconds(step, rows, precision, device)
        least, more = (_seconds(step, count, precision, device) for count in (few, most))
        return least + max(more - least, 0.0) * (rows - few) / (most - few)

    def ratio() -> float:
        return seconds("float32") / max(seconds("bf16"), 1e-9)

    try:
        for _ in range(2):  # the first run builds the kernels
            first = _seconds(step, few, "float32", device) / max(_seconds(step, few, "bf16", device), 1e-9)
        if first < HOPELESS:
            return Speed(first, first)
        took = _clock(device)
        ratio()
        took = _clock(device) - took
        pairs = max(FEWEST_PAIRS, min(PAIRS, int(MOST_SECONDS / max(took, 1e-9))))
        return speed_of([ratio() for _ in range(pairs)])
    except RuntimeError:  # no kernel for bf16
        return REFUSED


def speed_of(ratios: Sequence[float]) -> Speed:
    return Speed(median(ratios), sorted(ratios)[len(ratios) // 4])


def _seconds(step: Callable[[int, str], object], rows: int, precision: str, device: torch.device) -> float:
    wait_for(device)
    began = _clock(device)
    step(rows, precision)
    wait_for(device)
    return _clock(device) - began


def _clock(device: torch.device) -> float:
    return time.thread_time() if device.type == "cpu" else time.perf_counter()


def wait_for(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
