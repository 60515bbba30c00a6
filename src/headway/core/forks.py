"""Copies of this process that share the memory of a model. Each copy computes on one core. Only on Linux."""

from __future__ import annotations

import gc
import os
import pickle
import tempfile
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from multiprocessing import Pipe, current_process, get_all_start_methods
from multiprocessing.connection import wait
from typing import Any

import torch

from headway.core.errors import RunError, option
from headway.core.processes import WAITED_FOR, check_waited_for
from headway.core.system import forked, native_threads

Work = Callable[[], Any]  # computes a result, or waits for it

NUMBER = 4  # bytes of the number of a job in a queue
THREADS = native_threads()  # of libraries, from their import; a later one may belong to OpenMP


def may_fork() -> bool:
    """Whether copies of this process can compute: neither Python, nor torch by OpenMP, has started other threads.

    A daemon of multiprocessing may have no processes.
    """
    alone = threading.active_count() == 1 and not current_process().daemon and "fork" in get_all_start_methods()
    return alone and 0 < native_threads() <= THREADS


class _Jobs:
    """The jobs of one request, which its processes take from a queue in order.

    Attributes:
        missing: the number of processes that are not started yet.
        results: a result or an error for each finished job, by number.
    """

    def __init__(self, jobs: Sequence[Work], processes: int) -> None:
        self.jobs, self.missing, self.results = jobs, min(processes, len(jobs)), dict[int, tuple[Any, Any]]()
        self.context, self.process = copy_context(), os.getpid()
        self.queue = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - all processes share its position
        self.queue.write(b"".join(number.to_bytes(NUMBER, "little") for number in range(len(jobs))))
        self.queue.seek(0)

    def compute(self, results: Any) -> None:
        """Compute jobs in a copy of the process, and send their results, until none is left."""
        WAITED_FOR.set(lambda: os.getppid() == self.process)
        torch.set_num_threads(1)
        gc.freeze()  # collecting garbage would write to all objects, and thereby copy their memory
        while number := self.queue.read(NUMBER):
            results.send_bytes(self._result(int.from_bytes(number, "little")))

    def _result(self, number: int) -> bytes:
        try:
            return pickle.dumps((number, self.jobs[number](), None))
        except Exception as error:
            try:
                pickle.loads(dumped := pickle.dumps((number, None, error)))  # noqa: S301 - our own
            except Exception:
                return pickle.dumps((number, None, RunError(f"{type(error).__name__}: {error}")))
            return dumped


class _Forks:
    """Processes that compute the jobs of requests, at most `count` at a time."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._waiting = deque[_Jobs]()
        self._running = dict[Any, tuple[Any, _Jobs]]()  # by the end of the pipe of results

    def begin(self, jobs: Sequence[Work]) -> list[Work]:
        """Begin the jobs of a request after those before, and return how to wait for each result."""
        request = _Jobs(jobs, self.count)
        self._waiting.append(request)
        self._fill()
        return [partial(self._result, request, number) for number in range(len(jobs))]

    def _fill(self) -> None:
        while self._waiting and len(self._running) < self.count:
            request, (ours, theirs) = self._waiting[0], Pipe(duplex=False)
            with warnings.catch_warnings():  # Python warns of the threads of libraries, which do not compute here
                warnings.simplefilter("ignore", DeprecationWarning)
                self._running[ours] = forked(partial(request.context.run, request.compute, theirs)), request
            theirs.close()
            request.missing -= 1
            if not request.missing:
                self._waiting.popleft().queue.close()

    def _result(self, request: _Jobs, number: int) -> Any:
        while number not in request.results:
            self._receive()
        result, error = request.results.pop(number)
        if error is not None:
            raise error
        return result

    def _receive(self) -> None:
        """Receive the results of up to a second. Raises RunError if a process died."""
        check_waited_for()
        for pipe in wait(list(self._running), 1.0):
            process, request = self._running[pipe]
            try:
                number, *result = pickle.loads(pipe.recv_bytes())  # type: ignore[union-attr]  # noqa: S301 - our own
                request.results[number] = tuple(result)
            except (EOFError, OSError):
                process.join()
                if process.exitcode:
                    what = f"a process that decodes died ({process.exitcode}): it was killed, or memory ran out"
                    raise RunError(f"{what}; {option('workers')} 1 needs the least memory") from None
                del self._running[pipe]
                self._fill()

    def close(self) -> None:
        """Kill the processes that are left."""
        for request in self._waiting:
            request.queue.close()
        for process, _ in self._running.values():
            process.kill()
        for process, _ in self._running.values():
            process.join()


@contextmanager
def forks(count: int) -> Iterator[Callable[[Sequence[Work]], list[Work]]]:
    """Yield a function that begins jobs in copies of this process, and returns how to wait for each result.

    The copies are killed when this context ends. An error of a job is raised where its result is waited for.
    """
    made = _Forks(count)
    try:
        yield made.begin
    finally:
        made.close()
