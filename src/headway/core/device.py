"""The machine: devices, memory settings and threads, and the facts for the manifest and `headway doctor`."""

import ctypes
import os
import platform
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch

from headway.core.errors import UserError, option
from headway.core.processes import cores
from headway.core.system import peak_resident_memory

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # names and values of glibc's malloc.h


def keep_freed_memory() -> None:
    """Let glibc's malloc reuse freed memory for the next tensor instead of returning it to the system.

    Otherwise each training step faults its pages in again, which costs 15 to 30 % on a CPU. Without glibc this does
    nothing. GPU memory has a separate allocator.
    """
    if library := _glibc():
        library.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
        library.mallopt(M_MMAP_THRESHOLD, 2**30)


def give_back_freed_memory() -> None:
    """Return the freed memory that glibc's malloc has kept to the system. Without glibc this does nothing."""
    if library := _glibc():
        library.malloc_trim(0)


def _glibc() -> ctypes.CDLL | None:
    """The C library of this process, or None if it is not glibc."""
    return ctypes.CDLL(None) if sys.platform == "linux" and platform.libc_ver()[0] == "glibc" else None


def processor() -> str:
    """The name of the processor, as far as it is known."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:  # noqa: PTH123
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()


def peak_memory(device: torch.device | None = None) -> int:
    """The peak memory of this process on a device, in bytes. The default is the CUDA device if it is in use."""
    on_cuda = torch.cuda.is_initialized() if device is None else device.type == "cuda"  # type: ignore[no-untyped-call]
    if on_cuda:
        return torch.cuda.max_memory_allocated(device)
    return peak_resident_memory()


def machine() -> dict[str, Any]:
    """Versions and hardware, for the manifest."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "system": platform.platform(),
        "processor": processor(),
        "instruction_set": instruction_set(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "accelerator": accelerator(),
    }


def accelerator() -> str | None:
    """The accelerator of torch with its model, such as cuda (NVIDIA H100 80GB HBM3), or None if there is none."""
    device = torch.accelerator.current_accelerator(check_available=True)
    if device is None:
        return None
    return f"{device} ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else str(device)


def instruction_set() -> str:
    """The widest vector instructions that torch's kernels use on this processor, such as AVX2 or AVX512."""
    return torch.backends.cpu.get_cpu_capability()


class Threads(NamedTuple):
    """A number of threads, its reason in words, and whether the user has set it."""

    number: int
    reason: str
    fixed: bool = False


LISTEN = 0.2  # seconds for measuring the load
SET_BY = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")

_given: ContextVar[bool] = ContextVar("_given", default=False)


def choose_threads() -> Threads:
    """The number of threads: as many as there are free cores, and at most torch's setting.

    Threads wait for each other, so a thread that shares its core with another process slows down all. A number from
    `threads_set` or an environment variable takes precedence.
    """
    now = torch.get_num_threads()
    given = next((name for name in SET_BY if os.environ.get(name)), None)
    if _given.get() or given is not None:
        return Threads(now, f"set by {given}" if given and not _given.get() else "as asked for", fixed=True)
    usable = cores()
    if min(now, usable) == 1:
        return Threads(1, "torch is set to 1" if now == 1 else "there is 1 core")
    free = _free_cores(usable)
    return Threads(max(1, min(now, free)), f"{free} of {usable} cores are free")


def _free_cores(usable: int) -> int:
    """The number of idle cores of this process, rounded. Niced processes do not count as load."""
    import psutil

    before = psutil.cpu_times(percpu=True)
    time.sleep(LISTEN)
    after = psutil.cpu_times(percpu=True)
    process = psutil.Process()
    allowed = process.cpu_affinity() if hasattr(process, "cpu_affinity") else range(len(after))
    free = 0.0
    for core in allowed:
        # psutil's percentages are not used, as they refer to a full second even if less time has passed.
        spent = {field: getattr(after[core], field) - getattr(before[core], field) for field in after[core]._fields}
        seconds = sum(each for field, each in spent.items() if not field.startswith("guest"))  # within user and nice
        free += (spent["idle"] + spent.get("nice", 0.0)) / seconds if seconds > 0 else 1.0
    return min(usable, round(free))


@contextmanager
def threads_set(number: int) -> Iterator[None]:
    """Within this context torch computes with `number` threads, and `choose_threads` returns this number."""
    before, token = torch.get_num_threads(), _given.set(True)
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        _given.reset(token)


def pick_device(name: str = "auto") -> torch.device:
    """The torch device with this name; `auto` is the accelerator, if any. Raises UserError if the device is missing.

    On CUDA this disables cuDNN's attention kernels in this process. They build a plan for each new pair of lengths, and
    batches of sentences always have new lengths: on an H200, 32 ms for a pass of 29 us.
    """
    if name == "auto":
        device = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
    else:
        try:
            device = torch.device(name)
            torch.zeros(1, device=device).item()  # fails if the device is not usable
        except (RuntimeError, AssertionError) as error:
            what, allowed = "this device cannot be used here", "auto, cpu, or one that torch finds"
            raise UserError(what, where=option("device"), received=name, allowed=allowed) from error
    if device.type == "cuda":
        torch.backends.cuda.enable_cudnn_sdp(False)
    return device
