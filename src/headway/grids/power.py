"""The smallest difference between two variants that the seeds and segments of a comparison can detect."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import sqrt
from typing import NamedTuple

from scipy import special

from headway.grids.grid import Grid
from headway.metrics import Metric
from headway.metrics.intervals import LEVEL, Estimate

MOST_SEEDS, MOST_TIMES = 100, 1000
POWER = 0.8  # the power of the test, averaged over the variances that as many seeds might have estimated


class Deviations(NamedTuple):
    """Standard deviations of a difference between variants: between seeds, between segments, and their interaction."""

    seeds: float
    segments: float
    interaction: float

    def estimate(self, seeds: int, segments: int) -> Estimate:
        """The estimate of a difference of zero with `seeds` seeds and `segments` segments."""
        of_both = self.interaction**2 / (seeds * segments)
        return Estimate(0.0, seeds, segments, self.seeds**2 / seeds + of_both, self.segments**2 / segments, of_both)


# By metric: square roots of the median variances of pairs of variants in results/ whose records have all three.
TYPICAL = {
    "bleu": Deviations(0.4, 7.0, 19.5),
    "chrf": Deviations(0.7, 5.3, 14.9),
    "exact_match": Deviations(3.0, 10.9, 30.6),
    "wer": Deviations(1.7, 8.2, 15.9),
    "bracket-f1": Deviations(0.0, 18.7, 28.0),
}
PAIRS_SEEN, ANY_SEGMENTS = 100, 10**9


class Sought(NamedTuple):
    """A difference to be detected by a metric on a test set: `distance` from another value, at confidence `level`."""

    says: str
    metric: Metric
    test: str
    distance: float
    level: float = LEVEL

    def beyond(self, seeds: int, segments: int = ANY_SEGMENTS) -> str:
        """A warning that the difference cannot be detected. Empty if it can, or if typical variances are not known."""
        typical, label = TYPICAL.get(self.metric.name), self.metric.label
        if typical is None or seeds < 2:
            return ""
        estimate = typical.estimate(seeds, segments)
        if (least := reach(estimate, self.level, PAIRS_SEEN)) <= self.distance:
            return ""
        set_of, more = f" and {segments:,} segments", needed_in_words(estimate, self.distance, self.level, PAIRS_SEEN)
        if segments == ANY_SEGMENTS:
            set_of, more = ", whatever the test set", "more of them"
        of_what = f"{self.says}: {self.distance:.2g} {label} on {self.test}"
        told = f"which mostly tell {least:.2g} where variants differ as they usually do"
        return f"{of_what} is out of reach of {seeds} seeds{set_of}, {told}; {more} would mostly be enough"


def sought_of_grid(grid: Grid) -> Iterator[Sought]:
    """The margins of a grid, which must contain the confidence interval of even variants."""
    for test in grid.tests:
        for metric in grid.metrics_of(test):
            if margin := grid.config.margin.get(metric.name, grid.config.margin.get(metric.label)):
                yield Sought("the margin", metric, test.name, margin)


def scaled(estimate: Estimate, seeds: int, segments: int) -> Estimate:
    """The same difference, with the variances expected for `seeds` seeds and `segments` segments."""
    assert estimate.seed_variance is not None
    of_seeds, of_segments = estimate.seeds / seeds, estimate.segments / segments
    interaction = min(estimate.interaction_variance, estimate.seed_variance)
    return replace(
        estimate, seeds=seeds, segments=segments,
        seed_variance=(estimate.seed_variance - interaction * (1 - of_segments)) * of_seeds,
        segment_variance=estimate.segment_variance * of_segments,
        interaction_variance=estimate.interaction_variance * of_seeds * of_segments,
    )  # fmt: skip


def needed(
    estimate: Estimate, distance: float, level: float = LEVEL, seen: int | None = None
) -> tuple[int, int] | None:
    """The fewest seeds and segments, more than now, that distinguish a true difference from one at `distance`.

    They do so with probability `POWER`, if `reach` is within the distance. The segments are unchanged if up to
    `MOST_SEEDS` seeds are enough, and if nothing varies by segment, as for costs. Otherwise both grow by the same
    factor. The variances were estimated from `seen` seeds, by default those of the estimate.

    Returns:
        Seeds and segments. None if `MOST_TIMES` as many are not enough, or there is one seed.
    """
    if estimate.seed_variance is None or distance <= 0:
        return None
    for seeds in range(estimate.seeds + 1, MOST_SEEDS + 1):
        if reach(scaled(estimate, seeds, estimate.segments), level, seen or estimate.seeds) <= distance:
            return seeds, estimate.segments
    for times in range(2, MOST_TIMES + 1):
        segments = estimate.segments if _is_of_seeds(estimate) else estimate.segments * times
        grown = scaled(estimate, estimate.seeds * times, segments)
        if reach(grown, level, seen or estimate.seeds) <= distance:
            return grown.seeds, grown.segments
    return None


def reach(estimate: Estimate, level: float, seen: int) -> float:
    """The distance between the true difference and another value at which the interval excludes the value with `POWER`.

    The seeds' variance was estimated from `seen` seeds. It is usually too small, so that its uncertainty is included:
    with t the quantile of the interval, the interval excludes the value if a noncentral t variable of `seen` - 1
    degrees of freedom and noncentrality t is below the distance in standard errors (Julious and Owen 2006).
    """
    assert estimate.seed_variance is not None
    tail = (1 - level) / 2
    of_seeds = float(special.nctdtrit(seen - 1, -special.stdtrit(estimate.seeds - 1, tail), POWER)) ** 2
    of_segments = float(special.ndtri(POWER) - special.stdtrit(estimate.segments - 1, tail)) ** 2
    seeds = max(of_seeds * estimate.seed_variance, of_segments * estimate.interaction_variance)
    return sqrt(seeds + of_segments * estimate.segment_variance)


def needed_in_words(estimate: Estimate, distance: float, level: float = LEVEL, seen: int | None = None) -> str:
    """The result of `needed` as the subject of a sentence."""
    found = needed(estimate, distance, level, seen)
    if found is None:
        return f"more than {MOST_TIMES:,} times as many seeds{'' if _is_of_seeds(estimate) else ' and segments'}"
    seeds, segments = found
    return f"{seeds:,} seeds" + (f" and {segments:,} segments" if segments > estimate.segments else "")


def _is_of_seeds(estimate: Estimate) -> bool:
    """Whether the difference does not vary by segment."""
    return estimate.segment_variance == 0 == estimate.interaction_variance
