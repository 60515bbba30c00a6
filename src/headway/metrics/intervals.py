"""Confidence intervals of corpus scores and of their differences, for both sources of randomness: seeds and segments.

A corpus score is linearised by the jackknife (Efron and Tibshirani 1993, section 11.5). The influence of segment i on
the score x_s of seed s is psi_si, and the difference of two systems has the difference of their influences. Seeds and
segments are crossed random effects (Searle, Casella and McCulloch 1992, section 4.7):

    psi_si = segment_i + (seed x segment)_si        x_s - mean = seed_s + mean over i of (seed x segment)_si

The variance of the seeds' scores over n therefore already includes the interaction. The variance of the mean over n
seeds that is due to the test set alone, var(segment)/N, is added. It is var(mean over s of psi_si)/N less
var(interaction)/(n N). The two variances have different degrees of freedom, n - 1 (few) and N - 1 (many). With w their
estimates, the interval

    mean +- sqrt(t(n - 1)^2 w_seeds + t(N - 1)^2 w_segments)

has at least the nominal coverage for normal effects (Banerjee 1960). Satterthwaite's degrees of freedom do not
guarantee this: with three seeds, an estimate of w_seeds that is small by chance makes them too large.

If effects are not normal, w_seeds may be 0 by chance: counted metrics often have the same score for two or three seeds.
The interval is therefore never narrower than that of the test set alone, t(N - 1)^2 (w_segments + w_interaction), with
w_interaction = var(interaction)/(n N). This is valid for any seeds, since the true w_seeds is at least as large.

If two systems rarely disagree, as on a task that both have almost solved, the sampled segments may contain no
disagreement although the population has some, and w_segments is too small or 0. A difference therefore gets four
additional segments, two for each side, whose disagreement is as large as that of the others: w_segments grows by 4 D^2
/ N^2. D^2 is the mean square of the differences of the disagreeing segments, or the square of the metric's range if
there are none. The additional segments correspond to the two successes and two failures of Agresti and Coull (1998) for
a proportion. If no segment disagrees, half of the interval is 2 t / N times the range. The exact bound of such a share
is 1 - 0.025^(1/N), which is 3.7 / N.

The seeds' variance may be pooled over V systems, whose seeds are then treated as independent. The standard deviations
of the systems need not be equal, and the mean over all variances is too small for two systems with large variances. So
w_seeds is the mean or, if that is larger, the pair's own sum of variances over n, with the degrees of freedom of at
most three systems, 3 (n - 1). If the deviations differ by a factor of 2, the coverage is 93 % or more.

Shapes: n seeds, N segments, k statistics of one segment.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import exp, inf, isfinite, log, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from headway.core.errors import UserError
from headway.core.tables import Cell, Spread
from headway.metrics.metric import Metric, Statistics

LEVEL = 0.95
SIGNIFICANT = 0.05  # significance level
LEAST_P = 1e-30  # the smallest p-value reported
ADDED = 4  # the number of additional disagreeing segments
ROUNDING = 1e-9  # as a share of the range of scores: smaller differences count as 0
MOST_POOLED = 3  # the maximum number of systems in the degrees of freedom of a pooled variance
TRIALS, SACREBLEU_SEED = 10_000, 12_345  # of approximate randomization, as in sacrebleu
DRAWN = 64  # trials per batch
AGREES = 0.05  # share of the size of a disagreement: smaller differences come from other segments' totals

BINS = 6  # the maximum number of length bins

Floats = NDArray[np.float64]


class Interval(NamedTuple):
    """A score (a mean over seeds, or a difference of two) with its confidence interval, unless N = 1.

    Attributes:
        value: the score.
        low, high: the ends of the interval, clipped to the bounds of the metric.
        half: half of the width of the unclipped interval, at most the distance to the farther bound.
    """

    value: float
    low: float | None = None
    high: float | None = None
    half: float | None = None

    @property
    def cell(self) -> Cell:
        return self.value if self.half is None else Spread(self.value, self.half)

    @property
    def ends(self) -> tuple[float, float]:
        """The ends of the interval, or the value twice if there is no interval."""
        return (self.value, self.value) if self.low is None or self.high is None else (self.low, self.high)


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds, or a difference of two, with its variances.

    Args:
        value: the mean.
        seeds: n.
        segments: N.
        seed_variance: the variance of the mean due to seeds and their interaction with segments; None with one seed.
        segment_variance: that due to the sampled segments; with one seed, including the interaction.
        interaction_variance: the variance of the mean due to the interaction, a part of `seed_variance`.
        pooled: the number of systems whose degrees of freedom `seed_variance` has.
    """

    value: float
    seeds: int
    segments: int
    seed_variance: float | None
    segment_variance: float
    interaction_variance: float = 0.0
    pooled: int = 1

    def half_width(self, level: float = LEVEL) -> float:
        """Half of the interval's width; with one seed, that of the test set alone; infinite with one segment."""
        return self._half_width((1 - level) / 2)

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        half = self.half_width(level)
        return self.value - half, self.value + half

    def p_value(self) -> float | None:
        """The smallest 1 - level whose interval excludes 0. None with one seed, which does not represent the method."""
        if self.seed_variance is None:
            return None
        distance = abs(self.value)
        if not distance:
            return 1.0
        if self._half_width(LEAST_P / 2) <= distance:
            return LEAST_P
        return exp(optimize.brentq(lambda log_p: distance - self._half_width(exp(log_p) / 2), log(LEAST_P), 0.0))

    def p_within(self, margin: float) -> float | None:
        """The smallest 1 - level whose interval lies within the margin on both sides of 0. None with one seed."""
        distance = max(0.0, margin - abs(self.value))
        return replace(self, value=distance).p_value()

    def _half_width(self, tail: float) -> float:
        """`half_width` for the probability of one tail."""
        if self.segments < 2:
            return inf
        of_segments, of_seeds = _quantile(tail, self.segments - 1) ** 2, 0.0
        if self.seed_variance:
            of_seeds = _quantile(tail, self.pooled * (self.seeds - 1)) ** 2 * self.seed_variance
        return sqrt(of_segments * self.segment_variance + max(of_seeds, of_segments * self.interaction_variance))


