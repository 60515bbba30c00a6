"""The machine: the device, memory settings, and what the manifest and `headway doctor` say of it."""

import ctypes
import math
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psutil
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
        "instruction_set": instruction_set(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "accelerator": None if accelerator is None else str(accelerator),
    }


def instruction_set() -> str:
    """The widest instructions that torch's own kernels use on this processor, such as AVX2 or AVX512."""
    return torch.backends.cpu.get_cpu_capability()


def usable_cores() -> int:
    """The cores that this process may use: its affinity, and the quota of its control group where there is one."""
    process = psutil.Process()
    allowed = len(process.cpu_affinity()) if hasattr(process, "cpu_affinity") else os.cpu_count() or 1
    return max(1, math.ceil(min(allowed, _quota(Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")))))


def _quota(mount: Path, membership: Path) -> float:
    """The cores' worth of time that the control group of this process, or one above it, has; infinite without a limit.

    The files are those of the kernel's cgroup-v2.rst and sched-bwc.rst.
    """
    try:
        groups = [line.split(":", 2)[1:] for line in membership.read_text(encoding="utf-8").splitlines()]
    except OSError:
        return math.inf
    quota = math.inf
    for controllers, group in groups:
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = mount / controllers if controllers else mount
        below = root / group.lstrip("/")
        for folder in (below, *below.parents):
            if folder.is_relative_to(root):
                quota = min(quota, _limit(folder))
    return quota


def _limit(folder: Path) -> float:
    """The limit in the files of one control group, of version 2 or 1."""
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text(encoding="utf-8").split()
        else:
            quota, period = (
                (folder / f"cpu.cfs_{name}_us").read_text(encoding="utf-8") for name in ("quota", "period")
            )
        return math.inf if quota == "max" or int(quota) < 0 else int(quota) / int(period)
    except (OSError, ValueError):
        return math.inf


class Threads(NamedTuple):
    """A number of threads, its reason in words, and whether the user has set it."""

    number: int
    reason: str
    fixed: bool = False


LISTEN = 0.2  # seconds in which the load is measured
SET_BY = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


def choose_threads() -> Threads:
    """As many threads as cores are free at this moment, and no more than torch is set to.

    Threads wait for each other, so that one that shares its core with another process holds up all. An environment
    variable that sets the number is obeyed.
    """
    now = torch.get_num_threads()
    given = next((name for name in SET_BY if os.environ.get(name)), None)
    if given is not None:
        return Threads(now, f"set by {given}", fixed=True)
    cores = usable_cores()
    if min(now, cores) == 1:
        return Threads(1, "torch is set to 1" if now == 1 else "there is 1 core")
    free = _free_cores(cores)
    return Threads(max(1, min(now, free)), f"{free} of {cores} cores are free")


def _free_cores(cores: int) -> int:
    """How many of its cores nothing else uses, in whole ones; niced processes step aside, and do not count."""
    shares = psutil.cpu_times_percent(LISTEN, percpu=True)
    process = psutil.Process()
    allowed = process.cpu_affinity() if hasattr(process, "cpu_affinity") else range(len(shares))
    left = sum(shares[core].idle + getattr(shares[core], "nice", 0.0) for core in allowed)
    return min(cores, round(left / 100))


@contextmanager
def threads_set(count: int) -> Iterator[None]:
    """Within this context torch computes with `count` threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


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
