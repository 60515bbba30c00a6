"""The machine: the device, memory settings, and what the manifest and `headway doctor` say of it."""

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
    """Let glibc's malloc keep what is freed for the next tensor instead of giving it back to the system.

    Otherwise each step of training faults its pages in anew, which costs 15 to 30 % on a CPU. Elsewhere than on glibc
    nothing happens, and GPU memory has its own allocator.
    """
    if library := _glibc():
        library.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
        library.mallopt(M_MMAP_THRESHOLD, 2**30)


def give_back_freed_memory() -> None:
    """Give the system what glibc's malloc has kept of freed memory, for other processes; elsewhere nothing happens."""
    if library := _glibc():
        library.malloc_trim(0)


def _glibc() -> ctypes.CDLL | None:
    """The C library of this process where it is glibc."""
    return ctypes.CDLL(None) if sys.platform == "linux" and platform.libc_ver()[0] == "glibc" else None


def processor() -> str:
    """The name of the processor, as far as the system tells."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:  # noqa: PTH123
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()


def peak_memory(device: torch.device | None = None) -> int:
    """The most bytes that this process had at a time on a device; by default its CUDA device where it has used one."""
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
    """The device that torch has beside the processor, with its model where known: cuda (NVIDIA H100 80GB HBM3)."""
    device = torch.accelerator.current_accelerator(check_available=True)
    if device is None:
        return None
    return f"{device} ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else str(device)


def instruction_set() -> str:
    """The widest instructions that torch's own kernels use on this processor, such as AVX2 or AVX512."""
    return torch.backends.cpu.get_cpu_capability()


class Threads(NamedTuple):
    """A number of threads, its reason in words, and whether the user has set it."""

    number: int
    reason: str
    fixed: bool = False


LISTEN = 0.2  # seconds in which the load is measured
SET_BY = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")

_given: ContextVar[bool] = ContextVar("_given", default=False)


def choose_threads() -> Threads:
    """As many threads as cores are free at this moment, and no more than torch is set to.

    Threads wait for each other, so that one that shares its core with another process holds up all. A number that
    `threads_set` or an environment variable gives is obeyed.
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
    """How many of its cores nothing else uses, in whole ones; niced processes step aside, and do not count."""
    import psutil

    before = psutil.cpu_times(percpu=True)
    time.sleep(LISTEN)
    after = psutil.cpu_times(percpu=True)
    process = psutil.Process()
    allowed = process.cpu_affinity() if hasattr(process, "cpu_affinity") else range(len(after))
    free = 0.0
    for core in allowed:
        # psutil's own percentages are of a whole second where less has passed, so that they are not used here.
        spent = {field: getattr(after[core], field) - getattr(before[core], field) for field in after[core]._fields}
        seconds = sum(each for field, each in spent.items() if not field.startswith("guest"))  # within user and nice
        free += (spent["idle"] + spent.get("nice", 0.0)) / seconds if seconds > 0 else 1.0
    return min(usable, round(free))


@contextmanager
def threads_set(number: int) -> Iterator[None]:
    """Within this context torch computes with `number` threads, and nothing chooses another number."""
    before, token = torch.get_num_threads(), _given.set(True)
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        _given.reset(token)


def pick_device(name: str = "auto") -> torch.device:
    """`cpu`, `cuda`, ... or `auto`: the accelerator where there is one. Raises UserError for one that is not there.

    A CUDA device leaves attention to other kernels than cuDNN's from then on, in this process. That one makes a plan
    for each new pair of lengths, which batches of sentences always have: on an H200, 32 ms for a pass of 29 us.
    """
    if name == "auto":
        device = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
    else:
        try:
            device = torch.device(name)
            torch.zeros(1, device=device).item()  # a device that holds no numbers is none
        except (RuntimeError, AssertionError) as error:
            what, allowed = "this device cannot be used here", "auto, cpu, or one that torch finds"
            raise UserError(what, where=option("device"), received=name, allowed=allowed) from error
    if device.type == "cuda":
        torch.backends.cuda.enable_cudnn_sdp(False)
    return device
