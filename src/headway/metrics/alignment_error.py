"""Alignment error rate (Och and Ney 2003)."""

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np

from headway.formats.alignments import parse_pharaoh, read_alignments
from headway.metrics.metric import Metric, Statistics, check_one_reference
from headway.metrics.signature import Signature


class AlignmentErrorRate(Metric):
    """AER = 1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|), times 100, over lines of Pharaoh links.

    A are the links of the hypothesis, S the sure ones of the reference, P all of the reference. Two empty alignments
    have no error. Statistics: |A ∩ S|, |A ∩ P|, |A|, |S|.
    """

    name = "aer"
    higher_is_better = False
    kinds = ("links",)

    @property
    def label(self) -> str:
        return "AER"

    def read(self, path: Path) -> list[str]:
        return read_alignments(path)

    def statistics(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Statistics:
        check_one_reference("AER", hypotheses, references)
        rows = []
        for segment, (hypothesis, reference) in enumerate(zip(hypotheses, references[0], strict=True), start=1):
            links = parse_pharaoh(hypothesis, f"hypotheses, segment {segment}").possible
            sure, possible = parse_pharaoh(reference, f"references, segment {segment}")
            rows.append([len(links & sure), len(links & possible), len(links), len(sure)])
        return np.array(rows, dtype=np.float64)

    def aggregate(self, totals: Statistics) -> float:
        sure, possible, links, gold = totals
        return float(100 * (1 - (sure + possible) / (links + gold))) if links + gold else 0.0

    def signature(self) -> Signature:
        return Signature.of(links="words", version=f"headway-{version('headway')}")
