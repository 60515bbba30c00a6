"""The evenness of self-attention (Kaneko and Komachi 2019, section 5)."""

import math
from collections.abc import Sequence
from importlib.metadata import version

import numpy as np

from headway.errors import UserError
from headway.metrics.metric import Metric, Statistics, check_one_reference
from headway.metrics.signature import Signature


class Deviation(Metric):
    """The mean of numbers, one a word, times 1,000: how far the weights of self-attention deviate from a word's mean.

    Smaller is more even. Segments are lines of numbers; those of a reference are 0, and say how many words there are.
    Statistics: the sum of the numbers, and how many they are.
    """

    name = "deviation"
    higher_is_better = False
    kinds = ("numbers",)

    @property
    def label(self) -> str:
        return "deviation (1/1,000)"

    def statistics(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Statistics:
        check_one_reference("deviation", hypotheses, references)
        rows = []
        for segment, (hypothesis, reference) in enumerate(zip(hypotheses, references[0], strict=True), start=1):
            numbers = _numbers(hypothesis, f"hypotheses, segment {segment}")
            if len(numbers) != len(reference.split()):
                what = f"{len(numbers)} numbers for {len(reference.split())} words"
                raise UserError(what, where=f"hypotheses, segment {segment}")
            rows.append([sum(numbers), len(numbers)])
        return np.array(rows, dtype=np.float64)

    def aggregate(self, totals: Statistics) -> float:
        return float(1000 * totals[0] / totals[1]) if totals[1] else 0.0

    def signature(self) -> Signature:
        return Signature.of(numbers="words", version=f"headway-{version('headway')}")


def _numbers(line: str, where: str) -> list[float]:
    """The numbers of a line. Raises UserError for anything else, and for what is no deviation."""
    try:
        numbers = [float(number) for number in line.split()]
    except ValueError:
        numbers = [math.nan]
    if not all(0 <= number < math.inf for number in numbers):
        raise UserError("a line has numbers from 0 on, one a word", where=where, received=line)
    return numbers
