"""Process streams in batches or in several processes, in order, count cores, and abandon unwanted work."""

import math
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextvars import ContextVar
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from headway.core.errors import RunError
from headway.core.system import interrupts_held, usable_cores

Item = TypeVar("Item")
Result = TypeVar("Result")

# Returns whether the result of the current work is still needed. Tasks, and threads that copy the context, inherit it.
WAITED_FOR: ContextVar[Callable[[], bool]] = ContextVar("waited_for", default=lambda: True)


class AbandonedError(RunError):
    """The result of this work is not needed any more."""


def check_waited_for() -> None:
    """Raise AbandonedError if the result of the current work is not needed any more, in each step of a long loop."""
    if not WAITED_FOR.get()():
        raise AbandonedError("nobody waits for this result any more")


def batched(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yield lists of `size` items; the last may be shorter. As `itertools.batched` of Python 3.12, but with lists."""
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch


def cores() -> int:
    """The number of processor cores for this process, by its CPU affinity and the quota of its control group."""
    return max(1, math.ceil(min(usable_cores(), _quota(Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")))))


def _quota(mount: Path, membership: Path) -> float:
    """The CPU quota of this process's control group and its parents, in cores; infinite without a limit.

    The files are documented in the kernel's cgroup-v2.rst and sched-bwc.rst.
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
    """The CPU limit of one control group, version 1 or 2, in cores."""
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


def in_processes(
    stream: Iterator[Item],
    work: Callable[[Item], Result],
    processes: int,
    start: Callable[..., None],
    arguments: tuple[Any, ...],
    what: str,
) -> Iterator[Result]:
    """Apply `work` to the items in several processes, and yield the results in order. Only a few items are in memory.

    Args:
        stream: the items.
        work: a function at module level, which the processes can import.
        processes: the number of processes.
        start: called once in each process, before any work, with `arguments`.
        arguments: the arguments of `start`.
        what: a description of the work, for the message if a process dies.

    Raises:
        RunError: a process died.
    """
    # Forking a process with threads may deadlock; spawning cannot.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, mp_context=context, initializer=_start, initargs=(start, arguments))
    waiting: deque[Future[Result]] = deque()
    try:
        for item in stream:
            with interrupts_held():  # Ctrl-C reaches only the parent, which ends the pool
                waiting.append(pool.submit(work, item))
            if len(waiting) > 3 * processes:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool as error:
        raise RunError(
            f"a process that {what} died: it was out of memory, or was started by a script that does its work outside"
            " of `if __name__ == '__main__':`"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _start(start: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # for systems that cannot block it
    threading.Thread(target=_end_with_parent, daemon=True).start()
    start(*arguments)


def _end_with_parent() -> None:
    """Exit when the parent process has died. Otherwise a worker process would wait for work forever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
