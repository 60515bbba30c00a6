"""`bench.py race`: how soon runs reach a score, in processor time of training."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from headway.core.errors import UserError, option
from headway.core.files import write_json
from headway.core.tables import Cell, Column, Spread, Table
from headway.runs.run import open_run
from headway.tasks import dev_metrics


class Racer(NamedTuple):
    """A run, the system that it is one of, and its seed."""

    system: str
    seed: int
    run: Path

    def __str__(self) -> str:
        return f"{self.system}, seed {self.seed}"


class RacePoint(NamedTuple):
    """A score on dev, and the processor seconds of training before it."""

    update: int
    cpu_seconds: float
    score: float


def run_bench_race(
    racers: Sequence[Racer], metric: str | None, goal: float | None, output: Path | None = None
) -> list[Table]:
    """The curves of runs by processor time, and the time to a score, run by run and over the seeds of a system.

    Args:
        racers: the runs, finished or not.
        metric: of dev; by default the first that the first run has.
        goal: the score to reach, where one is asked for.
        output: a JSON file for the tables.

    Raises:
        UserError: two runs of one name; a folder without metrics, without evaluations, or without processor times; a
            metric that a run was not scored with.
    """
    counts = Counter(map(str, racers))
    if twice := [name for name, count in counts.items() if count > 1]:
        raise UserError("two runs of one name", where=option("runs"), received=twice, allowed="NAME:SEED=RUN")
    evaluations = {racer: _evaluations(racer.run) for racer in racers}
    name = metric or next(iter(next(iter(evaluations.values()))[0]["dev"]))
    curves = {racer: _curve(str(racer.run), lines, name) for racer, lines in evaluations.items()}
    tables = [curve_table(curves, name)]
    if goal is not None:
        scored = dev_metrics(open_run(racers[0].run).recipe)
        found = next(found for found in scored if found.name == name)
        race = Race(found.label, found.higher_is_better, goal, curves)
        tables += [race.run_table(), race.system_table()]
    if output is not None:
        write_json(output, [table.to_json() for table in tables])
    return tables


def _evaluations(run: Path) -> list[dict[str, Any]]:
    lines = [line for line in open_run(run).metrics if line.get("dev")]
    if not lines:
        raise UserError("this run has no scores on dev", where=str(run))
    return lines


def _curve(run: str, lines: Sequence[dict[str, Any]], metric: str) -> list[RacePoint]:
    if metric not in lines[0]["dev"]:
        allowed = ", ".join(lines[0]["dev"])
        raise UserError(
            f"{run} was not scored with this metric", where=option("metric"), received=metric, allowed=allowed
        )
    if "cpu_seconds" not in lines[0]:
        raise UserError("this run was trained by a version of headway that did not record processor time", where=run)
    return [RacePoint(line["update"], line["cpu_seconds"], line["dev"][metric]) for line in lines]


def curve_table(curves: Mapping[Racer, Sequence[RacePoint]], metric: str) -> Table:
    """All evaluations of all runs in the order of their processor time."""
    points = sorted(
        ((point, racer) for racer, curve in curves.items() for point in curve), key=lambda item: item[0].cpu_seconds
    )
    rows = [(point.cpu_seconds / 60, str(racer), point.update, point.score) for point, racer in points]
    columns = [
        Column("CPU minutes", format=".1f"), Column("run"), Column("update", format=","), Column(metric, format=".2f")
    ]  # fmt: skip
    return Table(columns, rows, title=f"{metric} on dev by processor time")


@dataclass(frozen=True)
class Race:
    """The curves of runs on their way to a score.

    Args:
        metric: its name in print.
        higher_is_better: whether the goal is reached from below.
        goal: the score.
        curves: the evaluations of each run, in their order.
    """

    metric: str
    higher_is_better: bool
    goal: float
    curves: Mapping[Racer, Sequence[RacePoint]]

    def run_table(self) -> Table:
        """A row a run: how far it went, its best score, and the first evaluation that has the goal."""
        rows: list[list[Cell]] = []
        for racer, curve in self.curves.items():
            there, last = self._reached(curve), curve[-1]
            found = (there.update, there.cpu_seconds / 60) if there else (None, None)
            rows.append([str(racer), last.update, last.cpu_seconds / 60, last.score, self._best(curve), *found])
        columns = [
            Column("run"), Column("updates", format=","), Column("CPU minutes", format=".1f"),
            Column(f"{self.metric} then", format=".2f"), Column(f"best {self.metric}", format=".2f"),
            Column(f"update with {self.goal:g}", format=","), Column(f"CPU minutes to {self.goal:g}", format=".1f"),
        ]  # fmt: skip
        notes = ["Nothing stands where the goal was not reached. Times end at the first evaluation that has it."]
        return Table(columns, rows, title=f"The way to {self.goal:g} {self.metric} on dev", notes=notes)

    def system_table(self) -> Table:
        """A row a system: the mean time to the goal over its seeds, and its share of the first system's."""
        rows: list[list[Cell]] = []
        first: float | None = None
        for system in dict.fromkeys(racer.system for racer in self.curves):
            curves = [curve for racer, curve in self.curves.items() if racer.system == system]
            times = [there.cpu_seconds / 60 for curve in curves if (there := self._reached(curve))]
            all_there = len(times) == len(curves)
            mean = statistics.mean(times) if all_there else None
            first = first if rows else mean
            share = mean / first if mean and first else None
            time = _spread(times) if all_there else None
            rows.append(
                [system, len(curves), len(times), time, share, _spread([self._best(curve) for curve in curves])]
            )
        columns = [
            Column("system"), Column("seeds"), Column(f"seeds with {self.goal:g}"),
            Column(f"CPU minutes to {self.goal:g}", format=".1f"), Column("share of the first", format=".2f"),
            Column(f"best {self.metric}", format=".2f"),
        ]  # fmt: skip
        notes = ["±: standard deviation between seeds. A system has a time where all of its seeds reached the goal."]
        return Table(columns, rows, title=f"Time to {self.goal:g} {self.metric} on dev", notes=notes)

    def _reached(self, curve: Sequence[RacePoint]) -> RacePoint | None:
        """The first evaluation that has the goal."""
        sign = 1 if self.higher_is_better else -1
        return next((point for point in curve if sign * point.score >= sign * self.goal), None)

    def _best(self, curve: Sequence[RacePoint]) -> float:
        scores = [point.score for point in curve]
        return max(scores) if self.higher_is_better else min(scores)


def _spread(values: Sequence[float]) -> Cell:
    return Spread(statistics.mean(values), statistics.stdev(values)) if len(values) > 1 else values[0]
