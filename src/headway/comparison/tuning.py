"""The scores of the short runs of a variant: the best value of the tuned key, and whether it is best by chance."""

from collections.abc import Sequence
from math import comb
from statistics import fmean

import numpy as np

from headway.comparison.cell_results import CellOutput
from headway.comparison.statistics import SIGNIFICANT
from headway.metrics import Metric
from headway.metrics.metric import Statistics, rank
from headway.metrics.significance import approximate_randomisation

TRIALS = 1000


def tuning_score(outputs: Sequence[CellOutput], metric: Metric) -> float:
    """The mean score of the short runs of a value, one output a seed."""
    return fmean(metric.score(output.hypotheses, output.test.references).value for output in outputs)


def best_score(scores: Sequence[float | None], losses: Sequence[float | None], metric: Metric) -> int:
    """The index of the best score, of equals that with the lowest loss on dev; None is one where training failed."""
    known = {index: score for index, score in enumerate(scores) if score is not None}
    return min(known, key=lambda index: rank(known[index], losses[index], higher_is_better=metric.higher_is_better))


def are_told_apart(values: Sequence[Sequence[CellOutput]], metric: Metric) -> bool:
    """Whether the best and the worst value differ by more than chance over their segments; true of one value.

    The test is approximate randomisation (Noreen 1989) over segments, each of which has the outputs of all seeds, for
    seeds err on the same segments. The best and the worst are the furthest apart of all pairs of values, so that p is
    adjusted by their number (Bonferroni). The spread between seeds is left out: values that are told apart here may
    still differ by their seeds alone.

    Args:
        values: the outputs of each, one a seed, with the same seeds for all.
    """
    if len(values) < 2:
        return True

    def score(statistics: Statistics) -> float:
        return metric.aggregate(statistics.sum(axis=0))

    every = [
        np.sum([metric.counted(output.hypotheses, output.test.references) for output in outputs], axis=0)
        for outputs in values
    ]
    lowest, highest = min(every, key=score), max(every, key=score)
    pairs = comb(len(every), 2)
    return approximate_randomisation(metric, lowest, highest, trials=TRIALS * pairs).p_value * pairs <= SIGNIFICANT
