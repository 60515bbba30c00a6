"""Training from Python in one call, and its result."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from headway.core.device import peak_memory
from headway.core.errors import UserError, option
from headway.core.log import duration, silenced
from headway.core.tables import Table
from headway.predictors.predictor import Run
from headway.recipe import Recipe, TrainingConfig, load_recipe
from headway.runs.load import AnyPredictor, load
from headway.runs.metrics import read_metrics
from headway.runs.run import open_run
from headway.runs.run_folder import RunFolder
from headway.tasks import dev_metrics
from headway.training.loop import train as run_training
from headway.training.parallel import told_once
from headway.training.session import dev_scores
from headway.training.start import open_session, warn_of_warmup
from headway.training.updates import sizes_of


@dataclass(frozen=True)
class Trained:
    """The result of training: a run folder.

    Attributes:
        run: the run folder.
        code: 0 if training is complete, 128 + the signal's number if a signal stopped it.
    """

    run: Path
    code: int

    @property
    def complete(self) -> bool:
        """Whether training is complete."""
        return self.code == 0

    @property
    def history(self) -> list[dict[str, Any]]:
        """The lines of `metrics.jsonl`: training progress, and the scores of every evaluation under `dev`."""
        return open_run(self.run).metrics

    @property
    def scores(self) -> dict[str, float]:
        """The dev scores of the weights, by metric: of their checkpoint, or of the last checkpoint of an average.

        They are empty without a dev set, and before the first checkpoint.
        """
        evaluated = open_run(self.run).kept_evaluations()
        return dict(evaluated[-1]["dev"]) if evaluated else {}

    @property
    def report(self) -> Path | None:
        """The report page; None if it was not written."""
        page = open_run(self.run).folder.report
        return page if page.is_file() else None

    def load(self, **options: Any) -> AnyPredictor:
        """The trained model. `options` are those of `headway.load`. Foreign code that the run names is imported."""
        return load(self.run, **{"allow_code": True} | options)

    def __repr__(self) -> str:
        state = "complete" if self.complete else "stopped"
        scores = ", ".join(f"{name} {value:.4g}" for name, value in self.scores.items())
        return f"<Trained {self.run}: {state}{', ' if scores else ''}{scores}>"


def train(
    recipe: str | Path | Mapping[str, Any] | Recipe,
    output: str | Path,
    overrides: Sequence[str] = (),
    *,
    resume: bool = False,
    report: bool = True,
) -> Trained:
    """Train the model that `recipe` describes, in the run folder `output`.

    With `resume`, a run that was stopped continues from its last complete checkpoint. On the same machine with the same
    number of threads, its final weights are bit for bit those of an uninterrupted run.

    Args:
        recipe: a recipe file, its sections as a dict, or a Recipe.
        output: the run folder to make.
        overrides: changes to a recipe that is a file or a dict, such as `training.updates=2000`.
        resume: continue the run in `output`.
        report: write `report.html` when training is complete.

    Raises:
        UserError: the recipe, the data or the run folder is not usable.
        RunError: training diverged, or memory or disk space ran out.
    """
    output = Path(output)
    with told_once():
        checked = recipe if isinstance(recipe, Recipe) else load_recipe(recipe, overrides)
    return Trained(output, run_training(checked, output, resume=resume, report=report))


UPDATES = 6  # the first is slower than the others, and not counted in the median
DECODED = 64  # examples of a dev set: an untrained model writes outputs of the maximum length


@dataclass(frozen=True)
class TrainingEstimate:
    """The estimated cost of a training run, from a few of its updates.

    Attributes:
        updates: the number of updates; None if only the time is limited.
        evaluation_seconds: the time of one evaluation, from decoding a few examples; 0 without dev. An untrained model
            writes long outputs, so later evaluations are faster.
        evaluations: the number of evaluations.
        seconds: the total time.
        memory: the peak memory so far, in bytes.
        disk: the size of the kept checkpoints and the final weights, in bytes.
    """

    parameters: int
    updates: int | None
    updates_per_epoch: int
    update_seconds: float
    evaluation_seconds: float
    evaluations: int
    seconds: float
    memory: int
    disk: int

    def table(self) -> Table:
        """The estimate as a table for display."""
        rows = [
            ("parameters", f"{self.parameters:,}"),
            ("updates", "until the time is over" if self.updates is None else f"{self.updates:,}"),
            ("updates an epoch", f"{self.updates_per_epoch:,}"),
            ("seconds an update", f"{self.update_seconds:.3g}"),
            ("seconds an evaluation", f"at most {self.evaluation_seconds:.3g}"),
            ("evaluations", f"{self.evaluations:,}"),
            ("time of all", f"about {duration(self.seconds)}"),
            ("memory", f"{self.memory / 1e9:.1f} GB so far; a batch of longer sentences may take more"),
            ("disk", f"{self.disk / 1e6:,.0f} MB"),
        ]
        return Table(["training will take", ""], rows)


def dry_run(recipe: Recipe, begun: Callable[[Run], object] | None = None) -> TrainingEstimate:
    """Read, check and build everything, make a few updates and evaluate a few examples, without leaving any files.

    `begun` is called with the run when everything is built.

    Raises:
        UserError: the recipe or the data is not usable, or there are several processes.
        RunError: training fails.
    """
    if (processes := int(os.environ.get("WORLD_SIZE", 1))) > 1:
        what, allowed = "a dry run is made by one process", "headway train without torchrun"
        raise UserError(what, where=option("dry_run"), received=f"{processes} processes", allowed=allowed)
    few: dict[str, Any] = dict.fromkeys(("epochs", "minutes", "patience", "evaluate_every", "best_by"))
    few |= {"updates": UPDATES, "checkpoint_every": UPDATES, "log_every": 1, "loggers": (), "dev_metrics": ()}
    metrics = dev_metrics(recipe)
    warn_of_warmup(recipe)
    optimizer = recipe.optimizer.model_copy(update={"warmup": min(recipe.optimizer.warmup, UPDATES - 1)})
    short = recipe.model_copy(update={"training": recipe.training.model_copy(update=few), "optimizer": optimizer})
    with TemporaryDirectory(prefix="headway-dry-run-") as folder:
        run = RunFolder(Path(folder) / "run")
        run_training(short, run.path, trial=True, begun=begun)
        disk = sum(file.stat().st_size for file in run.checkpoints.rglob("*") if file.is_file())
        with silenced(), open_session(short, run.path, resume=True) as session:
            corpus, config = session.corpora.train, session.parallel.config
            batches = len(corpus.plan(config.seed, 0, **sizes_of(corpus, config)))
            decoding = 0.0  # seconds for decoding and scoring dev
            for dev in session.corpora.held_out():
                sample, began = dev.sample(DECODED), time.monotonic()
                dev_scores(session.model, sample, metrics, session.parallel)
                decoding += (time.monotonic() - began) * len(dev.examples) / len(sample.examples)
        return _estimate(recipe.training, run, math.ceil(batches / recipe.training.accumulate), decoding, disk)


def _estimate(
    training: TrainingConfig, run: RunFolder, updates_per_epoch: int, decoding: float, disk: int
) -> TrainingEstimate:
    lines = read_metrics(run.metrics)
    clock = [line["seconds"] for line in lines if "loss" in line]
    update = median(after - before for before, after in pairwise(clock))
    losses = [line["evaluation_seconds"] for line in lines if "evaluation_seconds" in line]
    evaluation = losses[-1] + decoding if losses else 0.0
    ends = [training.updates or math.inf, (training.epochs or math.inf) * updates_per_epoch]
    if training.minutes is not None:
        ends.append(60 * training.minutes / update)
    updates = min(ends)
    evaluations = math.ceil(updates / training.evaluation_interval)
    # The largest number of checkpoints at once: those that are kept, and the one that is being written.
    count, of_best = training.average.count, training.average.of == "best"
    checkpoints = max(training.keep_last, 1 if of_best else count) + 1
    if losses:
        checkpoints += count if of_best else 1
    return TrainingEstimate(
        parameters=run.read_manifest()["parameters"],
        updates=None if updates == ends[-1] and training.minutes is not None else int(updates),
        updates_per_epoch=updates_per_epoch,
        update_seconds=update,
        evaluation_seconds=evaluation,
        evaluations=evaluations,
        seconds=updates * update + evaluations * evaluation,
        memory=peak_memory(),
        disk=disk * checkpoints + run.weights.stat().st_size,
    )