def _quantile(tail: float, degrees: int) -> float:
    """The value that Student's t exceeds with probability `tail`."""
    return float(-special.stdtrit(degrees, tail))


@dataclass(frozen=True)
class Linearised:
    """Corpus scores (n,) of seeds, and the influence (n, N) of each segment on them.

    Args:
        scores: (n,).
        influences: (n, N).
        span: the range of scores.
        unseen: for differences, the variance of the mean due to disagreements that were not sampled.
    """

    scores: Floats
    influences: Floats
    span: float = 100.0
    unseen: float = 0.0

    def __sub__(self, other: "Linearised") -> "Linearised":
        scores, influences = self.scores - other.scores, self.influences - other.influences
        return Linearised(scores, influences, self.span, _unseen(scores.mean() + influences.mean(axis=0), self.span))

    def estimate(self) -> Estimate:
        """The mean over seeds with its variances."""
        seeds, segments = self.influences.shape
        if segments < 2:
            return Estimate(float(self.scores.mean()), seeds, segments, None, inf)
        means = self.influences.mean(axis=0)
        of_segments = float(means @ means) / (segments * (segments - 1))
        if seeds == 1:
            return Estimate(float(self.scores[0]), 1, segments, None, of_segments + self.unseen)
        rest = self.influences - means
        interaction = float((rest**2).sum()) / ((seeds - 1) * (segments - 1)) / (seeds * segments)
        of_seeds = float(self.scores.var(ddof=1)) / seeds
        alone = max(0.0, of_segments - interaction) + self.unseen
        return Estimate(float(self.scores.mean()), seeds, segments, of_seeds, alone, interaction)

    def interval(self, bounds: tuple[float, float] = (-inf, inf)) -> Interval:
        """The mean over seeds with its interval, clipped to `bounds`."""
        estimate = self.estimate()
        low, high = estimate.interval()
        if not isfinite(low):
            return Interval(estimate.value)
        half = min((high - low) / 2, max(estimate.value - bounds[0], bounds[1] - estimate.value))
        return Interval(estimate.value, max(low, bounds[0]), min(high, bounds[1]), half)


class Unpaired(NamedTuple):
    """A difference of means over unequal numbers of seeds, with its variances apart from that of the seeds.

    Attributes:
        value: the difference.
        segments: N.
        segment_variance: the variance of the difference that is due to the segments.
        interaction: the variance of seed x segment, pooled over both systems.
    """

    value: float
    segments: int
    segment_variance: float
    interaction: float


