"""The gate for runs: whoever looks at a run that is there opens it here."""

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

# The functions that draw initial values, as far as torch hands them to a mode; the others call these.
DRAWS = (Tensor.uniform_, Tensor.normal_, init.uniform_, init.normal_, init.kaiming_uniform_)
CPU = torch.device("cpu")


class StoredRun(Run):
    """A run in its folder. Each part is read, and checked, when it is first asked for; nothing but the run is read."""

    path: Path

    def __init__(self, path: Path, device: torch.device, average: int | None) -> None:
        self.path = unpacked(path)
        self.folder = RunFolder(self.path)
        self.as_stored = average is None
        self._leave, self._device, self._average = leave_given(), device, average

    def trusted(self) -> AbstractContextManager[None]:
        """The context in which the code that the run names is imported, if leave was given where it was opened."""
        return foreign_code(self._leave)

    @cached_property
    def recipe(self) -> Recipe:  # type: ignore[override]
        """Raises UserError where this is no run, or its recipe was edited or names code that nobody allowed."""
        with self.trusted():
            return self.folder.read_recipe()

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """Versions, seeds, hashes, the machine; raises UserError where it is damaged or of a newer format."""
        return self.folder.read_manifest()

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl. Raises UserError where there are none, or one is damaged."""
        return read_metrics(self.folder.metrics)

    @cached_property
    def task(self) -> Task:
        """The task of the recipe."""
        with self.trusted():
            return build_task(self.recipe.task)

    @cached_property
    def processors(self) -> Processors:
        """Those of both sides. Raises UserError where they are not those of training."""
        task = self.task  # a folder that is no run has no vocabulary either
        self.folder.check_vocabulary()
        with self.trusted():
            return task.processors(self.folder.vocabulary)

    @property
    def source(self) -> Processor:  # type: ignore[override]
        """The processor of inputs."""
        return self.processors[0]

    @property
    def target(self) -> Processor:  # type: ignore[override]
        """The processor of outputs."""
        return self.processors[1]

    def weights(self) -> dict[str, Tensor]:
        """The final weights, or the mean of the last checkpoints. Raises UserError: there are none, or damaged ones."""
        with self.trusted():
            average, folder = self._average, self.folder
            stored = folder.read_weights() if average is None else average_weights(checkpoint_weights(folder, average))
        return todays_weights(stored, self.manifest.get("format", FORMAT))

    def without_weights(self) -> Run:
        """The run with a model that has no weights yet."""
        with (
            self.trusted(),
            memory_named(f"in making the model of {self.path}", "its recipe may be damaged"),
            NoInitialValues(),
        ):
            model = self.task.model(self.recipe, self.processors, initial=False)
        return Run(self.recipe, *self.processors, model.eval(), self.path)

    @cached_property
    def model(self) -> Model[Any]:  # type: ignore[override]
        """The model with its weights. Raises UserError where these do not match the recipe, or are damaged."""
        keep_freed_memory()
        model, weights = self.without_weights().model, self.weights()
        if known := self.manifest.get("code", {}):
            for name in changed_code(known, code_hashes(read_tree(self.folder.recipe_file, alone=True))):
                what = "is not as it was in training, and may make another model of the same weights"
                warn(f"{self.path}: {name} {what}")
        load_weights(model, weights, str(self.folder.weights))
        return model.to(self._device)

    def loaded(self) -> StoredRun:
        """The same run, whose model has been read by now."""
        _ = self.model
        return self

    def kept_evaluations(self) -> list[dict[str, Any]]:
        """The evaluations on dev of the checkpoint that the weights are, or of those that they are the mean of."""
        kept = self.manifest.get("averaged_updates", [])
        return [line for line in self.metrics if line.get("dev") and line["update"] in kept]

    def weights_shown(self) -> str:
        """The updates that the weights are of, and by what they were chosen, in words; empty where not known."""
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
    """A run that is there, by its folder or a pack of it. `foreign_code` allows it to import what it names.

    Args:
        path: the folder, or the pack, which is unpacked into the cache.
        device: where its model is to be.
        average: use the mean of the last so many checkpoints.
    """
    return StoredRun(Path(path), device, average)


def task_of(runs: Sequence[StoredRun]) -> Task:
    """The task of these runs. Raises UserError where they are no runs, or of different tasks, or foreign code."""
    if len({run.recipe.task for run in runs}) > 1:
        received = ", ".join(run.recipe.task for run in runs)
        raise UserError("runs of different tasks cannot predict together", where="RUN", received=received)
    return runs[0].task


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
