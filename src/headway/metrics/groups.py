"""Scores of groups of segments, such as those of one length.

Shapes: N segments, k statistics of one segment.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from headway.metrics.metric import Metric, Statistics
from headway.metrics.significance import Interval, bootstrap_interval

BINS = 6  # of lengths


@dataclass(frozen=True)
class GroupScore:
    """One group's score, the bootstrap interval around it, and the number of its segments."""

    group: str
    value: float
    interval: Interval
    segments: int


def scores_by_group(
    metric: Metric, statistics: Statistics, groups: Sequence[str], samples: int = 1000, seed: int = 12345
) -> tuple[GroupScore, ...]:
    """The score of each group by itself; numbers in ascending order, other names in that of their first segments.

    Args:
        metric: what to score by.
        statistics: (N, k), of all segments.
        groups: (N,), the name of each segment's group.
        samples: bootstrap samples of an interval.
        seed: of their draws; the same for each group.
    """
    members: dict[str, list[int]] = {}
    for segment, (group, _) in enumerate(zip(groups, statistics, strict=True)):
        members.setdefault(group, []).append(segment)
    scores = []
    for group in ordered_groups(members)[0]:
        rows = statistics[np.array(members[group])]
        interval = bootstrap_interval(metric, rows, samples, seed)
        scores.append(GroupScore(group, metric.aggregate(rows.sum(axis=0)), interval, len(rows)))
    return tuple(scores)


def ordered_groups(groups: Iterable[str]) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """The names of groups, each once, and their numbers.

    Names that are all numbers come in ascending order. Others come in that of their first segments, without numbers.
    """
    names = tuple(dict.fromkeys(groups))
    try:
        numbers = {name: float(name) for name in names}
    except ValueError:
        return names, ()
    if not all(map(math.isfinite, numbers.values())):  # such as nan, which has no place among numbers
        return names, ()
    ordered = tuple(sorted(names, key=numbers.__getitem__))
    return ordered, tuple(numbers[name] for name in ordered)


def length_bins(lengths: Iterable[int]) -> list[int]:
    """The least length of each of up to six bins, which hold about equally many of the `lengths`."""
    ordered = sorted(lengths)
    return sorted({ordered[len(ordered) * bin // BINS] for bin in range(BINS)})
