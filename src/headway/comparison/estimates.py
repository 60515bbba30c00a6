"""Times of cells: how far a run is, and how long others will take."""

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from headway.comparison.grid import changed
from headway.errors import RunError
from headway.log import silenced
from headway.recipe import Recipe
from headway.runs.run_folder import RunFolder
from headway.runs.training.loop import train
from headway.runs.training.preparation import prepare

TAIL = 8192  # bytes at the end of metrics.jsonl, more than two lines of it
TRIED = 6  # updates whose time is measured, after as many that warm up


@dataclass(frozen=True)
class RunProgress:
    """How far a run's training is.

    Attributes:
        update: the last update that was logged.
        share: of all training, from 0 to 1.
        seconds: of training so far.
        loss: at the last update, where it is known.
    """

    update: int
    share: float
    seconds: float
    loss: float | None = None

    @property
    def total(self) -> float | None:
        """The seconds of all training, once something is known."""
        return self.seconds / self.share if self.share > 0 else None

    @property
    def left(self) -> float | None:
        """The seconds of training that are still to come."""
        return None if self.total is None else self.total - self.seconds


def progress_of(run: Path, recipe: Recipe) -> RunProgress:
    """How far a run is, by the end of its metrics.jsonl."""
    entries = _last_entries(RunFolder(run).metrics)
    losses = [entry["loss"] for entry in entries if "loss" in entry]
    if not entries:
        return RunProgress(0, 0.0, 0.0)
    last, config = entries[-1], recipe.training
    ends = ((config.updates, last["update"]), (config.epochs, last["epoch"]), (config.minutes, last["seconds"] / 60))
    share = max((done / end for end, done in ends if end), default=0.0)
    return RunProgress(last["update"], min(1.0, share), last["seconds"], losses[-1] if losses else None)


def _last_entries(metrics: Path) -> list[dict[str, Any]]:
    """The whole lines at the end of metrics.jsonl, which may be written to."""
    try:
        with metrics.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
            lines = file.read().decode("utf-8", "ignore").split("\n")[:-1]
    except OSError:
        return []
    entries = []
    for line in lines:
        try:
            entries.append(json.loads(line))
        except ValueError:  # the first may be cut
            continue
    return entries


def training_seconds(recipe: Recipe, seconds_per_update: float, batches: int | None = None) -> float:
    """The time of a recipe's training at a speed.

    Args:
        recipe: how long it is trained.
        seconds_per_update: the speed.
        batches: of an epoch, where the recipe counts epochs.
    """
    config, ends = recipe.training, list[float]()
    if config.updates is not None:
        ends.append(config.updates * seconds_per_update)
    if config.epochs is not None and batches is not None:
        ends.append(config.epochs * -(-batches // config.accumulate) * seconds_per_update)
    if config.minutes is not None:
        ends.append(60 * config.minutes)
    return min(ends)


def tried_seconds(recipe: Recipe, threads: int) -> float:
    """The time of a recipe's training, by a few updates of it. Raises as `train` does."""
    ends = {"training.updates": 2 * TRIED, "training.epochs": None, "training.minutes": None}
    without_dev: dict[str, Any] = {
        "data.dev": None,
        "training.patience": None,
        "training.best_by": None,
        "data.lead": [],
    }
    often = {"training.log_every": TRIED, "training.checkpoint_every": 2 * TRIED, "training.evaluate_every": None}
    short, before = changed(recipe, ends | without_dev | often), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with tempfile.TemporaryDirectory(prefix="headway-") as folder, silenced():
            if train(short, Path(folder) / "run"):
                raise RunError("stopped")
            marks = [entry["seconds"] for entry in _last_entries(RunFolder(Path(folder) / "run").metrics)]
            batches = None
            if recipe.training.epochs is not None:
                corpora = prepare(short, RunFolder(Path(folder) / "run"))
                batches = len(corpora.train.plan(1, 0, **recipe.training.batch_sizes()))
    finally:
        torch.set_num_threads(before)
    return training_seconds(recipe, (marks[-1] - marks[0]) / TRIED, batches)


def expected(variant: str, known: Mapping[str, Sequence[float]]) -> float | None:
    """The seconds that a cell of a variant will take: as those of the variant that are known, else as all."""
    seconds = list(known.get(variant, ())) or [value for values in known.values() for value in values]
    return fmean(seconds) if seconds else None
