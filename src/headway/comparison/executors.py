"""Executors of cells: processes on this machine, or tasks of a Ray cluster. Both save their state when stopped."""

import importlib
import multiprocessing
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import suppress
from multiprocessing import forkserver
from multiprocessing.connection import wait
from types import ModuleType
from typing import Any

import torch

from headway.comparison.options import GridOptions
from headway.core.errors import UserError, not_installed, option
from headway.core.processes import cores
from headway.core.registry import foreign_code, leave_given
from headway.core.system import interrupts_held, leave_terminal

LOCAL = "local"
KILLED = -9  # the exit code


class RunningCall(Future[Any]):
    """A call in another process. `cancel` asks it to save and stop. A killed call raises a BrokenExecutor."""

    def __init__(self, process: Any, results: Any, end: Any) -> None:
        super().__init__()
        self.process, self.results, self.end = process, results, end

    def done(self) -> bool:
        if not super().done() and (self.results.poll() or self.process.exitcode is not None):
            try:
                finished, value = self.results.recv()
            except EOFError:
                self.process.join()
                finished, value = False, BrokenExecutor(self.process.exitcode)
            self.process.join()
            self.set_result(value) if finished else self.set_exception(value)
        return super().done()

    def result(self, timeout: float | None = None) -> Any:
        if not self.done():
            self.results.poll(timeout)
            self.done()
        return super().result(0)

    def cancel(self) -> bool:
        with suppress(OSError):  # the process has ended
            self.end.send(True)
        return True


def _called(results: Any, asked: Any, function: Callable[..., Any], arguments: Sequence[Any]) -> None:
    """Call a function in a new process. If the parent ends, or `asked` receives a message, the call saves and stops."""
    leave_terminal()
    parent = multiprocessing.parent_process()
    assert parent is not None

    def stop_with_parent() -> None:
        wait([parent.sentinel, asked])
        signal.raise_signal(signal.SIGTERM)  # on Windows, a signal from another process would kill this one immediately

    threading.Thread(target=stop_with_parent, daemon=True).start()
    try:
        returned = True, function(*arguments)
    except Exception as error:
        returned = False, error
    results.send(returned)


def _with_leave(given: bool, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function with the caller's permission to run foreign code, which the new process does not inherit."""
    with foreign_code(given or None):
        return function(*arguments)


class ProcessesOfTheirOwn(Executor):
    """An executor that runs each call in a separate process on this machine.

    The processes are forked from a server that has imported everything and started no thread, which saves the time of
    the imports. On systems without fork they are spawned.

    Args:
        slots: the number of calls that run at a time.
        threads: the number of threads per call.
        method: the start method of `multiprocessing`.
    """

    def __init__(self, slots: int, threads: int, method: str | None = None) -> None:
        self.slots = slots
        there = multiprocessing.get_all_start_methods()
        self._context: Any = multiprocessing.get_context(method or ("forkserver" if "forkserver" in there else "spawn"))
        self._context.set_forkserver_preload(["headway.grids.run"])
        self._threads = str(threads)
        self._calls: list[RunningCall] = []

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> RunningCall:
        """Start a call. Its process does not run the caller's `__main__` script."""
        main, before = sys.modules["__main__"], dict(os.environ)
        (results, sent), (asked, end) = (self._context.Pipe(duplex=False) for _ in range(2))
        sys.modules["__main__"] = ModuleType("__main__")
        os.environ["OMP_NUM_THREADS"] = self._threads  # for libraries that read it when they are imported
        try:
            if self._context.get_start_method() == "forkserver":
                with interrupts_held():
                    forkserver.ensure_running()
            called = sent, asked, _with_leave, (leave_given(), function, *arguments)
            process = self._context.Process(target=_called, args=called)
            process.start()
        finally:
            sys.modules["__main__"] = main
            os.environ.pop("OMP_NUM_THREADS")
            os.environ.update(before)
        sent.close()
        asked.close()
        self._calls.append(RunningCall(process, results, end))
        return self._calls[-1]

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Wait for the running calls, or kill them if futures are cancelled."""
        for call in self._calls:
            if cancel_futures:
                call.process.kill()
            if wait or cancel_futures:
                call.process.join()
        self._calls.clear()


class RayTask(Future[Any]):
    """A Ray task. `cancel` asks it to save and stop. A killed task raises a BrokenExecutor."""

    def __init__(self, ray: Any, task: Any) -> None:
        super().__init__()
        self.ray, self.task = ray, task

    def done(self) -> bool:
        if not super().done() and self.ray.wait([self.task], timeout=0)[0]:
            try:
                self.set_result(self.ray.get(self.task))
            except (self.ray.exceptions.RayError, KeyboardInterrupt):
                self.set_exception(BrokenExecutor(KILLED))
        return super().done()

    def cancel(self) -> bool:
        self.ray.cancel(self.task)
        return True


class RayTasks(Executor):
    """An executor of Ray tasks, each in its own process with `threads` processors, and a GPU if there are any.

    The comparison's folder and the data must have the same paths on all nodes.

    Args:
        address: of the cluster; `local` starts a cluster on this machine, with `slots` times `threads` processors.
        slots: the number of calls that run at a time; None for as many as the cluster has room for.
        threads: the number of threads per call.

    Raises:
        UserError: Ray is not installed, or there is no cluster at that address.
    """

    def __init__(self, address: str, slots: int | None, threads: int) -> None:
        try:
            ray: Any = importlib.import_module("ray")
        except ImportError as error:
            raise not_installed("this", ["ray"], "cluster", option("ray")) from error
        host, colon, port = address.removeprefix("ray://").rpartition(":")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # send no usage statistics
        settings: dict[str, Any] = {"address": address}
        if address == LOCAL:
            settings |= {"num_cpus": (slots or room_here(threads)) * threads, "include_dashboard": False}
        try:
            if colon and port.isdecimal():  # without an answer, Ray itself would wait for minutes
                socket.create_connection((host, int(port)), timeout=10).close()
            ray.init(**settings, log_to_driver=False, logging_level="error")
        except (OSError, ValueError, RuntimeError) as error:
            raise UserError(f"there is no such cluster ({error})", where=option("ray"), received=address) from error
        resources = ray.cluster_resources()
        self.ray, self.slots = ray, slots or max(1, int(resources.get("CPU", 1)) // threads)
        gpus = 1 if resources.get("GPU") else 0
        self._remote = ray.remote(num_cpus=threads, num_gpus=gpus, max_calls=1, max_retries=0)
        self._tasks: list[RayTask] = []

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> RayTask:
        self._tasks.append(RayTask(self.ray, self._remote(_with_leave).remote(leave_given(), function, *arguments)))
        return self._tasks[-1]

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        for task in self._tasks:
            if cancel_futures and not task.done():
                self.ray.cancel(task.task, force=True)


CellExecutor = ProcessesOfTheirOwn | RayTasks


def room_here(threads: int) -> int:
    """The number of cells with `threads` threads that this machine can run at a time; one if it has an accelerator."""
    if torch.accelerator.current_accelerator(check_available=True) is not None:
        return 1
    return max(1, cores() // threads)


def executor_of(options: GridOptions) -> CellExecutor:
    """The executor of cells: processes on this machine, or a Ray cluster. Raises UserError as `RayTasks`."""
    if options.ray is not None:
        return RayTasks(options.ray, options.workers, options.threads)
    return ProcessesOfTheirOwn(options.workers or room_here(options.threads), options.threads)
