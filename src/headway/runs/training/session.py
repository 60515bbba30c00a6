"""A training run's things between updates: records, evaluation, checkpoints, the final model."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

import headway
from headway.console import console, say, warn
from headway.device import keep_freed_memory, machine
from headway.errors import UserError
from headway.files import remove_leftovers, write_text
from headway.losses import Objective
from headway.metrics import Metric
from headway.models import Model
from headway.optimizers.optimizers import build_optimizer
from headway.recipe import Recipe, changed_keys
from headway.runs.run_folder import RunFolder, average_weights, load_weights, model_weights
from headway.runs.training.checkpoints import (
    Checkpoint,
    TrainingState,
    folder_of,
    list_checkpoints,
    load_latest,
    optimizer_tensors,
    prune,
    restore_optimizer,
    save_checkpoint,
    update_of,
)
from headway.runs.training.evaluation import Evaluation, baseline_scores, evaluate
from headway.runs.training.parallel import Parallel, launch, shut_down, whole_tensors
from headway.runs.training.preparation import check_recipe, data_hashes, new_model, prepare, run_folder
from headway.runs.training.updates import Gradients, TrainingStep
from headway.tasks import dev_metrics
from headway.tasks.task import Corpora

# Keys that may change when a run goes on: they say when it ends and what it reports, not what an update computes.
FREE_TO_CHANGE = (
    "training.updates", "training.epochs", "training.minutes", "training.patience", "training.log_every",
    "training.keep_last", "training.tensorboard", "training.max_bad_updates", "data.lead", "decoding.batch_tokens",
)  # fmt: skip


@dataclass
class Session:
    """Everything that one training run holds. Only the first process reads, writes and speaks."""

    recipe: Recipe
    folder: RunFolder
    prepared: Corpora
    model: Model[Any]
    step: nn.Module
    optimizer: Optimizer
    state: TrainingState
    parallel: Parallel
    metrics: Sequence[Metric]
    baselines: Mapping[str, Mapping[str, float]]
    window: list[Gradients] = field(default_factory=list)
    window_began: float = 0.0
    shown: str = ""
    complete: bool = False  # whether the checkpoint gone on with is a finished run's last one

    def record(self, gradients: Gradients, rate: float) -> None:
        """Remember an update, and write a line of metrics.jsonl where one is due."""
        if not self.window:
            self.window_began = self.window_began or self.state.seconds
        self.window.append(gradients)
        self.complete = False
        self.state.target_tokens += gradients.tokens
        config, update = self.recipe.training, self.state.update
        if update % config.log_every == 0 or update % config.checkpoint_every == 0 or gradients.stop:
            self._log(rate)

    def _log(self, rate: float) -> None:
        good = [each for each in self.window if each.finite]
        tokens = sum(each.tokens for each in good)
        elapsed = max(self.state.seconds - self.window_began, 1e-9)
        loss = sum(each.loss for each in good) / tokens if tokens else None
        parts = good[0].parts if good and len(good[0].parts) > 1 else ()
        self._write_metrics(
            {
                "update": self.state.update,
                "epoch": self.state.epoch,
                "loss": loss,
                **{f"loss.{name}": sum(each.parts[name] for each in good) / tokens for name in parts},
                "target_tokens": tokens,
                "target_tokens_per_second": tokens / elapsed,
                "learning_rate": rate,
                "gradient_norm": sum(each.norm for each in good) / len(good) if good else None,
                "skipped": len(self.window) - len(good),
                "seconds": self.state.seconds,
            }
        )
        self.shown = f"loss {loss or 0:.3f} · {tokens / elapsed:,.0f} tokens/s"
        self.window, self.window_began = [], self.state.seconds

    def _write_metrics(self, values: dict[str, Any]) -> None:
        if not self.parallel.first:
            return
        with self.folder.metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(values) + "\n")
        if self.recipe.training.tensorboard:
            _tensorboard(self.folder, values)

    def progress_text(self, left: str) -> str:
        """What the progress line says."""
        best = f"best {self._best_by} {abs(self.state.best[0][0]):.2f}" if self.state.best else ""
        parts = (f"update {self.state.update} · epoch {self.state.epoch + 1}", self.shown, best, left)
        return " · ".join(part for part in parts if part)

    @property
    def _best_by(self) -> str:
        return self.recipe.training.best_by or (self.metrics[0].name if self.metrics else "loss")

    @property
    def _evaluate_every(self) -> int:
        config = self.recipe.training
        return config.evaluate_every or config.checkpoint_every

    def checkpoint(self, *, regular: bool) -> None:
        """Save all that the next update depends on; a `regular` checkpoint is evaluated first, where that is due.

        One that a signal asked for is not regular: it resumes the run but never counts for averages.
        """
        weights = whole_tensors(model_weights(self.model))
        due = regular and (self.state.update % self._evaluate_every == 0 or bool(self.state.stopped))
        if due and self.prepared.dev is not None:
            self._evaluate(weights)
        optimizer = optimizer_tensors(self.step, self.optimizer)
        self.parallel.from_first(lambda: self._save(weights, optimizer))

    def _save(self, weights: dict[str, Tensor], optimizer: dict[str, Tensor]) -> None:
        save_checkpoint(self.folder.checkpoints, self.state, weights, optimizer)
        regular = self._regular()
        config = self.recipe.training
        last = max(config.keep_last, config.average.count if config.average.of == "last" else 1)
        keep = {*regular[-last:], *(update for _, update in self.state.best), self.state.update}
        prune(self.folder.checkpoints, keep)
        if self.state.update in regular:
            self._write_model()

    def _regular(self) -> list[int]:
        """The updates of the regular checkpoints that are there: the same ones as in a run that nothing interrupted."""
        every = self.recipe.training.checkpoint_every
        updates = [update_of(folder) for folder in list_checkpoints(self.folder.checkpoints)]
        return [update for update in updates if update % every == 0 or (self.state.stopped and update == updates[-1])]

    def _write_model(self) -> None:
        average, regular = self.recipe.training.average, self._regular()
        best = [update for _, update in self.state.best]
        chosen = sorted(best[: average.count] if average.of == "best" and best else regular[-average.count :])
        files = [folder_of(self.folder.checkpoints, update) / "model.safetensors" for update in chosen]
        status = "finished" if self.state.stopped else "training"
        self.folder.write_weights(average_weights(files), {"averaged_updates": chosen, "status": status})

    def _evaluate(self, weights: dict[str, Tensor]) -> None:
        result = self.parallel.from_first(lambda: self._evaluate_first(weights))
        key = result.loss if self._best_by == "loss" else result.scores[self._best_by]
        higher = self._best_by != "loss" and next(
            metric.higher_is_better for metric in self.metrics if metric.name == self._best_by
        )
        ranked = [*self.state.best, (-key if higher else key, self.state.update)]
        gained = not self.state.best or ranked[-1][0] < self.state.best[0][0]
        self.state.evaluations_without_gain = 0 if gained else self.state.evaluations_without_gain + 1
        average = self.recipe.training.average
        self.state.best = sorted(ranked)[: average.count if average.of == "best" else 1]

    def _evaluate_first(self, weights: dict[str, Tensor]) -> Evaluation:
        began = time.monotonic()
        model = self.model
        if self.parallel.world_size > 1 and self.recipe.training.strategy == "fsdp":
            model = new_model(self.recipe, self.prepared, initial=False).to(self.parallel.device)
            load_weights(model, weights, "training")
        result = evaluate(model, self.recipe, self.prepared, self.metrics, self.parallel.device)
        self._write_metrics(
            {
                "update": self.state.update,
                "epoch": self.state.epoch,
                "dev_loss": result.loss,
                "dev": result.scores,
                **({"baselines": self.baselines} if self.baselines else {}),
                "seconds": self.state.seconds,
                "evaluation_seconds": time.monotonic() - began,
            }
        )
        place = f"update {self.state.update} · epoch {self.state.epoch + 1}"
        say(f"{place} · {self.shown} · dev loss {result.loss:.3f}{_shown(result.scores)}")
        for name, scores in self.baselines.items():
            say(f"  beside it, on dev, {name}{_shown(scores)}")
        return result

    def finish(self) -> None:
        """The last checkpoint, the final model and the manifest's last word."""
        if self.window:
            self._log(self.optimizer.param_groups[0]["lr"])
        if self.complete or self.state.update % self._evaluate_every == 0:
            self.parallel.from_first(self._write_model)
        else:
            self.checkpoint(regular=True)
        if self.parallel.first:
            self.folder.write_manifest({"updates": self.state.update, "seconds": self.state.seconds})
            say(f"training is complete ({self.state.stopped}): {self.folder.weights}")


