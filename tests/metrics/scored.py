"""Scores of files, by the way that `headway score` goes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headway.comparison.comparison import Comparison
from headway.comparison.options import CompareOptions
from headway.grids.compare import compare_existing
from headway.metrics import Metric


def score_files(
    metrics: Sequence[Metric], hypotheses: Sequence[Path], references: Sequence[Path], **options: Any
) -> Comparison:
    """Each file of hypotheses is a system."""
    given = CompareOptions(hypotheses=tuple(map(str, hypotheses)), references=tuple(references), **options)
    return compare_existing([], given, metrics, least=1)


def values(comparison: Comparison, measure: int = 0) -> list[float]:
    """The scores of all systems by a measure."""
    key = comparison.measures[measure].key
    return [variant.scores[key].mean for variant in comparison.variants]
