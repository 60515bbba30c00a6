"""Scores on dev in training, with the band over seeds: who is sooner, and who is better."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from headway.comparison.cell_results import CellResult
from headway.comparison.comparison import Comparison
from headway.metrics import METRICS
from headway.metrics.metric import rank
from headway.tables import Cell, Column, Table

LOSS = "loss"


@dataclass(frozen=True)
class BandPoint:
    """An evaluation: after so many updates and, in the mean over seeds, seconds; the scores of the seeds.

    Args:
        update, seconds: when.
        mean: of the scores over seeds.
        low, high: the lowest and the highest of them.
        loss: the mean loss, infinite where it is not known.
    """

    update: int
    seconds: float
    mean: float
    low: float
    high: float
    loss: float


@dataclass(frozen=True)
class BandedCurves:
    """The curves of all variants that have one, by one metric on dev.

    Args:
        metric: its name; `loss` is the cross-entropy a token.
        higher_is_better: whether it is.
        lines: the evaluations that all seeds of a variant have, by variant.
        notes: further notes of the table.
    """

    metric: str
    higher_is_better: bool
    lines: dict[str, list[BandPoint]]
    notes: tuple[str, ...] = ()

    @property
    def are_long(self) -> bool:
        """Whether runs were evaluated more than once, so that who is sooner can be seen."""
        return any(len(points) > 1 for points in self.lines.values())

    def best(self, variant: str) -> BandPoint:
        """The best mean of a variant."""
        points, higher = self.lines[variant], self.higher_is_better
        return min(points, key=lambda point: rank(point.mean, point.loss, higher_is_better=higher))

    def table(self) -> Table:
        """The best score of each variant, and what it took to come as far as all variants come."""
        bests = {variant: self.best(variant) for variant in self.lines}
        means = [best.mean for best in bests.values()]
        level = min(means) if self.higher_is_better else max(means)
        rows: list[list[Cell]] = []
        for variant, best in bests.items():
            reached = next(point for point in self.lines[variant] if self._reaches(point.mean, level))
            rows.append([variant, best.mean, best.update, best.seconds, reached.update, reached.seconds])
        columns = [
            Column("variant"), Column("best on dev", format=".2f"), Column("at update", format=","),
            Column("after", "s", ",.0f"), Column(f"{level:.2f} at update", format=","), Column("after", "s", ",.0f"),
        ]  # fmt: skip
        notes = [f"{level:.2f} is as far as all variants come: better is one thing, sooner another.", *self.notes]
        return Table(columns, rows, title=f"{self.metric} on dev, means over seeds", notes=notes)

    def _reaches(self, mean: float, level: float) -> bool:
        return mean >= level if self.higher_is_better else mean <= level


def banded_curves(comparison: Comparison) -> list[BandedCurves]:
    """The curves of every metric that runs were evaluated by on dev, the comparison's own first; none without runs."""
    higher = {measure.metric.name: measure.metric.higher_is_better for measure in comparison.measures}
    found: dict[str, dict[str, list[BandPoint]]] = {}
    for variant, cells in comparison.cells.items():
        for metric in _metrics_of(cells):
            if points := _points(cells, metric):
                found.setdefault(metric, {})[variant] = points
    order = [*higher, *found]
    names = sorted(found, key=lambda name: (name == LOSS, order.index(name)))
    steps = {variant: cells[0].dev_steps or "none" for variant, cells in comparison.cells.items()}
    shown = "; ".join(f"{variant}: {each}" for variant, each in steps.items())
    differ = (f"The references of dev were not normalised alike ({shown}).",) if len(set(steps.values())) > 1 else ()
    return [
        BandedCurves(name, higher.get(name, _is_higher_better(name)), found[name], () if name == LOSS else differ)
        for name in names
    ]


def _is_higher_better(name: str) -> bool:
    """The direction of what was measured on dev alone; of a metric from outside the package, that of most."""
    return METRICS.get(name).higher_is_better if name in METRICS else name != LOSS


def _metrics_of(cells: Sequence[CellResult]) -> list[str]:
    """The metrics that all seeds were evaluated by."""
    every = [{name for point in cell.curve for name in point.scores} for cell in cells]
    return sorted(set.intersection(*every))


def _points(cells: Sequence[CellResult], metric: str) -> list[BandPoint]:
    by_seed = [{point.update: point for point in cell.curve if metric in point.scores} for cell in cells]
    points = []
    for update in sorted(set.intersection(*map(set, by_seed))):
        scores = [seed[update].scores[metric] for seed in by_seed]
        seconds = fmean(seed[update].seconds for seed in by_seed)
        loss = fmean(seed[update].scores.get(LOSS, math.inf) for seed in by_seed)
        points.append(BandPoint(update, seconds, fmean(scores), min(scores), max(scores), loss))
    return points
