"""Checks of tuned values: short runs may rank the values of a key in another order than whole runs do.

For each value that a variant has chosen, one seed is trained in full with a neighbouring value, too. A verdict becomes
`rate?` if the neighbours may gain what it rests on.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import isclose, sqrt
from statistics import variance
from typing import Any, Final

from headway.comparison.cells import CellOutput
from headway.comparison.comparison import ORDER, ComparedPair, Comparison
from headway.grids.grid import are_numbers
from headway.metrics import Metric
from headway.metrics.intervals import linearise

LEARNING_RATE: Final = "optimizer.learning_rate"


def neighbour_of(key: str, tried: Sequence[Any], value: Any, score: Callable[[Any], float]) -> Any:
    """The value to check beside the chosen one: a neighbour in order if values are numbers; None if there is none.

    Of learning rates, it is the next lower one: the best rate falls as training becomes longer (Bjorck et al. 2024).
    Of others, it has the better short runs, by `score`.
    """
    if not are_numbers(tried):
        return max((other for other in tried if other != value), key=score, default=None)
    ordered = sorted(tried)
    at = ordered.index(value)
    near = ordered[max(0, at - 1) : at] + ordered[at + 1 : at + 2]
    return near[0] if key == LEARNING_RATE and near else max(near, key=score, default=None)


@dataclass(frozen=True)
class Check:
    """A neighbour of a chosen value, in a whole run of one seed.

    Args:
        variant: the name of the variant.
        share: of its seeds, those that chose the value.
        value, neighbour: of the tuned key.
        seed: of both runs.
        outputs: with the neighbour and with the chosen value, for the tuning set.
        short: of the short runs with the chosen value, one per seed.
    """

    variant: str
    share: float
    value: Any
    neighbour: Any
    seed: int
    outputs: tuple[CellOutput, CellOutput]
    short: tuple[CellOutput, ...] = ()


@dataclass(frozen=True)
class Gain:
    """The gain of a variant by the neighbour of a value, above 0 if that is better, with its standard error."""

    check: Check
    value: float
    error: float

    def in_words(self, key: str) -> str:
        """The gain as a reason for doubt."""
        check, gain = self.check, f"{self.value:+.2f} ± {self.error:.2f} with seed {self.check.seed}"
        return f"{key} {check.neighbour} may suit {check.variant} better than {check.value} ({gain}): tune longer"


def gains_of(checks: Sequence[Check], metric: Metric) -> list[Gain]:
    """The gain of each check by a metric. Its error is due to the segments or, if that is more, to the seeds.

    The variance between seeds is that of the short runs, pooled over the checks.
    """
    groups = [[metric.score(*output.scored).value for output in check.short] for check in checks]
    known = [(variance(scores), len(scores) - 1) for scores in groups if len(scores) > 1]
    of_seeds = sum(each * degrees for each, degrees in known) / max(1, sum(degrees for _, degrees in known))
    gains = list[Gain]()
    for check in checks:
        better, chosen = (linearise(metric, [metric.counted(*output.scored)]) for output in check.outputs)
        estimate = (better - chosen).estimate()
        value = estimate.value if metric.higher_is_better else -estimate.value
        gains.append(Gain(check, value, sqrt(max(estimate.segment_variance, 2 * of_seeds))))
    return gains


def doubt_of(pair: ComparedPair, gains: Sequence[Gain]) -> list[Gain]:
    """The gains that leave a verdict in doubt; none if it stands.

    A verdict on which variant is better stands if the worse one would still be worse with all that its neighbours may
    gain, which is each gain and its standard error. Even variants stand if no neighbour is better by its error.
    """
    if pair.verdict == "even":
        return [gain for gain in gains if gain.check.variant in (pair.a, pair.b) and gain.value > gain.error]
    if pair.verdict not in ("better", "worse"):
        return []
    worse = pair.a if pair.verdict == "better" else pair.b
    able = [gain for gain in gains if gain.check.variant == worse and gain.value + gain.error > 0]
    reach = sum(gain.check.share * (gain.value + gain.error) for gain in able)
    return able if able and abs(pair.difference) - reach <= pair.estimate.half_width(pair.level) else []


def _joined(*texts: str) -> str:
    return "; ".join(filter(None, texts))


def with_checks(
    comparison: Comparison, key: str = "", checks: Sequence[Check] = (), metrics: Sequence[Metric] = ()
) -> Comparison:
    """A copy of a comparison of tuned variants, in which verdicts that a check leaves in doubt are `rate?`.

    Verdicts by other metrics than `metrics`, or on variants with choices that were not checked, have the limit `ORDER`.
    """
    by_metric, shares = {metric.label: gains_of(checks, metric) for metric in metrics}, defaultdict[str, float](float)
    for check in checks:
        shares[check.variant] += check.share

    def checked(pair: ComparedPair) -> ComparedPair:
        if pair.verdict in ("none", "rate?"):
            return pair
        gains = by_metric.get(comparison.measure(pair.metric).metric.label)
        if gains is None or not all(isclose(shares[name], 1) for name in (pair.a, pair.b)):
            pair = replace(pair, limits=(*pair.limits, ORDER))
        if not (found := doubt_of(pair, gains or ())):
            return pair
        a, b = (" and ".join(each.in_words(key) for each in found if each.check.variant == v) for v in (pair.a, pair.b))
        doubted = replace(pair, doubts=(_joined(pair.doubts[0], a), _joined(pair.doubts[1], b)), limits=())
        return replace(doubted, verdict="rate?", doubt=doubted.needed)

    return replace(comparison, pairs=tuple(map(checked, comparison.pairs)))
