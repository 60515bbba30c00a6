"""Workers that make cells: processes of this machine, or of a Ray cluster."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import socket
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Literal

import torch

from headway.comparison.cell_process import CellJob, main_of_process, run_cell
from headway.errors import UserError, not_installed, option
from headway.processes import cores

LOCAL = "local"


def room_here(threads: int) -> int:
    """How many cells of so many threads this machine can make at a time; one where they share an accelerator."""
    if torch.accelerator.current_accelerator(check_available=True) is not None:
        return 1
    return max(1, cores() // threads)


class Worker(ABC):
    """One cell that is being made."""

    @abstractmethod
    def code(self) -> int | None:
        """None while it works, then its exit code; below zero where a signal killed it."""

    @abstractmethod
    def stop(self) -> None:
        """Ask it to save and end."""

    @abstractmethod
    def kill(self) -> None:
        """End it at once."""


class Workers(ABC):
    """The source of workers.

    Attributes:
        slots: how many work at a time.
    """

    slots: int

    @abstractmethod
    def start(self, job: CellJob) -> Worker:
        """Begin to make a cell."""


class LocalWorker(Worker):
    """A process of this machine."""

    def __init__(self, process: Any) -> None:
        self.process = process

    def code(self) -> int | None:
        code: int | None = self.process.exitcode
        return code

    def stop(self) -> None:
        self.process.terminate()

    def kill(self) -> None:
        self.process.kill()
        self.process.join()


class LocalWorkers(Workers):
    """Processes of this machine.

    They are forks of one process that has imported everything and started no thread, which spares each of them the
    time of the imports.

    Args:
        slots: how many work at a time.
        threads: of each.
        method: how processes begin, as `multiprocessing` has it.
    """

    def __init__(self, slots: int, threads: int, method: Literal["forkserver", "spawn", "fork"] = "forkserver") -> None:
        self.slots = slots
        self._context: Any = multiprocessing.get_context(method)
        self._context.set_forkserver_preload(["headway.comparison.cell_process"])
        self._environment = {"OMP_NUM_THREADS": str(threads)}  # for libraries that read it as they are imported

    def start(self, job: CellJob) -> Worker:
        with _environment(self._environment), _without_main():
            process = self._context.Process(target=main_of_process, args=(job,), name=job.name)
            process.start()
        return LocalWorker(process)


@contextmanager
def _environment(changes: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _without_main() -> Iterator[None]:
    """Within it, a process that begins does not run the script that called: its cell needs nothing of that."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


class RayWorker(Worker):
    """A task of a Ray cluster."""

    def __init__(self, ray: Any, task: Any) -> None:
        self.ray, self.task = ray, task

    def code(self) -> int | None:
        ready, _ = self.ray.wait([self.task], timeout=0)
        if not ready:
            return None
        try:
            code: int = self.ray.get(self.task)
        except (self.ray.exceptions.RayError, KeyboardInterrupt):
            return -signal.SIGKILL
        return code

    def stop(self) -> None:
        self.ray.cancel(self.task)

    def kill(self) -> None:
        self.ray.cancel(self.task, force=True)


def _check_reachable(address: str) -> None:
    """Raise UserError where nobody answers at HOST:PORT: Ray itself would wait for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not (colon and port.isdecimal()):
        return
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except OSError as error:
        raise UserError(f"there is no such cluster ({error})", where=option("ray"), received=address) from error


class RayWorkers(Workers):
    """Tasks of a Ray cluster, each in a process of its own with so many processors, and one GPU where there are any.

    The folder of the comparison and the data must have the same paths on all nodes.

    Args:
        address: of the cluster; `local` for one that is started here, with `slots` times `threads` processors.
        slots: how many work at a time; None for as many as the cluster has room for.
        threads: of each.

    Raises:
        UserError: Ray is not installed, or there is no cluster at that address.
    """

    def __init__(self, address: str, slots: int | None, threads: int) -> None:
        try:
            ray: Any = importlib.import_module("ray")
        except ImportError as error:
            raise not_installed("this", ["ray"], "cluster", option("ray")) from error
        self.ray = ray
        _check_reachable(address)
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anyone
        settings: dict[str, Any] = {"address": address}
        if address == LOCAL:
            settings |= {"num_cpus": (slots or room_here(threads)) * threads, "include_dashboard": False}
        try:
            ray.init(**settings, log_to_driver=False, logging_level="error")
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise UserError(f"there is no such cluster ({error})", where=option("ray"), received=address) from error
        resources = ray.cluster_resources()
        self.slots = slots or max(1, int(resources.get("CPU", 1)) // threads)
        gpus = 1 if resources.get("GPU") else 0
        self._run = ray.remote(num_cpus=threads, num_gpus=gpus, max_calls=1, max_retries=0)(run_cell)

    def start(self, job: CellJob) -> Worker:
        return RayWorker(self.ray, self._run.remote(job))
