"""Loading runs, of every task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import init
from torch.overrides import TorchFunctionMode

from headway.device import keep_freed_memory, pick_device
from headway.errors import UserError, option
from headway.log import say, warn
from headway.memory import memory_named
from headway.predictors.label_predictor import LabelPredictor
from headway.predictors.predictor import Predictor, Run
from headway.predictors.sequence_predictor import SequencePredictor
from headway.recipe import read_tree
from headway.recipe.migration import FORMAT, todays_weights
from headway.registry import foreign_code, names_of_a_run
from headway.runs.engines import build_engine, kept_export
from headway.runs.own_code import changed_code, code_hashes
from headway.runs.packing import unpacked
from headway.runs.run_folder import RunFolder, load_weights, trained_weights
from headway.tasks import build_task
from headway.tasks.task import Task
from headway.tensors.linear import PRECISIONS, prepare

# The functions that draw initial values, as far as torch hands them to a mode; the others call these.
DRAWS = (Tensor.uniform_, Tensor.normal_, init.uniform_, init.normal_, init.kaiming_uniform_)

CPU = torch.device("cpu")
AnyPredictor = SequencePredictor | LabelPredictor | Predictor[Any, Any]


def load(
    run: str | Path,
    *more_runs: str | Path,
    device: str = "auto",
    average: int | None = None,
    precision: str = "float32",
    engine: str | None = None,
    allow_code: bool = False,
) -> AnyPredictor:
    """The predictor of a run, or of several as an ensemble.

    Args:
        run: the run folder, or a pack of one.
        more_runs: further runs with the same vocabularies; the mean of all probabilities is decoded.
        device: `auto`, `cpu`, `cuda`, ...
        average: use the mean of each run's last so many checkpoints.
        precision: of products with weights: `float32`, `bf16`, `int8`, or `auto` for the fastest of these on this
            machine, by a measurement of a second. Scores are those of the precision.
        engine: `ctranslate2`, or another of `ENGINES`, to decode with in the place of torch. Its export of the run is
            made at first use, and kept in the cache.
        allow_code: import the components that a run names by import path, which are not parts of headway.

    Returns:
        A `SequencePredictor`, a `LabelPredictor`, or what the task of the run predicts with.

    Raises:
        UserError: a folder that holds no finished model, runs that do not go together, foreign code, a precision that
            this machine does not have, or an engine that is not installed or cannot express the run.
    """
    paths = [unpacked(Path(path)) for path in (run, *more_runs)]
    if precision not in PRECISIONS:
        raise UserError("there is no such precision", where=option("precision"), received=precision, allowed=PRECISIONS)
    with foreign_code(allow_code):
        if engine is not None:
            if precision != "float32":
                what = "an engine computes in the precision of its export"
                allowed = f"{option('precision')} without an engine"
                raise UserError(what, where=option("precision"), received=precision, allowed=allowed)
            if device not in ("auto", "cpu"):
                what, allowed = "an engine decodes on the CPU", f"{option('device')} without an engine"
                raise UserError(what, where=option("device"), received=device, allowed=allowed)
            return _load_with_engine(engine, paths, average)
        task, where = task_of(paths), pick_device(device)
        return task.predictor([_prepared(load_run(path, where, average), precision) for path in paths], where)


class NoInitialValues(TorchFunctionMode):
    """Leaves parameters as memory comes, where a model would draw them: weights that are read replace them all.

    Memory that is not written to is not taken either, however large a model a damaged recipe asks for.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func not in DRAWS:
            return func(*args, **kwargs)
        drawn = args[0] if args else kwargs["tensor"]
        # Constants that a component draws are in no file; parameters, and parts of them, are.
        is_learned = isinstance(drawn, nn.Parameter) or isinstance(drawn._base, nn.Parameter)
        return drawn if is_learned else func(*args, **kwargs)


def _prepared(run: Run, precision: str) -> Run:
    """A run whose linear maps are quick. Raises UserError for a precision that this machine does not have."""
    try:
        chosen = prepare(run.model, precision)
    except ValueError as error:
        raise UserError(str(error), where=option("precision"), received=precision) from error
    if precision == "auto":
        say(f"{run.path}: precision {chosen}")
    return replace(run, as_stored=run.as_stored and chosen == "float32")


def _load_with_engine(name: str, paths: Sequence[Path], average: int | None) -> SequencePredictor:
    """The predictor of a run whose backend is an engine. The weights are read only where an export has to be made."""
    engine = build_engine(name)
    if len(paths) > 1 or average is not None:
        what, allowed = "an engine runs the final weights of one run", f"one run, without {option('average')}"
        raise UserError(what, where=option("engine"), received=name, allowed=allowed)
    path, task = paths[0], task_of(paths)
    folder = kept_export(engine, path, lambda: load_run(path))
    with torch.device("meta"):
        run = without_weights(path)
    predictor = task.predictor([run], CPU)
    assert isinstance(predictor, SequencePredictor)
    predictor.backend = engine.backend(folder, run)
    return predictor


def without_weights(path: Path) -> Run:
    """A run whose model has no weights yet."""
    folder = RunFolder(path)
    recipe = folder.read_recipe()
    folder.check_vocabulary()
    with names_of_a_run():
        task = build_task(recipe.task)
        processors = task.processors(folder.vocabulary)
        with memory_named(f"in making the model of {path}", "its recipe may be damaged"), NoInitialValues():
            model = task.model(recipe, processors, initial=False)
    return Run(recipe, *processors, model.eval(), path)


def load_run(path: Path, device: torch.device = CPU, average: int | None = None) -> Run:
    """A run with its model, ready to predict; nothing but the run folder is read.

    Its weights are the final ones, or the mean of the last `average` checkpoints. Components that it names by import
    path are imported within `foreign_code` alone.

    Raises:
        UserError: no run folder, no weights yet, weights that do not match their recipe or are damaged, or foreign
            code.
    """
    keep_freed_memory()
    path = unpacked(path)
    folder, run = RunFolder(path), without_weights(path)
    weights = todays_weights(trained_weights(folder, average), folder.read_manifest().get("format", FORMAT))
    if known := folder.read_manifest().get("code", {}):
        for name in changed_code(known, code_hashes(read_tree(folder.recipe_file, alone=True))):
            warn(f"{path}: {name} is not as it was in training, and may make another model of the same weights")
    load_weights(run.model, weights, str(folder.weights))
    run.model.to(device)
    return replace(run, as_stored=average is None)


def task_of(runs: Sequence[Path]) -> Task:
    """The task of these runs. Raises UserError where they are no runs, or of different tasks, or foreign code."""
    names = [RunFolder(unpacked(run)).read_recipe().task for run in runs]
    if len(set(names)) > 1:
        raise UserError("runs of different tasks cannot predict together", where="RUN", received=", ".join(names))
    with names_of_a_run():
        return build_task(names[0])