def unpaired(a: Linearised, b: Linearised) -> Unpaired:
    """The difference b - a of systems whose seeds are not paired, on the same segments, which are paired."""
    value, segments = float(b.scores.mean() - a.scores.mean()), a.influences.shape[1]
    if segments < 2:
        return Unpaired(value, segments, 0.0, 0.0)
    means = b.influences.mean(axis=0) - a.influences.mean(axis=0)
    rests = [one.influences - one.influences.mean(axis=0) for one in (a, b)]
    degrees = (sum(map(len, rests)) - 2) * (segments - 1)
    interaction = sum(float((rest**2).sum()) for rest in rests) / degrees if degrees else 0.0
    of_both = interaction * sum(1 / len(rest) for rest in rests) / segments
    alone = max(0.0, float(means @ means) / (segments * (segments - 1)) - of_both)
    return Unpaired(value, segments, alone + _unseen(value + means, max(a.span, b.span)), interaction)


def pooled_difference(a: Linearised, b: Linearised, every: Sequence[Linearised]) -> Estimate:
    """The estimate of b - a with the seeds' variance pooled over all systems, or with none if there is one seed."""
    estimate = (b - a).estimate()
    if estimate.seed_variance is None:
        return estimate
    own, shared = ([float(one.scores.var(ddof=1)) for one in some] for some in ((a, b), every))
    variance = max(sum(own), 2 * sum(shared) / len(shared)) / estimate.seeds
    return replace(estimate, seed_variance=variance, pooled=min(len(every), MOST_POOLED))


def equal_variances(systems: Sequence[Linearised]) -> float | None:
    """The p-value of the test of Brown and Forsythe (1974) that the seeds' variances of all systems are equal.

    None with fewer than three seeds, or if the test is undefined because the deviations do not vary.
    """
    from scipy import stats  # imported late: it loads slowly

    if len(systems) < 2 or len(systems[0].scores) < 3:
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        p_value = float(stats.levene(*(one.scores for one in systems), center="median").pvalue)
    return p_value if isfinite(p_value) else None


def _unseen(differences: Floats, span: float) -> float:
    """The variance of a mean due to disagreements that were not sampled, from the differences (N,) of segments.

    The size of a disagreement is first estimated as a weighted mean over all segments. Differences far below it count
    as agreement.
    """
    squares = differences**2
    large = float((squares**2).sum() / squares.sum()) if squares.any() else 0.0
    disagree = squares[squares > max(AGREES**2 * large, (ROUNDING * span) ** 2)]
    size = float(disagree.mean()) if len(disagree) else span**2
    return ADDED * size / len(differences) ** 2


def linearise(metric: Metric, statistics: Sequence[Statistics]) -> Linearised:
    """Corpus scores of seeds with the influence of each segment, from statistics (N, k) of each seed.

    Raises:
        UserError: the scores of an external metric are not finite.
    """
    rows = [_jackknife(metric, one) for one in statistics]
    scores, influences = np.array([score for score, _ in rows]), np.stack([influence for _, influence in rows])
    least, greatest = metric.bounds
    return Linearised(scores, influences, greatest - least if np.isfinite(greatest - least) else 100.0)


def summed(statistics: Statistics, units: Sequence[str]) -> Statistics:
    """The sums of statistics (N, k) over the segments of each unit, such as a document."""
    names, index = np.unique(np.asarray(units), return_inverse=True)
    sums = np.zeros((len(names), statistics.shape[1]))
    np.add.at(sums, index.reshape(-1), statistics)
    return sums


def _jackknife(metric: Metric, statistics: Statistics) -> tuple[float, Floats]:
    segments, totals = len(statistics), statistics.sum(axis=0)
    score = metric.aggregate(totals)
    if segments < 2:
        return score, np.zeros(segments)
    kinds, index = np.unique(statistics, axis=0, return_inverse=True)  # many segments may have the same statistics
    without = metric.aggregate_all(totals - kinds)[index.reshape(-1)]
    if not (np.isfinite(score) and np.isfinite(without).all()):
        what = "this metric gave no finite score of all segments, or of all but one"
        raise UserError(what, where=metric.name, received=[score, *without[~np.isfinite(without)][:1].tolist()])
    influence = (segments - 1) * (score - without)
    return score, influence - influence.mean()


