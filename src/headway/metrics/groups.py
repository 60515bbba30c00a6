"""Scores of groups of segments, such as those of one length.

Shapes: N segments, k statistics of one segment.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headway.errors import UserError
from headway.metrics.metric import Metric, Statistics
from headway.metrics.significance import Interval, bootstrap_interval


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

    Raises:
        UserError: not as many groups as segments.
    """
    if len(groups) != len(statistics):
        what = f"{len(groups)} groups for {len(statistics)} segments; there must be one a segment"
        raise UserError(what, where="groups")
    members: dict[str, list[int]] = {}
    for segment, group in enumerate(groups):
        members.setdefault(group, []).append(segment)
    scores = []
    for group in _ordered(list(members)):
        rows = statistics[np.array(members[group])]
        interval = bootstrap_interval(metric, rows, samples, seed)
        scores.append(GroupScore(group, metric.aggregate(rows.sum(axis=0)), interval, len(rows)))
    return tuple(scores)


def _ordered(names: list[str]) -> list[str]:
    try:
        return sorted(names, key=float)
    except ValueError:
        return names
