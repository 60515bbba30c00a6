"""Precision of arithmetic: float32, or products in bf16 under autocast, and how quick this machine is in either."""

import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from statistics import median
from typing import Any, NamedTuple

import torch

from headway.tensors.linear import LEAST_GAIN

DTYPES = {"float32": torch.float32, "bf16": torch.bfloat16}
# How a device with TF32 makes products of float32: torch's name for matrices, and whether cuDNN may round to TF32.
# Torch itself begins with `cudnn`, and so did all runs from before there was a choice.
FLOAT32 = {"exact": ("highest", False), "cudnn": ("highest", True), "tf32": ("high", True)}

PAIRS, FEWEST_PAIRS = 9, 3
MOST_SECONDS = 1.0  # of all pairs, as far as the fewest allow
HOPELESS = 0.25


def has_tf32(device: torch.device) -> bool:
    """Whether a device can round what it multiplies to TF32, with 10 bits of 23: NVIDIA's from compute capability 8."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)


def use_float32(kind: str, device: torch.device) -> None:
    """Let a device with TF32 multiply float32 as `kind` of `FLOAT32` says, from then on, in this process.

    These are torch's older settings. Its compiler and `cudnn.flags` read them, and raise where only the newer ones,
    `fp32_precision`, were set.
    """
    if has_tf32(device):
        with warnings.catch_warnings(action="ignore"):  # torch 2.9 asks for the newer ones
            products, torch.backends.cudnn.allow_tf32 = FLOAT32[kind]
            torch.set_float32_matmul_precision(products)


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
    """The speed of bf16, in times that of float32: the median of pairs of steps, and what three of four reach.

    Both are 0 where bf16 is refused.
    """

    median: float
    steady: float


REFUSED = Speed(0.0, 0.0)


def fitting_precision(speed: Speed) -> str:
    """The precision for a machine: bf16 where three of four pairs of steps show that it pays, else float32."""
    return "bf16" if speed.steady >= LEAST_GAIN else "float32"


def compared(speed: float) -> str:
    """A speed of bf16, in times that of float32, in words."""
    if speed == 0:
        return "cannot be computed"
    if speed < 1:
        return f"takes {1 / speed:.1f} times as long as float32"
    return f"is {speed:.1f} times as fast as float32"


@torch.enable_grad()
def bf16_speed(step: Callable[[int, str], object], device: torch.device, rows: int, most: int) -> Speed:
    """Measure how many times as fast as in float32 a step of training in bf16 is.

    Few rows come first, so that a processor without bf16 is recognised early. On a CPU the time is that of this thread
    on the processor, so that what else the machine does hardly counts; it should be the only one.

    Args:
        step: makes a step with so many rows in a precision of `DTYPES`.
        device: where it does that.
        rows: of a step of the training. Where that is more than `most`, steps of `most` rows and of a quarter of them
            say what one takes, on the straight line through both: work that each row brings, and work that none does.
        most: how many rows there is time for, 2 or more.
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
        for _ in range(2):  # the first makes the kernels
            first = _seconds(step, few, "float32", device) / max(_seconds(step, few, "bf16", device), 1e-9)
        if first < HOPELESS:
            return Speed(first, first)
        took = _clock(device)
        ratio()
        took = _clock(device) - took
        pairs = max(FEWEST_PAIRS, min(PAIRS, int(MOST_SECONDS / max(took, 1e-9))))
        return speed_of([ratio() for _ in range(pairs)])
    except RuntimeError:  # there is no kernel
        return REFUSED


def speed_of(ratios: Sequence[float]) -> Speed:
    """The speed from that of each pair of steps."""
    return Speed(median(ratios), sorted(ratios)[len(ratios) // 4])


def _seconds(step: Callable[[int, str], object], rows: int, precision: str, device: torch.device) -> float:
    """The seconds of a step."""
    wait_for(device)
    began = _clock(device)
    step(rows, precision)
    wait_for(device)
    return _clock(device) - began


def _clock(device: torch.device) -> float:
    return time.thread_time() if device.type == "cpu" else time.perf_counter()


def wait_for(device: torch.device) -> None:
    """Return when the device has done all that it was asked for."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
