"""Exact match: the share of segments that equal a reference."""

from collections.abc import Sequence
from importlib.metadata import version

import numpy as np

from headway.metrics.metric import Metric, Statistics, check_segments
from headway.metrics.signature import Signature


class ExactMatch(Metric):
    """Segments equal to any of their references once outer white space is stripped, times 100.

    Statistics: 1 or 0, and 1.
    """

    name = "exact_match"
    kinds = ("text", "labels", "trees")

    def __init__(self) -> None:
        self._reference_sets: int | None = None

    def statistics(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Statistics:
        self._reference_sets = check_segments(hypotheses, references)
        rows = zip(hypotheses, zip(*references, strict=True), strict=True)
        matches = [any(output.strip() == target.strip() for target in targets) for output, targets in rows]
        return np.stack([np.array(matches, dtype=np.float64), np.ones(len(matches))], axis=1)

    def aggregate(self, totals: Statistics) -> float:
        return float(100 * totals[0] / totals[1])

    def signature(self) -> Signature:
        sets, release = self._reference_sets, f"headway-{version('headway')}"
        return Signature.of(nrefs=sets, case="mixed", space="stripped", version=release)
