"""Threads that share a model, each of which computes on one core."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any

import torch

from headway.core.processes import WAITED_FOR

Work = Callable[[], Any]  # computes a result, or waits for it

_starting = threading.Lock()


@contextmanager
def workers(count: int) -> Iterator[Callable[[Work], Work]]:
    """Start `count` threads, and yield a function that begins work in one of them and returns how to wait for it.

    Work runs with the context variables of the caller. Work that is not finished when this context ends is abandoned
    (see `check_waited_for`).
    """
    ended, wanted, ready = threading.Event(), WAITED_FOR.get(), threading.Barrier(count + 1)
    threads = ThreadPoolExecutor(count, thread_name_prefix="headway-worker")

    def compute_alone() -> None:
        torch.get_num_threads()  # the first call in a thread takes over the setting of the process
        torch.set_num_threads(1)
        ready.wait()

    def begin(work: Work) -> Work:
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