def _shown(scores: Mapping[str, float]) -> str:
    return "".join(f" · {name} {value:.2f}" for name, value in scores.items())


@contextmanager
def open_session(recipe: Recipe, output: Path, resume: bool) -> Iterator[Session]:
    """Prepare a run, new or resumed, and end its process group afterwards. Raises as `train` does."""
    keep_freed_memory()
    parallel = launch(recipe.training)
    console.quiet = console.quiet or not parallel.first
    try:
        folder = RunFolder(output)
        parallel.from_first(partial(check_recipe, recipe))
        parallel.from_first(partial(_claim, recipe, output, resume))
        prepared = prepare(recipe, folder) if parallel.first else None
        parallel.from_first(lambda: None)
        yield _session(recipe, folder, prepared or prepare(recipe, folder), parallel)
    finally:
        shut_down()


def _claim(recipe: Recipe, output: Path, resume: bool) -> None:
    """Make the folder ours, or, resuming, see that its recipe is this one."""
    folder = run_folder(output, resume)
    if folder.recipe_file.exists():
        changes = changed_keys(folder.read_recipe(), recipe)
        shown = "; ".join(f"{key}: {old!r} -> {new!r}" for key, (old, new) in changes.items())
        if any(key not in FREE_TO_CHANGE for key in changes):
            allowed = f"the run's own recipe, or changes of {', '.join(FREE_TO_CHANGE)}"
            raise UserError(f"--resume with a changed recipe ({shown})", where=str(output), allowed=allowed)
        if changes:
            warn(f"the recipe has changed: {shown}")
    remove_leftovers(folder.path)
    remove_leftovers(folder.checkpoints)
    folder.write_recipe(recipe)


