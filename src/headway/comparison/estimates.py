"""Times of cells: how far a run is, and how long others will take."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from headway.device import threads_set
from headway.log import silenced
from headway.recipe import Recipe
from headway.runs.run_folder import RunFolder
from headway.runs.training.dry_run import dry_run

COUNTED = ("update", "epoch", "seconds")  # in each line of metrics.jsonl
TAIL = 8192  # bytes at the end of metrics.jsonl, more than two lines of it


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
            entry = json.loads(line)
        except ValueError:  # the first may be cut
            continue
        if isinstance(entry, dict) and all(isinstance(entry.get(key), int | float) for key in COUNTED):
            entries.append(entry)
    return entries


def tried_seconds(recipe: Recipe, threads: int) -> float:
    """The time of a recipe's training, by a few updates and an evaluation. Raises as `train` does."""
    with silenced(), threads_set(threads):
        return dry_run(recipe).seconds


def expected(variant: str, known: Mapping[str, Sequence[float]]) -> float | None:
    """The seconds that a cell of a variant will take: as those of the variant that are known, else as all."""
    seconds = list(known.get(variant, ())) or [value for values in known.values() for value in values]
    return fmean(seconds) if seconds else None
