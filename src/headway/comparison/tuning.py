"""The scores of the short runs of a variant: the best value of the tuned key, and whether it is best by chance."""

from collections.abc import Sequence

from headway.comparison.cell_results import CellOutput
from headway.metrics import Metric
from headway.metrics.significance import approximate_randomisation

LEVEL = 0.05  # p-values above it are chance
TRIALS = 1000


def tuning_score(output: CellOutput, metric: Metric) -> float:
    """The score of a short run."""
    return metric.score(output.hypotheses, output.test.references).value


def best_score(scores: Sequence[float | None], metric: Metric) -> int:
    """The index of the best score, the first of equals; None is that of a run that failed."""
    known = {index: score for index, score in enumerate(scores) if score is not None}
    return max(known, key=lambda index: known[index] if metric.higher_is_better else -known[index])


def differ_by_chance(outputs: Sequence[CellOutput], metric: Metric) -> bool:
    """Whether even the best and the worst of short runs differ by no more than chance, over their segments.

    The test is that of approximate randomisation (Noreen 1989). The spread between seeds comes on top of that, so that
    runs that differ by more may still do so by chance.
    """
    if len(outputs) < 2:
        return False
    ordered = sorted(outputs, key=lambda output: tuning_score(output, metric))
    worst, best = (metric.statistics(output.hypotheses, output.test.references) for output in (ordered[0], ordered[-1]))
    return approximate_randomisation(metric, worst, best, trials=TRIALS).p_value > LEVEL
