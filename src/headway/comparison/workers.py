"""Workers that make cells: processes of this machine, or of a Ray cluster.

A cell is trained as by `headway train`, then decoded. Its folder is an ordinary run folder with `cell.json` beside what
a run has; what it leaves is never made twice.
"""

from __future__ import annotations

import importlib
import logging
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Literal, TextIO

import torch

from headway.comparison.cells import CellResult, read_result, write_result
from headway.comparison.grid import NamedCorpus, PlannedRun
from headway.comparison.run_results import result_of_run
from headway.device import peak_memory, threads_set
from headway.documents import read_json
from headway.errors import HeadwayError, RunError, UserError, not_installed, option
from headway.files import sha256, write_json
from headway.log import logger, say
from headway.processes import cores
from headway.runs.inspect.pages import write_run_report
from headway.runs.run import open_run
from headway.runs.run_folder import RunFolder
from headway.runs.training.loop import train
from headway.storage import locked

CELL = "cell.json"
CELLS: Final = "cells"
TUNING: Final = "tuning"
TRAINING = "training.json"  # what only the process that trained knew
LONGEST_WAIT = 120.0  # seconds for a process whose parent was killed to save and end
LOCAL = "local"


@dataclass(frozen=True)
class CellJob:
    """All that a process needs to make a run of a grid.

    Attributes:
        planned: what is trained.
        kind: `cells`, or `tuning` for a short run, which gets no report.
        output: the absolute path of the grid's folder: `cells/VARIANT-SEED` are run folders, `tuning/` has the short
            ones, `logs/` what they said in place of a terminal.
        tests: what is decoded then.
        predict: options of prediction.
        threads: of the process.
    """

    planned: PlannedRun
    kind: Literal["cells", "tuning"]
    output: Path
    tests: tuple[NamedCorpus, ...]
    predict: Mapping[str, Any]
    threads: int

    @property
    def name(self) -> str:
        """For messages."""
        planned = self.planned
        return f"{planned.variant}, seed {planned.seed}" if self.kind == CELLS else f"tuning {planned.name}"

    @property
    def run(self) -> Path:
        """The run folder."""
        return self.output / self.kind / self.planned.name

    @property
    def log(self) -> Path:
        """The file that it writes to."""
        return self.output / "logs" / f"{self.kind}-{self.planned.name}.txt"

    def is_trained(self) -> bool:
        """Whether training is complete."""
        manifest = open_run(self.run).manifest
        return manifest.get("status") == "finished" and "updates" in manifest

    def stamp(self) -> dict[str, Any]:
        """The weights, test sets and options that the result is of."""
        return {
            "weights": open_run(self.run).manifest.get("model_sha256"),
            "tests": [test.fingerprint() for test in self.tests],
            # A file counts by its content.
            "predict": {
                name: sha256(Path(value)) if name == "dictionary" and value is not None else value
                for name, value in self.predict.items()
            },
        }

    def result(self) -> CellResult | None:
        """The result of a finished cell; None where there is none yet, or one of other weights or test sets."""
        return read_result(self.run / CELL, self.stamp()) if self.is_trained() else None


def main_of_process(job: CellJob) -> None:
    """Make a cell in a new process that ends, after saving, when its parent does; exits as `headway train`."""
    os.setsid()  # Ctrl-C reaches the parent, which tells its cells
    parent = multiprocessing.parent_process()
    assert parent is not None

    def stop_with_parent() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop_with_parent, daemon=True).start()
    sys.exit(run_cell(job))


def run_cell(job: CellJob) -> int:
    """Train and decode a cell, from where it stands. What is said goes to its log.

    Returns:
        0, 128 + the signal's number where one stopped it, or 1 or 2 where it failed, as the log says. A log that
        cannot be written is told on standard error.
    """
    try:
        job.log.parent.mkdir(parents=True, exist_ok=True)
        log = job.log.open("a", encoding="utf-8", buffering=1)
    except OSError as error:
        logger.error("error: %s: %s cannot be written (%s)", job.name, job.log, error.strerror)
        return RunError.exit_code
    with log, _logged(log):
        say(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {job.name}: process {os.getpid()}, {job.threads} threads")
        try:
            with threads_set(job.threads), locked(job.run.with_name(f".{job.run.name}.lock"), LONGEST_WAIT):
                return _make(job)
        except HeadwayError as error:
            logger.error("error: %s", error)
            return error.exit_code
        except Exception:
            logger.error("%s", traceback.format_exc())
            return 1


def _make(job: CellJob) -> int:
    planned = job.planned
    if not job.is_trained():
        if code := train(planned.recipe, job.run, resume=RunFolder(job.run).recipe_file.exists()):
            return code
        write_json(job.run / TRAINING, {"peak_memory": peak_memory()})
    if job.kind == CELLS and not RunFolder(job.run).report.is_file():
        write_run_report(job.run)
    if job.result() is None:
        known = job.run / TRAINING
        memory = read_json(known).get("peak_memory") if known.is_file() else None
        result = result_of_run(job.run, planned.variant, planned.seed, job.tests, job.predict, peak_memory=memory)
        write_result(job.run / CELL, result, job.stamp())
        say(f"{job.name}: finished")
    return 0


@contextmanager
def _logged(file: TextIO) -> Iterator[None]:
    """Send standard output, standard error and the library's log of this process to a file."""
    for stream in (1, 2):
        os.dup2(file.fileno(), stream)
    handler = logging.StreamHandler(file)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)


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
    """The source of workers: `slots` of them work at a time."""

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
        self._context.set_forkserver_preload(["headway.comparison.workers"])
        self._threads = str(threads)

    def start(self, job: CellJob) -> Worker:
        """Begin to make a cell, whose process does not run the script that called: it needs nothing of that."""
        main, before = sys.modules["__main__"], dict(os.environ)
        sys.modules["__main__"] = ModuleType("__main__")
        os.environ["OMP_NUM_THREADS"] = self._threads  # for libraries that read it as they are imported
        try:
            process = self._context.Process(target=main_of_process, args=(job,), name=job.name)
            process.start()
        finally:
            sys.modules["__main__"] = main
            os.environ.pop("OMP_NUM_THREADS")
            os.environ.update(before)
        return LocalWorker(process)


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
        host, colon, port = address.removeprefix("ray://").rpartition(":")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anyone
        settings: dict[str, Any] = {"address": address}
        if address == LOCAL:
            settings |= {"num_cpus": (slots or room_here(threads)) * threads, "include_dashboard": False}
        try:
            if colon and port.isdecimal():  # where nobody answers, Ray itself would wait for minutes
                socket.create_connection((host, int(port)), timeout=10).close()
            ray.init(**settings, log_to_driver=False, logging_level="error")
        except (OSError, ValueError, RuntimeError) as error:
            raise UserError(f"there is no such cluster ({error})", where=option("ray"), received=address) from error
        resources = ray.cluster_resources()
        self.slots = slots or max(1, int(resources.get("CPU", 1)) // threads)
        gpus = 1 if resources.get("GPU") else 0
        self._run = ray.remote(num_cpus=threads, num_gpus=gpus, max_calls=1, max_retries=0)(run_cell)

    def start(self, job: CellJob) -> Worker:
        return RayWorker(self.ray, self._run.remote(job))