def _session(recipe: Recipe, folder: RunFolder, prepared: Corpora, parallel: Parallel) -> Session:
    hashes = data_hashes(prepared)
    parallel.from_first(partial(_same_data, folder, hashes))
    checkpoint: Checkpoint | None = load_latest(folder.checkpoints, warn) if parallel.first else None
    parallel.from_first(lambda: None)
    if not parallel.first:
        checkpoint = load_latest(folder.checkpoints, warn)
    state = checkpoint.state if checkpoint else TrainingState()
    model = new_model(recipe, prepared, initial=checkpoint is None)
    if checkpoint:
        load_weights(model, checkpoint.weights, str(folder.checkpoints))
    step = TrainingStep(model.to(parallel.device), Objective(recipe.objective))
    wrapped = parallel.wrap(step, model.layers())
    optimizer = build_optimizer(recipe.optimizer, step)
    if checkpoint:
        restore_optimizer(step, optimizer, checkpoint.optimizer)
    metrics = dev_metrics(recipe)
    baselines = baseline_scores(prepared, metrics) if parallel.first else {}
    if parallel.first:
        _start_records(folder, recipe, model, hashes, state)
    return Session(
        recipe,
        folder,
        prepared,
        model,
        wrapped,
        optimizer,
        state,
        parallel,
        metrics,
        baselines,
        complete=bool(state.stopped),
    )


def _same_data(folder: RunFolder, hashes: dict[str, str]) -> None:
    known = folder.read_manifest().get("data", hashes)
    if known != hashes:
        raise UserError(
            "the data has changed since this run began", where=str(folder.path), received=hashes, allowed=str(known)
        )


def _start_records(
    folder: RunFolder, recipe: Recipe, model: nn.Module, hashes: dict[str, str], state: TrainingState
) -> None:
    """The manifest, and metrics.jsonl without what came after the checkpoint that training goes on from."""
    parameters = sum(parameter.numel() for parameter in model.parameters())
    folder.write_manifest(
        {
            "headway": headway.__version__,
            "status": "training",
            "seed": recipe.training.seed,
            "parameters": parameters,
            "data": hashes,
            "machine": machine(),
        }
    )
    lines = folder.metrics.read_text(encoding="utf-8").splitlines() if folder.metrics.exists() else []
    kept = [line for line in lines if _is_before(line, recipe, state)]
    write_text(folder.metrics, "".join(f"{line}\n" for line in kept))
    begun = f"going on after update {state.update}" if state.update else "starting"
    say(f"{begun}: {parameters:,} parameters, {machine()['threads']} threads, {folder.path}")


def _is_before(line: str, recipe: Recipe, state: TrainingState) -> bool:
    """Whether a line of metrics.jsonl is whole and was written before the checkpoint that `state` was read from."""
    try:
        entry = json.loads(line)
    except ValueError:
        return False
    every = recipe.training.evaluate_every or recipe.training.checkpoint_every
    # The last update's checkpoint is written anew once the end has been evaluated, if that was not due before.
    evaluated = bool(state.stopped) or state.update % every == 0
    is_of_the_end = "dev_loss" in entry and not evaluated
    return bool(entry["update"] < state.update or (entry["update"] == state.update and not is_of_the_end))


def _tensorboard(folder: RunFolder, values: dict[str, Any]) -> None:
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(folder.path / "tensorboard")) as writer:
        flat = {key: value for key, value in values.items() if isinstance(value, int | float)} | values.get("dev", {})
        for name, value in flat.items():
            writer.add_scalar(name, value, values["update"])
