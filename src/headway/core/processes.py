"""Work on a stream, a list of items at a time, or in several processes, in order, and the end of unwanted work."""

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

# Says whether somebody waits for the result of the current work. Tasks, and threads that copy the context, inherit it.
WAITED_FOR: ContextVar[Callable[[], bool]] = ContextVar("waited_for", default=lambda: True)


class AbandonedError(RunError):
    """Nobody waits for the result of this work any more."""


def check_waited_for() -> None:
    """Raise AbandonedError if nobody waits for the result of the current work. Long loops ask at each step."""
    if not WAITED_FOR.get()():
        raise AbandonedError("nobody waits for this result any more")


def batched(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """The items in lists of `size`, of which the last may be shorter. Python has this from 3.12 on, with tuples."""
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch


def cores() -> int:
    """How many processor cores this process may use: its affinity, or less by the quota of its control group."""
    return max(1, math.ceil(min(usable_cores(), _quota(Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")))))


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


def in_processes(
    stream: Iterator[Item],
    work: Callable[[Item], Result],
    processes: int,
    start: Callable[..., None],
    arguments: tuple[Any, ...],
    what: str,
) -> Iterator[Result]:
    """`work` on each item, in order; only a few items a process are in memory at a time.

    Args:
        stream: the items.
        work: a function of a module, which processes can import.
        processes: how many.
        start: called once in each process, before any work, with `arguments`.
        arguments: of `start`.
        what: what the processes do, for the message when one dies.

    Raises:
        RunError: a process died.
    """
    # Forked copies of a process with threads may deadlock; spawned ones cannot.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, mp_context=context, initializer=_start, initargs=(start, arguments))
    waiting: deque[Future[Result]] = deque()
    try:
        for item in stream:
            with interrupts_held():  # Ctrl-C is the parent's, which ends the pool
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
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # for systems that cannot hold it
    threading.Thread(target=_end_with_parent, daemon=True).start()
    start(*arguments)


def _end_with_parent() -> None:
    """A pool's process waits for work forever when its parent is killed, unless something ends it."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
