"""Work on a stream in several processes, in order."""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from headway.errors import RunError

Item = TypeVar("Item")
Result = TypeVar("Result")


def cores() -> int:
    """How many processor cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which ends the pool
    threading.Thread(target=_end_with_parent, daemon=True).start()
    start(*arguments)


def _end_with_parent() -> None:
    """A pool's process waits for work forever when its parent is killed, unless something ends it."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
