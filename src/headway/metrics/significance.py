"""Resampling tests, for every Metric, of whether the difference between two systems is more than chance.

Resamples are drawn in the order in which sacrebleu draws them, so that the same seed gives the same resamples as there.
All draws are deterministic in (seed, samples, N) and do not depend on how they are cut into chunks.

Shapes: N segments, k statistics of one segment, R resamples.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from headway.errors import UserError
from headway.metrics.metric import Metric, Statistics

# Elements of the (R, N) matrix that are held at a time: 32 MB in float64.
CHUNK = 1 << 22
# Two ways of adding up the same score differ by rounding; differences nearer than this (in points) are ties.
TIE = 1e-9


@dataclass(frozen=True)
class Interval:
    """Mean over the resamples, and the percentile interval (`low`, `high`) that holds `level` of them."""

    mean: float
    low: float
    high: float
    level: float = 0.95


@dataclass(frozen=True)
class PairedDifference:
    """One system against a baseline.

    Args:
        method: the test.
        baseline, system: their corpus scores.
        difference: system - baseline, whichever direction is better.
        p_value: of a difference as large as this, in either direction, were the systems no different.
        interval: of the difference; None where the test gives none.
        samples, seed: R and the seed of its draws.
    """

    method: str
    baseline: float
    system: float
    difference: float
    p_value: float
    interval: Interval | None
    samples: int
    seed: int


def bootstrap_interval(
    metric: Metric, statistics: Statistics, samples: int = 1000, seed: int = 12345, level: float = 0.95
) -> Interval:
    """Percentile interval of a corpus score over segments drawn with replacement (Koehn 2004).

    `statistics` is (N, k).
    """
    return _interval(_bootstrap_scores(metric, [statistics], samples, seed)[0], level)


def paired_bootstrap(
    metric: Metric,
    baseline_statistics: Statistics,
    system_statistics: Statistics,
    samples: int = 1000,
    seed: int = 12345,
    *,
    formulation: Literal["centred", "sacrebleu"] = "centred",
) -> PairedDifference:
    """Paired bootstrap resampling: both systems on the same drawn segments (Koehn 2004).

    With d the observed difference, d_r that of resample r, and the mean taken over the R resamples, the p-value is

        sacrebleu:  (#{r : |d_r| - mean|d_r| >= |d|} + 1) / (R + 1)
        centred:    (#{r : |d_r - mean d_r|  >= |d|} + 1) / (R + 1)

    The first is that of sacreBLEU's paired bootstrap, except that ties count: a system compared with itself has p = 1
    here and 1 / (R + 1) there. It takes the absolute value before it centres, and so is no level of error: where d is
    large only one tail counts, and under the null hypothesis p <= 0.05 comes out about 12% of the time; near d = 0, p
    is about 0.43. The second counts both tails and keeps its level, unless segments are few: with 10 of them, p <= 0.05
    comes out about 11% of the time. `approximate_randomisation` is for these.

    Raises:
        UserError: fewer than two segments.
    """
    if len(baseline_statistics) < 2:
        what, allowed = "resampled segments need two or more", "approximate randomisation"
        raise UserError(what, where="references", received=len(baseline_statistics), allowed=allowed)
    scores = _bootstrap_scores(metric, [baseline_statistics, system_statistics], samples, seed)
    differences = scores[1] - scores[0]
    if formulation == "sacrebleu":
        spread = np.abs(differences) - np.abs(differences).mean()
    else:
        spread = np.abs(differences - differences.mean())
    method = f"paired bootstrap, {formulation}"
    interval = _interval(differences, 0.95)
    return _compare(method, metric, baseline_statistics, system_statistics, spread, interval, seed)


def approximate_randomisation(
    metric: Metric, a: Statistics, b: Statistics, trials: int = 10000, seed: int = 12345
) -> PairedDifference:
    """Paired approximate randomisation (Noreen 1989; Riezler and Maxwell 2005), two-sided.

    Each trial swaps the two outputs of each segment with probability 1/2. With d the observed difference and d_r that
    of trial r, p = (#{r : |d_r| >= |d|} + 1) / (trials + 1). Ties count, as in the paper (sacrebleu counts only >).

    Args:
        a: statistics of the baseline, (N, k).
        b: statistics of the system, (N, k).
    """
    total_a, total_b = a.sum(axis=0), b.sum(axis=0)
    differences = np.empty(trials)
    for rows, keep in _chunks(trials, len(a), seed, _draw_swaps):
        totals = keep @ (a - b) + total_b
        differences[rows] = metric.aggregate_all(total_a + total_b - totals) - metric.aggregate_all(totals)
    return _compare("approximate randomisation", metric, a, b, np.abs(differences), None, seed)


def _compare(
    method: str,
    metric: Metric,
    baseline: Statistics,
    system: Statistics,
    null: NDArray[np.float64],
    interval: Interval | None,
    seed: int,
) -> PairedDifference:
    """The comparison whose p-value is how many of `null` (R,), sizes of differences by chance, reach the observed."""
    scores = [metric.aggregate(statistics.sum(axis=0)) for statistics in (baseline, system)]
    difference = scores[1] - scores[0]
    reached = int((null >= abs(difference) - TIE).sum())
    p_value = (reached + 1) / (len(null) + 1)
    return PairedDifference(method, scores[0], scores[1], difference, p_value, interval, len(null), seed)


def _bootstrap_scores(metric: Metric, systems: list[Statistics], samples: int, seed: int) -> list[NDArray[np.float64]]:
    """Scores (R,) of each system on the same R resamples."""
    scores = [np.empty(samples) for _ in systems]
    for rows, counts in _chunks(samples, len(systems[0]), seed, _draw_counts):
        for resampled, statistics in zip(scores, systems, strict=True):
            resampled[rows] = metric.aggregate_all(counts @ statistics)
    return scores


Draw = Callable[[np.random.Generator, int, int], NDArray[np.float64]]


def _chunks(samples: int, segments: int, seed: int, draw: Draw) -> Iterator[tuple[slice, NDArray[np.float64]]]:
    """The (R, N) matrix of draws, a few of its rows at a time, with which rows they are."""
    generator = np.random.default_rng(seed)
    # NumPy draws 32 booleans from one random word and drops the rest of it: whole words keep chunks from mattering.
    height = max(32, CHUNK // segments // 32 * 32)
    for start in range(0, samples, height):
        rows = slice(start, min(start + height, samples))
        yield rows, draw(generator, rows.stop - rows.start, segments)


def _draw_counts(generator: np.random.Generator, rows: int, segments: int) -> NDArray[np.float64]:
    """The number of times that each segment is drawn when N of N are drawn with replacement."""
    counts = np.empty((rows, segments))
    for row in counts:
        row[:] = np.bincount(generator.integers(0, segments, size=segments), minlength=segments)
    return counts


def _draw_swaps(generator: np.random.Generator, rows: int, segments: int) -> NDArray[np.float64]:
    """1 where a segment keeps its system, 0 where the two are swapped."""
    return generator.integers(2, size=(rows, segments), dtype=bool).astype(np.float64)


def _interval(scores: NDArray[np.float64], level: float) -> Interval:
    low, high = np.quantile(scores, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(scores.mean()), float(low), float(high), level)
