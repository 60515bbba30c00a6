"""Training from Python in one call, and what it leaves."""

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
    """A run that training has left.

    Attributes:
        run: the run folder.
        code: 0 where training is complete, 128 + the signal's number where a signal stopped it.
    """

    run: Path
    code: int

    @property
    def complete(self) -> bool:
        """Whether training came to its end."""
        return self.code == 0

    @property
    def history(self) -> list[dict[str, Any]]:
        """The lines of `metrics.jsonl`: training progress, and the scores of every evaluation under `dev`."""
        return open_run(self.run).metrics

    @property
    def scores(self) -> dict[str, float]:
        """The dev scores of the weights, by metric: of their checkpoint, or of the last of those that were averaged.

        They are empty without a dev set, and before the first checkpoint.
        """
        evaluated = open_run(self.run).kept_evaluations()
        return dict(evaluated[-1]["dev"]) if evaluated else {}

    @property
    def report(self) -> Path | None:
        """The report page, where there is one."""
        page = open_run(self.run).folder.report
        return page if page.is_file() else None

    def load(self, **options: Any) -> AnyPredictor:
        """The trained model; `options` are those of `headway.load`. The code that the run names is imported."""
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
    """Train what `recipe` describes into the run folder `output`.

    With `resume`, a run that was stopped continues from its last whole checkpoint. It ends, on the same machine
    with the same number of threads, with the same weights bit for bit as a run that was never interrupted.

    Args:
        recipe: a recipe file, its sections as a dict, or a Recipe.
        output: the run folder to make.
        overrides: changes to a recipe that is a file or a dict, such as `training.updates=2000`.
        resume: go on with the run that is there.
        report: write `report.html` where training is complete.

    Raises:
        UserError: a recipe, data or run folder that cannot be used.
        RunError: training diverged, memory or the disk ran out.
    """
    output = Path(output)
    with told_once():
        checked = recipe if isinstance(recipe, Recipe) else load_recipe(recipe, overrides)
    return Trained(output, run_training(checked, output, resume=resume, report=report))


UPDATES = 6  # the first is slower than the others, and is left out of the median
DECODED = 64  # examples of a dev set: a model that has learned nothing writes all that it may


@dataclass(frozen=True)
class TrainingEstimate:
    """The cost of a whole training, from a few updates of it.

    Attributes:
        updates: until the end; None where only a time is given.
        evaluation_seconds: of one evaluation, by the search of a few examples, 0 without dev. A model that has learned
            nothing writes long outputs, so that later evaluations are quicker.
        evaluations: until the end.
        seconds: of everything.
        memory: the most bytes in use so far.
        disk: the bytes of the checkpoints that are kept, and of the final weights.
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
        """The estimate, to be read."""
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
    """Read, check and build everything, make a few updates, evaluate a few examples, and leave nothing behind.

    `begun` is called with the run when all is built.

    Raises:
        UserError: a recipe or data that cannot be used, or several processes.
        RunError: what training itself raises.
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
            decoding = 0.0  # seconds of the outputs for dev and their scores
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
    # The most checkpoints that there are at once: those that are kept, and one that is being written.
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