def level_of(look: int) -> float:
    """The confidence level of a look: look k has 1/k of the first look's probability of a false finding."""
    return 1 - (1 - LEVEL) / look


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values of several tests, adjusted to control the family-wise error rate (Holm 1979)."""
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    adjusted, highest = [1.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted


def dunnett(p_values: Sequence[float], degrees: int) -> list[float]:
    """The p-values of comparisons with one baseline, adjusted by the step-down method of Dunnett and Tamhane (1991).

    The p-values are two-sided, of Student's t with `degrees`. Comparisons of systems of one variance with a baseline
    have a correlation of 1/2, since they share the baseline's scores. Holm's method, which allows for any correlation,
    gives p-values that are never smaller.
    """
    order = np.argsort(-np.asarray(p_values), kind="stable")  # the largest first
    adjusted, tails = (
        [1.0] * len(p_values),
        [_greatest_of(count + 1, p_values[index], degrees) for count, index in enumerate(order)],
    )
    highest = 0.0
    for index, tail in zip(order[::-1], tails[::-1], strict=True):
        adjusted[index] = highest = max(highest, tail)
    return adjusted


def _greatest_of(count: int, p_value: float, degrees: int) -> float:
    """The probability that any of `count` t statistics of correlation 1/2 is as far from 0 as `p_value` says."""
    from scipy import stats  # imported late: it loads slowly

    at, weights = np.polynomial.hermite_e.hermegauss(64)
    shares = (np.arange(400) + 0.5) / 400  # quantiles of the shared deviation
    limits = _quantile(p_value / 2, degrees) * np.sqrt(stats.chi2.ppf(shares, degrees) / degrees)
    ends = np.sqrt(2) * limits[:, None], at[None]
    inside = special.ndtr(ends[0] - ends[1]) - special.ndtr(-ends[0] - ends[1])
    return float(1 - np.mean(inside**count @ (weights / weights.sum())))


def randomized(metric: Metric, pairs: Sequence[tuple[Statistics, Statistics]]) -> list[float]:
    """The p-values of paired approximate randomization (Riezler and Maxwell 2005), from statistics (N, k) of outputs.

    The outputs of each segment are exchanged at random, with the same draws as in sacrebleu. p is the share of trials
    with a difference at least as large as that of the outputs. sacrebleu does not count equal differences, which
    matters for few segments.
    """
    random, beyond, segments = np.random.default_rng(SACREBLEU_SEED), np.ones(len(pairs)), len(pairs[0][0])
    totals = [(a.sum(axis=0), b.sum(axis=0)) for a, b in pairs]
    real = [abs(metric.aggregate(a) - metric.aggregate(b)) - ROUNDING for a, b in totals]
    for drawn in range(0, TRIALS, DRAWN):  # the draws do not depend on the batch size
        exchanged = random.integers(2, size=(min(DRAWN, TRIALS - drawn), segments), dtype=bool).astype(np.float64)
        for index, ((a, b), (of_a, of_b)) in enumerate(zip(pairs, totals, strict=True)):
            first = exchanged @ (a - b) + of_b
            scores = metric.aggregate_all(first), metric.aggregate_all(of_a + of_b - first)
            beyond[index] += (np.abs(scores[0] - scores[1]) >= real[index]).sum()
    return [float(count / (TRIALS + 1)) for count in beyond]


def ordered_groups(groups: Iterable[str]) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """The distinct names of groups in order, and the names as numbers if all are numbers.

    Numbers are in ascending order. Other names are in the order of their first segments, and have no numbers.
    """
    names = tuple(dict.fromkeys(groups))
    try:
        numbers = {name: float(name) for name in names}
    except ValueError:
        return names, ()
    if not all(map(isfinite, numbers.values())):  # such as nan, which cannot be ordered
        return names, ()
    ordered = tuple(sorted(names, key=numbers.__getitem__))
    return ordered, tuple(numbers[name] for name in ordered)


def length_bins(lengths: Iterable[int]) -> list[int]:
    """The minimum length of each of up to six bins with about equally many of the `lengths`."""
    ordered = sorted(lengths)
    return sorted({ordered[len(ordered) * bin // BINS] for bin in range(BINS)})
