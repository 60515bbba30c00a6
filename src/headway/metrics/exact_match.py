"""Exact match: the share of segments that equal a reference."""

from collections.abc import Sequence

import numpy as np

from headway.metrics.metric import Metric, Statistics, check_segments, present, references_of_each
from headway.metrics.signature import Signature, release


class ExactMatch(Metric):
    """Segments equal to any of their references once outer white space is stripped, times 100.

    Statistics: 1 or 0, and 1.
    """

    name = "exact_match"
    kinds = ("text", "labels", "trees")

    def __init__(self) -> None:
        self._references: int | str | None = None

    def statistics(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Statistics:
        check_segments(hypotheses, references)
        there = present(references)
        self._references = references_of_each(there)
        outputs = [output.strip() for output in hypotheses]
        equal = np.array([[*map(str.__eq__, outputs, map(str.strip, lines))] for lines in references])
        matches = (equal & there).max(axis=0).astype(np.float64)
        return np.stack([matches, np.ones(len(outputs))], axis=1)

    def aggregate(self, totals: Statistics) -> float:
        return float(100 * totals[0] / totals[1])

    def signature(self) -> Signature:
        return Signature.of(nrefs=self._references, case="mixed", space="stripped", version=release())
