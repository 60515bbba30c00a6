"""Workers that share a model: copies of this process if possible, else threads. Each worker computes on one core."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from contextvars import copy_context

import torch

from headway.core.forks import Work, forks, may_fork
from headway.core.processes import WAITED_FOR

_starting = threading.Lock()


def workers(count: int) -> AbstractContextManager[Callable[[Sequence[Work]], list[Work]]]:
    """A context whose function begins jobs in `count` workers, and returns how to wait for the result of each."""
    return forks(count) if may_fork() else threads_of_one_core(count)


@contextmanager
def threads_of_one_core(count: int) -> Iterator[Callable[[Sequence[Work]], list[Work]]]:
    """Start `count` threads, and yield a function that begins jobs in them and returns how to wait for each result.

    Work runs with the context variables of the caller. Work that is not finished when this context ends is abandoned
    (see `check_waited_for`).
    """
    ended, wanted, ready = threading.Event(), WAITED_FOR.get(), threading.Barrier(count + 1)
    threads = ThreadPoolExecutor(count, thread_name_prefix="headway-worker")

    def compute_alone() -> None:
        torch.get_num_threads()  # the first call in a thread takes over the setting of the process
        torch.set_num_threads(1)
        ready.wait()

    def begin(jobs: Sequence[Work]) -> list[Work]:
        return list(map(begun, jobs))

    def begun(work: Work) -> Work:
        context = copy_context()
        context.run(WAITED_FOR.set, lambda: not ended.is_set() and wanted())
        return threads.submit(context.run, work).result

    try:
        with _starting:
            before = torch.get_num_threads()
            try:
                for _ in range(count):
                    threads.submit(compute_alone)
                ready.wait()
            finally:
                torch.set_num_threads(before)  # of this thread, and of threads that begin to compute later
        yield begin
    finally:
        ended.set()
        ready.abort()
        threads.shutdown(cancel_futures=True)
