"""The machine: the device, memory settings, and what the manifest and `headway doctor` say of it."""

import ctypes
import os
import platform
import sys
from typing import Any

import torch

from headway.errors import UserError, option

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # names and values of glibc's malloc.h


def keep_freed_memory() -> None:
    """Let glibc's malloc keep what is freed for the next tensor instead of giving it back to the system.

    Otherwise each step of training faults its pages in anew, which costs 15 to 30 % on a CPU. Elsewhere than on glibc
    nothing happens, and GPU memory has its own allocator.
    """
    if sys.platform != "linux" or platform.libc_ver()[0] != "glibc":
        return
    library = ctypes.CDLL(None)
    library.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
    library.mallopt(M_MMAP_THRESHOLD, 2**30)


def processor() -> str:
    """The name of the processor, as far as the system tells."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:  # noqa: PTH123
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()


def machine() -> dict[str, Any]:
    """Versions and hardware, for the manifest."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "system": platform.platform(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "accelerator": None if accelerator is None else str(accelerator),
    }


def multiplies_bf16() -> bool:
    """Whether this machine's processor has instructions that torch's CPU kernels for bfloat16 use."""
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def pick_device(name: str = "auto") -> torch.device:
    """`cpu`, `cuda`, ... or `auto`: the accelerator where there is one. Raises UserError for one that is not there."""
    if name == "auto":
        return torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UserError(
            "this device cannot be used here",
            where=option("device"),
            received=name,
            allowed="auto, cpu, or one that torch finds",
        ) from error
    return device
