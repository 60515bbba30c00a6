"""The seeds and segments with which an open claim would probably be decided, by the variances that were seen."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

from scipy import special

from headway.comparison.statistics import LEVEL, Estimate

MOST_SEEDS, MOST_TIMES = 100, 1000
POWER = 0.8  # how often so many decide


def scaled(estimate: Estimate, seeds: int, segments: int) -> Estimate:
    """The same difference, with the variances that so many seeds and segments would leave of it."""
    assert estimate.seed_variance is not None
    of_seeds, of_segments = estimate.seeds / seeds, estimate.segments / segments
    interaction = min(estimate.interaction_variance, estimate.seed_variance)
    return replace(
        estimate, seeds=seeds, segments=segments,
        seed_variance=(estimate.seed_variance - interaction * (1 - of_segments)) * of_seeds,
        segment_variance=estimate.segment_variance * of_segments,
        interaction_variance=estimate.interaction_variance * of_seeds * of_segments,
    )  # fmt: skip


def needed(estimate: Estimate, distance: float, level: float = LEVEL) -> tuple[int, int] | None:
    """The fewest seeds, and segments, above those there are, with which a true difference is told from one so far away.

    It is told with probability `POWER`: half of the interval and that quantile of the mean's own error fit in between.
    The segments are as many as there are where up to `MOST_SEEDS` seeds are enough, and where nothing differs by
    segment, as in costs. Otherwise both grow alike.

    Returns:
        Seeds and segments; None where `MOST_TIMES` as many are not enough, or there is one seed.
    """
    if estimate.seed_variance is None or distance <= 0:
        return None
    for seeds in range(estimate.seeds + 1, MOST_SEEDS + 1):
        if reach(scaled(estimate, seeds, estimate.segments), level) <= distance:
            return seeds, estimate.segments
    for times in range(2, MOST_TIMES + 1):
        segments = estimate.segments if _is_of_seeds(estimate) else estimate.segments * times
        grown = scaled(estimate, estimate.seeds * times, segments)
        if reach(grown, level) <= distance:
            return grown.seeds, grown.segments
    return None


def reach(estimate: Estimate, level: float) -> float:
    """The distance between a true difference and another value at which the interval mostly leaves the value out."""
    assert estimate.seed_variance is not None
    error = sqrt(estimate.seed_variance + estimate.segment_variance)
    return estimate.half_width(level) + float(special.stdtrit(estimate.seeds - 1, POWER)) * error


def needed_in_words(estimate: Estimate, distance: float, level: float = LEVEL) -> str:
    """The same as the subject of a sentence."""
    found = needed(estimate, distance, level)
    if found is None:
        return f"more than {MOST_TIMES:,} times as many seeds{'' if _is_of_seeds(estimate) else ' and segments'}"
    seeds, segments = found
    return f"{seeds:,} seeds" + (f" and {segments:,} segments" if segments > estimate.segments else "")


def _is_of_seeds(estimate: Estimate) -> bool:
    """Whether nothing differs by segment."""
    return estimate.segment_variance == 0 == estimate.interaction_variance
