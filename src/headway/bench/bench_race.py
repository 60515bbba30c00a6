"""`headway bench race`: how soon runs reach a score, in processor time of training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from headway.errors import UserError, option
from headway.files import write_json
from headway.runs.inspect.pages import read_metrics
from headway.runs.run_folder import RunFolder
from headway.tables import Cell, Column, Table


class RacePoint(NamedTuple):
    """A score on dev, and the processor seconds of training before it."""

    update: int
    cpu_seconds: float
    score: float


def run_bench_race(runs: Sequence[Path], metric: str | None, goal: float | None, output: Path | None) -> list[Table]:
    """The curves of runs by processor time, and the time to a score.

    Args:
        runs: run folders, finished or not.
        metric: of dev; by default the first that the first run has.
        goal: the score to reach, where one is asked for.
        output: a JSON file for the tables.

    Raises:
        UserError: a folder without metrics, without evaluations, or without processor times.
    """
    evaluations = {str(run): _evaluations(run) for run in runs}
    name = metric or next(iter(next(iter(evaluations.values()))[0]["dev"]))
    curves = {run: _curve(run, lines, name) for run, lines in evaluations.items()}
    tables = [curve_table(curves, name)]
    if goal is not None:
        tables.append(goal_table(curves, name, goal))
    if output is not None:
        write_json(output, [table.to_json() for table in tables])
    return tables


def _evaluations(run: Path) -> list[dict[str, Any]]:
    lines = [line for line in read_metrics(RunFolder(run).metrics) if line.get("dev")]
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


def curve_table(curves: dict[str, list[RacePoint]], metric: str) -> Table:
    """All evaluations of all runs in the order of their processor time."""
    points = sorted(
        ((point, run) for run, curve in curves.items() for point in curve), key=lambda item: item[0].cpu_seconds
    )
    rows = [(point.cpu_seconds / 60, run, point.update, point.score) for point, run in points]
    columns = [
        Column("CPU minutes", format=".1f"),
        Column("run"),
        Column("update", format=","),
        Column(metric, format=".2f"),
    ]
    return Table(columns, rows, title=f"{metric} on dev by processor time")


def goal_table(curves: dict[str, list[RacePoint]], metric: str, goal: float) -> Table:
    """The processor time until the first evaluation of each run with the goal, and its share of the first run's."""
    times = {run: reached(curve, goal) for run, curve in curves.items()}
    first = next(iter(times.values()))
    rows: list[list[Cell]] = []
    for run, seconds in times.items():
        share = seconds / first if seconds is not None and first else None
        rows.append([run, None if seconds is None else seconds / 60, share, max(point.score for point in curves[run])])
    columns = [
        Column("run"), Column(f"CPU minutes to {goal:g}", format=".1f"), Column("share of the first", format=".2f"),
        Column(f"best {metric}", format=".2f"),
    ]  # fmt: skip
    notes = ["Nothing stands where the goal was not reached. Times end at the first evaluation that has it."]
    return Table(columns, rows, title=f"Time to {goal:g} {metric} on dev", notes=notes)


def reached(curve: Sequence[RacePoint], goal: float) -> float | None:
    """The processor seconds before the first evaluation that has the goal."""
    return next((point.cpu_seconds for point in curve if point.score >= goal), None)
