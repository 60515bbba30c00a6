"""Access to stored runs: all code that reads a run opens it here."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import init
from torch.overrides import TorchFunctionMode

from headway.core.device import keep_freed_memory
from headway.core.errors import UserError, memory_named
from headway.core.log import warn
from headway.core.registry import foreign_code, leave_given
from headway.models import Model
from headway.predictors.predictor import Run
from headway.processing.processor import Processor, Processors
from headway.recipe import Recipe, read_tree
from headway.recipe.migration import FORMAT, todays_weights
from headway.runs.metrics import read_metrics
from headway.runs.packing import changed_code, code_hashes, unpacked
from headway.runs.run_folder import RunFolder, average_weights, checkpoint_weights, load_weights
from headway.tasks import build_task, dev_metrics
from headway.tasks.task import Task
from headway.tensors.linear import round_to_int8

# The functions that draw initial values and that torch passes to a mode; others call these.
DRAWS = (Tensor.uniform_, Tensor.normal_, init.uniform_, init.normal_, init.kaiming_uniform_)
CPU = torch.device("cpu")


class StoredRun(Run):
    """A run in its folder. Each attribute is read and checked on first access."""

    path: Path

    def __init__(self, path: Path, device: torch.device, average: int | None) -> None:
        self.path = unpacked(path)
        self.folder = RunFolder(self.path)
        self.as_stored = average is None
        self._leave, self._device, self._average = leave_given(), device, average

    def trusted(self) -> AbstractContextManager[None]:
        """The context in which foreign code of the run is imported, if it was allowed when the run was opened."""
        return foreign_code(self._leave)

    @cached_property
    def recipe(self) -> Recipe:  # type: ignore[override]
        """The recipe. Raises UserError if this is not a run, its recipe was edited, or foreign code is not allowed."""
        with self.trusted():
            return self.folder.read_recipe()

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """Versions, seeds, hashes, the machine. Raises UserError if it is damaged or of a newer format."""
        return self.folder.read_manifest()

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl. Raises UserError if the file is missing, or a line is damaged."""
        return read_metrics(self.folder.metrics)

    @cached_property
    def task(self) -> Task:
        with self.trusted():
            return build_task(self.recipe.task)

    @cached_property
    def processors(self) -> Processors:
        """The processors of both sides. Raises UserError if their files are not those of training."""
        task = self.task  # raises first if this is not a run
        self.folder.check_vocabulary()
        with self.trusted():
            return task.processors(self.folder.vocabulary)

    @property
    def source(self) -> Processor:  # type: ignore[override]
        return self.processors[0]

    @property
    def target(self) -> Processor:  # type: ignore[override]
        return self.processors[1]

    def weights(self) -> dict[str, Tensor]:
        """The final weights, or the average of the last checkpoints. Raises UserError if missing or damaged."""
        with self.trusted():
            average, folder = self._average, self.folder
            stored = folder.read_weights() if average is None else average_weights(checkpoint_weights(folder, average))
        return todays_weights(stored, self.manifest.get("format", FORMAT))

    def without_weights(self) -> Run:
        """The run with a model whose weights are not loaded."""
        with (
            self.trusted(),
            memory_named(f"in making the model of {self.path}", "its recipe may be damaged"),
            NoInitialValues(),
        ):
            model = self.task.model(self.recipe, self.processors, initial=False)
            if self.recipe.training.int8_rounding == "fixed":
                round_to_int8(model, fixed=True)
        return Run(self.recipe, *self.processors, model.eval(), self.path)

    @cached_property
    def model(self) -> Model[Any]:  # type: ignore[override]
        """The model with its weights. Raises UserError if they do not match the recipe, or are damaged."""
        keep_freed_memory()
        model, weights = self.without_weights().model, self.weights()
        if known := self.manifest.get("code", {}):
            for name in changed_code(known, code_hashes(read_tree(self.folder.recipe_file, alone=True))):
                what = "is not as it was in training, and may make another model of the same weights"
                warn(f"{self.path}: {name} {what}")
        load_weights(model, weights, str(self.folder.weights))
        return model.to(self._device)

    def loaded(self) -> StoredRun:
        """Load the model, and return this run."""
        _ = self.model
        return self

    def kept_evaluations(self) -> list[dict[str, Any]]:
        """The dev evaluations of the checkpoint of the weights, or of the checkpoints that were averaged."""
        kept = self.manifest.get("averaged_updates", [])
        return [line for line in self.metrics if line.get("dev") and line["update"] in kept]

    def weights_shown(self) -> str:
        """The updates of the weights and the criterion of their choice, as text; empty if not known."""
        updates = self.manifest.get("averaged_updates", [])
        if not updates:
            return ""
        of = "the mean of those after updates" if len(updates) > 1 else "those after update"
        of = f"{of} {', '.join(f'{update:,}' for update in updates)}"
        training = self.recipe.training
        if self.recipe.data.dev is None or training.average.of == "last":
            return of
        with self.trusted():
            by = training.best_by or next((metric.name for metric in dev_metrics(self.recipe)), "loss")
        scores = {line["update"]: line["dev"][by] for line in self.metrics if by in line.get("dev", {})}
        equal = [update for update, score in scores.items() if score == scores.get(updates[-1])]
        tied = f", of {len(equal)} evaluations with {scores[equal[0]]:.2f} the lowest loss" if len(equal) > 1 else ""
        return f"{of}: best on dev by {by}{tied}"


def open_run(path: str | Path, *, device: torch.device = CPU, average: int | None = None) -> StoredRun:
    """Open a stored run. The context `foreign_code` allows it to import the code that it names.

    Args:
        path: the run folder, or a packed run, which is unpacked into the cache.
        device: the device of the model.
        average: average the weights of the last `average` checkpoints.
    """
    return StoredRun(Path(path), device, average)


def task_of(runs: Sequence[StoredRun]) -> Task:
    """The common task of runs. Raises UserError if they are not runs, have different tasks, or need foreign code."""
    if len({run.recipe.task for run in runs}) > 1:
        received = ", ".join(run.recipe.task for run in runs)
        raise UserError("runs of different tasks cannot predict together", where="RUN", received=received)
    return runs[0].task


class NoInitialValues(TorchFunctionMode):
    """Leaves the parameters of a new model uninitialised, because loaded weights will replace them all.

    Memory that is not written is not allocated by the system, however large a model a damaged recipe asks for.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func not in DRAWS:
            return func(*args, **kwargs)
        drawn = args[0] if args else kwargs["tensor"]
        # Random constants of a component are not stored in a file; parameters, and views of them, are.
        is_learned = isinstance(drawn, nn.Parameter) or isinstance(drawn._base, nn.Parameter)
        return drawn if is_learned else func(*args, **kwargs)
