"""Loading the runs of all tasks."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter, ValidationError

from headway.core.device import pick_device, processor, threads_set
from headway.core.documents import read_json
from headway.core.errors import UserError, option
from headway.core.files import write_json
from headway.core.log import say
from headway.core.registry import foreign_code
from headway.core.storage import cache_folder
from headway.core.version import VERSION
from headway.predictors.label_predictor import LabelPredictor
from headway.predictors.predictor import Predictor, Run
from headway.predictors.sequence_predictor import SequencePredictor
from headway.runs.engines import build_engine, kept_export
from headway.runs.run import CPU, open_run, task_of
from headway.runs.run_folder import float32_of
from headway.tensors.linear import LEAST_PREPARED, PRECISIONS, TRIALS, prepare, undo_rounding
from headway.tensors.precision import use_float32

MOST_WORKERS = 1024
AnyPredictor = SequencePredictor | LabelPredictor | Predictor[Any, Any]


@contextmanager
def kept_trials() -> Iterator[None]:
    """Keep the results of trials of products in the cache, for later processes with this processor and torch."""
    made_on = json.dumps([processor(), torch.backends.cpu.get_cpu_capability(), torch.__version__, VERSION])
    path: Path | None = None
    results = TypeAdapter(dict[str, tuple[str, str, float]])
    with suppress(UserError, ValidationError):
        path = cache_folder() / "products" / f"{hashlib.sha256(made_on.encode()).hexdigest()[:16]}.json"
        TRIALS.update(results.validate_python(read_json(path)))
    known = len(TRIALS)
    yield
    if path is not None and len(TRIALS) > known:
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, TRIALS)


def load(
    run: str | Path,
    *more_runs: str | Path,
    device: str = "auto",
    average: int | None = None,
    precision: str | None = None,
    engine: str | None = None,
    workers: int | None = None,
    allow_code: bool = False,
) -> AnyPredictor:
    """Load the predictor of a run, or of several runs as an ensemble.

    Args:
        run: the run folder, or a packed run.
        more_runs: further runs with the same vocabularies. An ensemble decodes with the mean of the probabilities.
        device: `auto`, `cpu`, `cuda`, ...
        average: average the weights of each run's last `average` checkpoints.
        precision: of products with weights: `float32`, `bf16`, `int8`, or `auto` for the fastest on this machine, which
            is measured for a second. By default `float32`, or the integers of a run that was trained with
            `int8_rounding: fixed`. Scores depend on the precision. On a GPU, a run trained with TF32 makes this
            process multiply float32 in TF32 from then on; runs that differ in this are multiplied exactly.
        engine: `ctranslate2`, or another engine of `ENGINES`, to decode with instead of torch. Its export of the run is
            made on first use, and kept in the cache.
        workers: the number of workers that decode the batches of many inputs, each on one core of the CPU; by default
            as many as torch and the system let this process use. The outputs do not depend on it. Workers are copies
            of this process on Linux, as long as it has no other threads, or else threads.
        allow_code: import the components that a run names by import path, which are not parts of headway.

    Returns:
        A `SequencePredictor`, a `LabelPredictor`, or the predictor of the run's task.

    Raises:
        UserError: there is no finished model, runs do not match, foreign code is not allowed, this machine lacks the
            precision, or the engine is not installed or does not support the model.
    """
    if precision not in (None, *PRECISIONS):
        raise UserError("there is no such precision", where=option("precision"), received=precision, allowed=PRECISIONS)
    paths = run, *more_runs
    if engine is not None:
        for name, value, usual, what in (
            ("precision", precision, (None, "float32"), "an engine computes in the precision of its export"),
            ("device", device, ("auto", "cpu"), "an engine decodes on the CPU"),
            ("workers", workers, (None, 1), "an engine has threads of its own"),
        ):
            if value not in usual:
                allowed = f"{option(name)} without an engine"
                raise UserError(what, where=option(name), received=value, allowed=allowed)
        if more_runs or average is not None:
            what, allowed = "an engine runs the final weights of one run", f"one run, without {option('average')}"
            raise UserError(what, where=option("engine"), received=engine, allowed=allowed)
    where = CPU if engine is not None else pick_device(device)
    if workers is not None and not 1 <= workers <= (MOST_WORKERS if where.type == "cpu" else 1):
        what, allowed = (
            "this number of workers is not possible",
            f"1 to {MOST_WORKERS} on a CPU, and 1 on an accelerator",
        )
        raise UserError(what, where=option("workers"), received=workers, allowed=allowed)
    with foreign_code(allow_code or None):
        runs = [open_run(path, device=where, average=average) for path in paths]
    if engine is not None:
        opened = runs[0]
        with opened.trusted():
            chosen = build_engine(engine)
            folder = kept_export(chosen, opened)
            with torch.device("meta"):
                empty = opened.without_weights()
            predictor = opened.task.predictor([empty], CPU)
            assert isinstance(predictor, SequencePredictor)
            predictor.backend = chosen.backend(folder, empty)
        return predictor
    task = task_of(runs)
    kinds = {float32_of(each.manifest) or "cudnn" for each in runs}
    use_float32(kinds.pop() if len(kinds) == 1 else "exact", where)
    threads = 1 if where.type == "cpu" and precision != "auto" else torch.get_num_threads()
    with threads_set(threads), runs[0].trusted():  # of one thread: a process in which OpenMP has more cannot be copied
        for each in runs:
            _prepare(each, precision)
        predictor = task.predictor(runs, where)
    predictor.workers = workers
    return predictor


def _prepare(run: Run, precision: str | None) -> None:
    """Replace the linear maps of a run by faster ones. Raises UserError if this machine lacks the precision."""
    if run.recipe.training.int8_rounding == "fixed":
        if precision is None:
            return
        undo_rounding(run.model)
    large = max(map(torch.numel, run.model.parameters()), default=0) >= LEAST_PREPARED
    try:
        with kept_trials() if large else nullcontext():
            used = prepare(run.model, precision or "float32")
    except ValueError as error:
        raise UserError(str(error), where=option("precision"), received=precision) from error
    if precision == "auto":
        say(f"{run.path}: precision {used}")
    run.as_stored = run.as_stored and used == "float32"
