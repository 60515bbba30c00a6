"""A cell in a process of its own: trained as by `headway train`, then decoded; what it leaves is never made twice.

The cell's folder is an ordinary run folder with `cell.json` beside what a run has.
"""

import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from headway.comparison.cell_results import CellResult, read_result, write_result
from headway.comparison.grid import NamedCorpus
from headway.comparison.run_results import result_of_run
from headway.device import peak_memory, threads_set
from headway.documents import read_json
from headway.errors import HeadwayError, RunError
from headway.files import sha256, write_json
from headway.log import logger, say
from headway.recipe import Recipe
from headway.runs.inspect.pages import write_run_report
from headway.runs.run_folder import RunFolder
from headway.runs.training.loop import train
from headway.storage import locked

CELL = "cell.json"
TRAINING = "training.json"  # what only the process that trained knew
LONGEST_WAIT = 120.0  # seconds for a process whose parent was killed to save and end


@dataclass(frozen=True)
class CellJob:
    """All that a process needs to make a cell.

    Attributes:
        name: for messages.
        variant, seed: of the cell.
        run: the run folder.
        recipe: what is trained.
        tests: what is decoded then.
        predict: options of prediction.
        threads: of the process.
        log: the file that it writes to in place of a terminal.
        page: whether the run gets its report.
    """

    name: str
    variant: str
    seed: int
    run: Path
    recipe: Recipe
    tests: tuple[NamedCorpus, ...]
    predict: Mapping[str, Any]
    threads: int
    log: Path
    page: bool = True

    def is_trained(self) -> bool:
        """Whether training is complete."""
        manifest = RunFolder(self.run).read_manifest()
        return manifest.get("status") == "finished" and "updates" in manifest

    def stamp(self) -> dict[str, Any]:
        """The weights, test sets and options that the result is of."""
        return {
            "weights": RunFolder(self.run).read_manifest().get("model_sha256"),
            "tests": [test.fingerprint() for test in self.tests],
            "predict": {key: _stamped(key, value) for key, value in self.predict.items()},
        }

    def result(self) -> CellResult | None:
        """The result of a finished cell; None where there is none yet, or one of other weights or test sets."""
        return read_result(self.run / CELL, self.stamp()) if self.is_trained() else None


def _stamped(name: str, value: Any) -> Any:
    """An option of prediction; in place of a file, its content."""
    return sha256(Path(value)) if name == "dictionary" and value is not None else value


def main_of_process(job: CellJob) -> None:
    """Make a cell in a new process that ends, after saving, when its parent does; exits as `headway train`."""
    os.setsid()  # Ctrl-C reaches the parent, which tells its cells
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    sys.exit(run_cell(job))


def _stop_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)


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
    if not job.is_trained():
        if code := train(job.recipe, job.run, resume=RunFolder(job.run).recipe_file.exists()):
            return code
        write_json(job.run / TRAINING, {"peak_memory": peak_memory()})
    if job.page and not RunFolder(job.run).report.is_file():
        write_run_report(job.run)
    if job.result() is None:
        known = job.run / TRAINING
        memory = read_json(known).get("peak_memory") if known.is_file() else None
        result = result_of_run(job.run, job.variant, job.seed, job.tests, job.predict, peak_memory=memory)
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
