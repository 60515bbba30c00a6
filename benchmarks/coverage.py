"""How often the intervals of `headway compare` hold the true difference, how often it is wrong, how often it sees one.

Tables of systems are simulated. A system has a quality, which every training changes by a random amount (the seed). A
sentence has a length, a difficulty for all systems, one for each system, and one for each system and seed. Matching
n-grams are drawn by the chance that results, and BLEU is computed from their sums as `headway compare` does. The true
difference is that of infinitely many seeds and sentences.

A counted metric, exact match, has tables of its own: an output is right by chance alone, for every seed of either
system. Seeds often have equal scores there, on a small test set.

Two equal methods of which each has its learning rate chosen by short runs have tables of their own, too: normal
effects, as large as in the records of headway, and a loss for each rate beside the best one. So have methods whose
deviations between seeds differ, where the seeds' variance is pooled over all.

Adversaries take equal systems, and drop seeds that failed, add seeds until there is a verdict, compare means of seeds
in two groups, take sentences of a document for independent, choose among heads and metrics, or choose the learning rate
of one method by short runs whose order is not that of whole runs.

Beside the method of headway stand three that are in use: the bootstrap over segments with the outputs of all seeds, a
bootstrap over both seeds and segments, and a t-test over seeds alone; and Satterthwaite's degrees of freedom for the
same variances.
"""

import argparse
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from headway.claims.reproduce import Figure, ResultRecord, measured_now, read_record, write_record
from headway.cli.console import show
from headway.comparison.cells import CellOutput, CellResult, EvaluationSet
from headway.comparison.comparison import ComparedPair, Measure, compare_cells, compared_pairs
from headway.core.log import Progress, progress
from headway.core.tables import Cell, Column, Table
from headway.grids.ablation import WHOLE, Ablation, as_one_family, by_rank
from headway.grids.checks import Check, doubt_of, gains_of, neighbour_of
from headway.grids.grid import TuneConfig
from headway.grids.grid_run import Choice, best_score
from headway.grids.power import TYPICAL
from headway.metrics import Metric, Signature, build_metric
from headway.metrics.intervals import SIGNIFICANT, Estimate, Linearised, holm, linearise, pooled_difference
from headway.metrics.metric import Statistics
from headway.pages.charts import Panel, panel_chart

ORDERS = 4
DIFFICULTY, BY_SYSTEM, BY_SEED = 0.6, 0.3, 0.4  # standard deviations of the log-odds of a match, between sentences
QUALITY = 0.5  # the log-odds of a match of system A
PLANTED = 1.0  # BLEU
SEEDS, DEVIATIONS = (2, 3, 5, 10), (0.0, 0.5, 1.0)
COUNTED_SENTENCES, COUNTED_SHARES = (20, 100, 500), (5, 50)  # of a test set; right outputs, in percent
METHODS = ("headway", "Satterthwaite", "seeds alone", "segments alone", "bootstrap of both")
RESAMPLES = 500
COUNTED_TITLE = "False verdicts by exact match on two equal systems"
TITLE = "Share of 95 % intervals that hold the true difference, by seeds and method"
SIMULATION_SEEDS = (1, 2, 3, 4, 5, 6)  # of tables: unequal, equal, four equal, counted, tuned, pooled
RATES, STEP = (1e-3, 2e-3, 4e-3), 2.0
BEST = {"inside": RATES[1], "at an edge": RATES[0]}  # the best rate by its place among those that are given
LOST = ((2.5, 5.5), (0.6, 1.2))  # BLEU, one and two steps from the best rate
SHORT_SHARES, SHORT_NOISES = (0.5, 0.1), (0.3, 1.0)  # of what is lost, after a short run; between short runs, in BLEU
TUNED_SEEDS, TUNED_SEGMENTS = (3, 5), 500
WAYS = ("by variant", "by variant, rate?", "by seed", "by seed, growing, rate?")
TUNED_TITLE = "False verdicts on two equal methods whose learning rate is chosen by short runs"
POOLED_SYSTEMS, POOLED_SEEDS, POOLED_SEGMENTS = (4, 8), (3, 5), 100
POOLED_TITLE = "Intervals that hold the truth where two systems vary twice as much between seeds as the others"
ADVERSARIAL_SEED, ADVERSARIAL_SEGMENTS = 7, 100
LOOKS = (3, 4, 5, 6, 8, 10)  # seeds at each look
FALL, FALLS = 30.0, 0.3  # points that a seed loses if it falls, and the share of seeds that do
PER_DOCUMENT, BY_DOCUMENT = 10, 1.0  # segments; the deviation of documents relative to that of segments
HEADS, ABLATED_SEEDS = 8, 5
ORDER_LOST, ORDER_SHIFT = (1.2, 2.6), STEP  # BLEU that a rate costs; how far above the best rate short runs are best
ADVERSARIAL_TITLE = "Equal systems in the hands of an adversary, plainly and by headway"
PARTS = ("all", "tuning", "adversarial")

Floats = NDArray[np.float64]


class SimulatedBleu(Metric):
    """BLEU without smoothing from lengths of hypothesis and reference, matches and totals of each order."""

    name = "bleu"

    def statistics(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Statistics:
        raise NotImplementedError("statistics are simulated")

    def aggregate(self, totals: Statistics) -> float:
        return float(self.aggregate_all(totals[None])[0])

    def aggregate_all(self, totals: Statistics) -> Statistics:
        lengths, references = totals[:, 0], totals[:, 1]
        matches, every = totals[:, 2 : 2 + ORDERS], totals[:, 2 + ORDERS :]
        brevity = np.minimum(0.0, 1 - references / lengths)
        scores: Floats = 100 * np.exp(brevity + np.log(np.maximum(matches, 1e-9) / every).mean(axis=1))
        return scores

    def signature(self) -> Signature:
        return Signature.of(simulated=True)


BLEU = SimulatedBleu()


@dataclass(frozen=True)
class World:
    """BLEU as a function of quality, and what a deviation of BLEU between seeds is in quality.

    `fit` are the coefficients of a polynomial in the distance from `QUALITY`, highest power first.
    """

    fit: Floats

    @classmethod
    def measured(cls, sentences: int = 400_000) -> "World":
        """Fit to the BLEU of many sentences, the same for each quality."""
        distances = np.linspace(-0.4, 0.4, 9)
        scores = []
        for distance in distances:
            rng = np.random.default_rng(0)
            rows = sentence_statistics(rng, np.full((1, 1), QUALITY + distance), sentences)[0, 0]
            scores.append(BLEU.aggregate(rows.sum(axis=0)))
        return cls(np.polyfit(distances, scores, 3))

    def deviation(self, bleu: float) -> float:
        """The deviation of quality between seeds that makes one of BLEU."""
        return float(bleu / np.polyval(np.polyder(self.fit), 0.0))

    def truth(self, distance: float, deviation: float) -> float:
        """BLEU over infinitely many seeds and sentences."""
        nodes, weights = np.polynomial.hermite_e.hermegauss(9)
        return float(np.polyval(self.fit, distance + deviation * nodes) @ weights / weights.sum())

    def distance(self, bleu: float, deviation: float) -> float:
        """The distance in quality at which the true BLEU is so much higher."""
        low, high = 0.0, 0.4
        wanted = self.truth(0.0, deviation) + bleu
        while high - low > 1e-9:
            middle = (low + high) / 2
            low, high = (middle, high) if self.truth(middle, deviation) < wanted else (low, middle)
        return low


def sentence_statistics(rng: np.random.Generator, quality: Floats, sentences: int) -> Statistics:
    """Statistics (V, n, N, k) of V systems with n seeds, of these qualities (V, n), on N sentences."""
    systems, seeds = quality.shape
    lengths = np.clip(4 + rng.gamma(2.0, 9.0, sentences), 4, 100).astype(int)
    chance = quality[:, :, None] + rng.normal(0, DIFFICULTY, sentences)
    chance = chance + rng.normal(0, BY_SYSTEM, (systems, 1, sentences))
    chance = 1 / (1 + np.exp(-chance - rng.normal(0, BY_SEED, (systems, seeds, sentences))))
    written = np.maximum(1, lengths + np.rint(rng.normal(0, 0.08 * lengths, chance.shape)).astype(int))
    rows = np.empty((*chance.shape, 2 + 2 * ORDERS))
    rows[..., 0], rows[..., 1] = written, lengths
    matches = rng.binomial(np.minimum(written, lengths), chance)
    for order in range(ORDERS):
        rows[..., 2 + order] = matches
        rows[..., 2 + ORDERS + order] = np.maximum(0, written - order)
        matches = rng.binomial(np.maximum(matches - 1, 0), chance)
    return rows


def satterthwaite(difference: Linearised) -> tuple[float, float]:
    """The interval by the same variances with Satterthwaite's degrees of freedom."""
    estimate = difference.estimate()
    of_seeds, of_segments = estimate.seed_variance or 0.0, estimate.segment_variance
    total = of_seeds + of_segments
    degrees = total**2 / (of_seeds**2 / (estimate.seeds - 1) + of_segments**2 / (estimate.segments - 1))
    half = float(stats.t.isf(0.025, degrees)) * math.sqrt(total)
    return estimate.value - half, estimate.value + half


def seeds_alone(difference: Linearised) -> tuple[float, float]:
    """The interval of a paired t-test over seeds."""
    scores = difference.scores
    half = float(stats.t.isf(0.025, len(scores) - 1)) * scores.std(ddof=1) / math.sqrt(len(scores))
    return float(scores.mean() - half), float(scores.mean() + half)


def segments_alone(difference: Linearised) -> tuple[float, float]:
    """The interval over segments, the outputs of all seeds being given."""
    means = difference.influences.mean(axis=0)
    half = 1.96 * math.sqrt(float(means @ means)) / len(means)
    return float(difference.scores.mean() - half), float(difference.scores.mean() + half)


class BothResampled:
    """A percentile bootstrap over seeds and segments, of linearised scores."""

    def __init__(self, seeds: int, segments: int) -> None:
        rng = np.random.default_rng(1)
        self.seeds = rng.multinomial(seeds, np.full(seeds, 1 / seeds), RESAMPLES) / seeds
        self.segments = rng.multinomial(segments, np.full(segments, 1 / segments), RESAMPLES) / segments

    def __call__(self, difference: Linearised) -> tuple[float, float]:
        """The interval."""
        scores = difference.scores + self.segments @ difference.influences.T
        low, high = np.quantile((scores * self.seeds).sum(axis=1), [0.025, 0.975])
        return float(low), float(high)


@dataclass(frozen=True)
class Condition:
    """Results at a number of seeds and a deviation between them; shares are in percent.

    Args:
        coverage: by method, of 95 % intervals around the difference of unequal systems.
        width: by method, their mean width in BLEU.
        false: by method, of tables of equal systems with a verdict.
        power: verdicts on a difference of 1 BLEU, by headway.
        false_of_four: of tables of four equal systems with any verdict, by headway with Holm's method.
    """

    seeds: int
    deviation: float
    coverage: dict[str, float]
    width: dict[str, float]
    false: dict[str, float]
    power: float
    false_of_four: float


class Simulation:
    """Simulated tables of one condition.

    Args:
        world: where they are from.
        seeds: of each system.
        deviation: between seeds, in BLEU.
        count: tables of each kind.
        sentences: of the test set.
        bar: shows how many tables there have been.
    """

    def __init__(
        self, world: World, seeds: int, deviation: float, *, count: int, sentences: int, bar: Progress | None = None
    ) -> None:
        self.world, self.seeds, self.deviation = world, seeds, deviation
        self.count, self.sentences, self.bar = count, sentences, bar
        self.both = BothResampled(seeds, sentences)

    def run(self) -> Condition:
        """The shares of all kinds of tables, in percent."""
        held, seen = dict.fromkeys(METHODS, 0), 0
        wrong, width = dict.fromkeys(METHODS, 0), dict.fromkeys(METHODS, 0.0)
        unequal, equal, four_equal = SIMULATION_SEEDS[:3]
        for systems, truth in self._tables(2, PLANTED, unequal):
            seen += verdicts(systems) == ["better"]
            for name, (low, high) in self._intervals(systems):
                held[name] += low <= truth <= high
                width[name] += (high - low) / self.count
        for systems, _ in self._tables(2, 0.0, equal):
            for name, (low, high) in self._intervals(systems):
                wrong[name] += not low <= 0 <= high
        four = sum(any(word != "none" for word in verdicts(systems)) for systems, _ in self._tables(4, 0.0, four_equal))
        share = 100 / self.count
        return Condition(
            self.seeds, self.deviation, {name: share * tables for name, tables in held.items()}, width,
            {name: share * tables for name, tables in wrong.items()}, share * seen, share * four,
        )  # fmt: skip

    def _tables(self, systems: int, planted: float, seed: int) -> Iterator[tuple[list[Linearised], float]]:
        """Tables, in which the last system is better by `planted` BLEU, and the true difference."""
        spread = self.world.deviation(self.deviation)
        distances = np.zeros((systems, 1))
        distances[-1] = self.world.distance(planted, spread) if planted else 0.0
        truth = self.world.truth(float(distances[-1, 0]), spread) - self.world.truth(0.0, spread)
        for table in range(self.count):
            rng = np.random.default_rng((seed, table))
            quality = QUALITY + distances + rng.normal(0, spread, (systems, self.seeds))
            rows = sentence_statistics(rng, quality, self.sentences)
            yield [linearise(BLEU, list(system)) for system in rows], truth
            if self.bar is not None:
                self.bar.update(self.bar.done + 1)

    def _intervals(self, systems: Sequence[Linearised]) -> Iterator[tuple[str, tuple[float, float]]]:
        """The interval of the difference of two systems, by method."""
        difference = systems[1] - systems[0]
        yield "headway", difference.estimate().interval()
        yield "Satterthwaite", satterthwaite(difference)
        yield "seeds alone", seeds_alone(difference)
        yield "segments alone", segments_alone(difference)
        yield "bootstrap of both", self.both(difference)


def verdicts(systems: Sequence[Linearised]) -> list[str]:
    """The verdicts of `headway compare` on all pairs."""
    named = {str(index): system for index, system in enumerate(systems)}
    return [pair.verdict for pair in compared_pairs(Measure("bleu", "BLEU", BLEU), named, 0.0, None)]


def counted_false(seeds: int, sentences: int, share: int, count: int) -> float:
    """The share of tables of two equal systems with a verdict by exact match, in percent.

    Args:
        seeds: of both systems.
        sentences: of the test set.
        share: of outputs that are right, in percent.
        count: tables.
    """
    metric, seen = build_metric("exact_match"), 0
    for table in range(count):
        rng = np.random.default_rng((SIMULATION_SEEDS[3], table))
        right = (rng.random((2, seeds, sentences)) < share / 100).astype(float)
        one, other = (linearise(metric, [np.stack([row, np.ones_like(row)], axis=1) for row in rows]) for rows in right)
        named = {"one": one, "other": other}
        seen += compared_pairs(Measure("exact_match", "exact match", metric), named, 0.0, None)[0].verdict != "none"
    return 100 * seen / count


def counted_table(count: int, bar: Progress) -> Table:
    """False verdicts by exact match, a row a number of seeds and a column a test set."""
    kinds = [(sentences, share) for sentences in COUNTED_SENTENCES for share in COUNTED_SHARES]
    rows = list[list[Cell]]()
    for seeds in SEEDS:
        row: list[Cell] = [seeds]
        for sentences, share in kinds:
            row.append(counted_false(seeds, sentences, share, count))
            bar.update(bar.done + count)
        rows.append(row)
    names = [f"{sentences} sentences, {share} % right" for sentences, share in kinds]
    return Table([Column("seeds"), *(Column(name, "%", ".1f") for name in names)], rows, title=COUNTED_TITLE)


@dataclass(frozen=True)
class Tuning:
    """Two equal methods, the learning rate of each chosen by short runs.

    Args:
        lost: BLEU that a rate costs at the end, one and two steps from the best; a square joins and extends them.
        best: the best rate.
        share: of that loss that a short run shows.
        noise: the deviation between short runs, in BLEU.
    """

    lost: tuple[float, float]
    best: float
    share: float
    noise: float

    def loss(self, rate: float) -> float:
        """BLEU that a rate costs at the end of training."""
        steps, (one, two) = abs(math.log(rate / self.best, STEP)), self.lost
        square = (two - 2 * one) / 2
        return (one - square) * steps + square * steps**2

    def choice(self, rng: np.random.Generator, tune: TuneConfig) -> Choice:
        """The rate that short runs choose, which are made at an edge as `headway compare` makes them."""
        scores: dict[float, float] = {}
        further: Sequence[float] = tune.values
        while further:
            for rate in further if not scores else further[:1]:
                scores[rate] = float(rng.normal(-self.share * self.loss(rate), self.noise))
            value = list(scores)[best_score(list(scores.values()), [None] * len(scores), BLEU)]
            further = tune.beyond(list(scores), value)
        return Choice("", (), value, tuple(scores))

    def words(self, rng: np.random.Generator, seeds: int) -> dict[str, tuple[bool, bool]]:
        """Of one table, by the way in which rates are chosen: whether there is a verdict, and whether a doubt."""
        noise = tuned_noise(rng, seeds)
        given, grown = (TuneConfig(key="optimizer.learning_rate", values=RATES, grow=count) for count in (0, 3))
        chosen = {
            "by variant": [[self.choice(rng, given)] * seeds for _ in noise],
            "by seed": [[self.choice(rng, given) for _ in range(seeds)] for _ in noise],
            "by seed, growing, rate?": [[self.choice(rng, grown) for _ in range(seeds)] for _ in noise],
        }
        found = dict[str, tuple[bool, bool]]()
        for way, choices in chosen.items():
            systems = [
                replace(one, scores=one.scores - [self.loss(choice.value) for choice in row])
                for one, row in zip(noise, choices, strict=True)
            ]
            found[way] = verdicts(systems) != ["none"], any(choice.edge for row in choices for choice in row)
        return {**found, "by variant, rate?": found["by variant"]}


def tuned_noise(rng: np.random.Generator, seeds: int) -> list[Linearised]:
    """Scores around 0 of two systems, whose difference varies as it usually does in the records of headway."""
    usual, systems = TYPICAL["bleu"], []
    for _ in range(2):
        segments = rng.normal(0, usual.segments, TUNED_SEGMENTS)
        influences = (segments + rng.normal(0, usual.interaction, (seeds, TUNED_SEGMENTS))) / math.sqrt(2)
        means = influences.mean(axis=1)
        scores = rng.normal(0, usual.seeds / math.sqrt(2), seeds) + means
        systems.append(Linearised(scores, influences - means[:, None]))
    return systems


def tuned_row(tuning: Tuning, seeds: int, count: int) -> list[float]:
    """The share of tables with a false verdict in percent, by the way of choosing, and with a doubt by the last one."""
    wrong, doubted = dict.fromkeys(WAYS, 0), 0
    for table in range(count):
        found = tuning.words(np.random.default_rng((SIMULATION_SEEDS[4], table)), seeds)
        for way, (verdict, doubt) in found.items():
            wrong[way] += verdict and not (doubt and way.endswith("rate?"))
        doubted += found[WAYS[-1]][1]
    return [100 * tables / count for tables in (*wrong.values(), doubted)]


def tuned_table(count: int, bar: Progress) -> Table:
    """False verdicts by the way in which the learning rate is chosen."""
    rows = list[list[Cell]]()
    for lost in LOST:
        for place, best in BEST.items():
            for share in SHORT_SHARES:
                for noise in SHORT_NOISES:
                    for seeds in TUNED_SEEDS:
                        numbers = tuned_row(Tuning(lost, best, share, noise), seeds, count)
                        rows.append([lost[0], place, 100 * share, noise, seeds, *numbers])
                        bar.update(bar.done + count)
    columns = [
        Column("lost a step from the best rate", "BLEU", ".1f"), Column("best rate"),
        Column("shown by a short run", "%", ".0f"), Column("sd between short runs", "BLEU", ".1f"), Column("seeds"),
        *(Column(way, "%", ".1f") for way in WAYS), Column("at an edge still", "%", ".1f"),
    ]  # fmt: skip
    return Table(columns, rows, title=TUNED_TITLE)


def pooled_plainly(a: Linearised, b: Linearised, every: Sequence[Linearised]) -> Estimate:
    """The estimate of b - a with the mean of the variances of all systems, and the degrees of freedom of all."""
    shared = 2 * float(np.mean([one.scores.var(ddof=1) for one in every])) / len(a.scores)
    return replace((b - a).estimate(), seed_variance=shared, pooled=len(every))


def pooled_row(systems: int, seeds: int, pair: tuple[int, int], count: int) -> list[float]:
    """Intervals of equal systems that hold 0, in percent, and their mean widths: alone, pooled plainly, and pooled.

    The first two systems have twice the deviation of the others. Nothing differs by segment, where seeds count most.
    """
    held, width = np.zeros(3), np.zeros(3)
    for table in range(count):
        scores = np.random.default_rng((SIMULATION_SEEDS[5], table)).normal(0, 1, (systems, seeds))
        scores[:2] *= 2
        every = [Linearised(row, np.zeros((seeds, POOLED_SEGMENTS))) for row in scores]
        a, b = (every[index] for index in pair)
        for way, one in enumerate(((b - a).estimate(), pooled_plainly(a, b, every), pooled_difference(a, b, every))):
            low, high = one.interval()
            held[way] += low <= 0 <= high
            width[way] += high - low
    return [*(100 * held / count).tolist(), *(width / count).tolist()]


def pooled_table(count: int, bar: Progress) -> Table:
    """The coverage of pooled intervals by pairs of systems of larger and smaller deviations."""
    pairs, rows = {"large, large": (0, 1), "large, small": (0, 2), "small, small": (2, 3)}, list[list[Cell]]()
    for systems in POOLED_SYSTEMS:
        for seeds in POOLED_SEEDS:
            for name, pair in pairs.items():
                rows.append([systems, seeds, name, *pooled_row(systems, seeds, pair, count)])
                bar.update(bar.done + count)
    ways = ("alone", "pooled plainly", "pooled")
    columns = [Column("systems"), Column("seeds"), Column("deviations of the pair")]
    columns += [Column(f"{way}: held", "%", ".1f") for way in ways]
    columns += [Column(f"{way}: width", format=".2f") for way in ways]
    return Table(columns, rows, title=POOLED_TITLE)


class Mean(Metric):
    """The mean of simulated numbers, of which each is an output."""

    name = "mean"

    @property
    def bounds(self) -> tuple[float, float]:
        return -math.inf, math.inf

    def statistics(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Statistics:
        return np.array([[float(text), 1.0] for text in hypotheses])

    def aggregate(self, totals: Statistics) -> float:
        return float(totals[0] / totals[1])

    def signature(self) -> Signature:
        return Signature.of(simulated=True)


MEAN = Measure("mean", "mean", Mean())


@dataclass(frozen=True)
class Adversary:
    """Equal systems, and what is made of them: by a plain rule, and by that of headway.

    Args:
        kind: what the adversary does.
        seeds: of each system.
        table: from random numbers, whether the interval holds 0 and whether a verdict is false, by both rules; None for
            intervals that are not made.
    """

    kind: str
    seeds: int
    table: Callable[[np.random.Generator, int], tuple[bool | None, bool | None, bool, bool]]

    def row(self, count: int) -> list[Cell]:
        """The shares of tables, in percent."""
        found = [self.table(np.random.default_rng((ADVERSARIAL_SEED, index)), self.seeds) for index in range(count)]
        shares = [[each for each in column if each is not None] for column in zip(*found, strict=True)]
        return [self.kind, self.seeds, *(100 * sum(share) / len(share) if share else None for share in shares)]


def equal_systems(rng: np.random.Generator, seeds: int, systems: int = 2) -> Floats:
    """The numbers (V, n, N) of systems that vary by seed and by segment."""
    segments = rng.normal(0, 3, (systems, 1, ADVERSARIAL_SEGMENTS))
    return rng.normal(30, 1, (systems, seeds, 1)) + segments + rng.normal(0, 3, (systems, seeds, ADVERSARIAL_SEGMENTS))


def rows_of(numbers: Floats) -> list[Statistics]:
    """The statistics of each seed."""
    return [np.stack([row, np.ones_like(row)], axis=1) for row in numbers]


def said(pairs: Sequence[ComparedPair]) -> bool:
    """Whether there is any verdict."""
    return any(pair.verdict != "none" for pair in pairs)


def paired(numbers: Floats, **options: Any) -> list[ComparedPair]:
    """The pairs of systems with these numbers."""
    named = {str(index): linearise(MEAN.metric, rows_of(system)) for index, system in enumerate(numbers)}
    return compared_pairs(MEAN, named, 0.5, options.pop("baseline", None), **options)


def failed_seeds(rng: np.random.Generator, seeds: int) -> tuple[bool | None, bool | None, bool, bool]:
    """The two worst seeds of one system fail."""
    numbers = equal_systems(rng, seeds)
    kept = sorted(np.argsort(numbers[1].mean(axis=1))[2:])
    test = EvaluationSet("test", (("",) * ADVERSARIAL_SEGMENTS,))
    cells = [
        CellResult(name, seed, (CellOutput(test, tuple(map(repr, system[seed].tolist()))),))
        for name, system in zip("ab", numbers, strict=True)
        for seed in map(int, kept)
    ]
    plain, ours = (
        compare_cells(cells, [MEAN.metric], {"mean": 0.5}, incomplete=lost)
        for lost in ({}, {"b": "b failed with 2 seeds"})
    )
    return None, None, said(plain.pairs), said(ours.pairs)


def peeking(rng: np.random.Generator, seeds: int) -> tuple[bool | None, bool | None, bool, bool]:
    """Seeds are added until there is a verdict."""
    numbers, counts = equal_systems(rng, seeds), [count for count in LOOKS if count <= seeds]
    plain = any(said(paired(numbers[:, :count])) for count in counts)
    return None, None, plain, any(said(paired(numbers[:, :count], looks=look)) for look, count in enumerate(counts, 1))


def falling(rng: np.random.Generator, seeds: int) -> tuple[bool | None, bool | None, bool, bool]:
    """Some seeds of both systems fall."""
    numbers = equal_systems(rng, seeds)
    numbers -= FALL * (rng.random((2, seeds, 1)) < FALLS)
    (pair,) = paired(numbers)
    low, high = pair.estimate.interval()
    held = low <= 0 <= high
    return held, held or pair.groups is not None, not held, said([pair])


def in_documents(rng: np.random.Generator, seeds: int) -> tuple[bool | None, bool | None, bool, bool]:
    """Segments of a document are alike in how the systems differ."""
    documents = np.repeat(rng.normal(0, 3 * BY_DOCUMENT, (2, 1, ADVERSARIAL_SEGMENTS)), PER_DOCUMENT, axis=2)
    numbers = documents + rng.normal(30, 0.1, (2, seeds, 1)) + rng.normal(0, 3, (2, seeds, documents.shape[2]))
    test = EvaluationSet("test", (), documents=tuple(str(index // PER_DOCUMENT) for index in range(documents.shape[2])))
    plain, ours = (
        [linearise(MEAN.metric, [unit(rows) for rows in rows_of(system)]) for system in numbers]
        for unit in (lambda rows: rows, test.by_document)
    )
    held = [low <= 0 <= high for low, high in ((b - a).estimate().interval() for a, b in (plain, ours))]
    return held[0], held[1], not held[0], not held[1]


def ranked_heads(rng: np.random.Generator, seeds: int) -> tuple[bool | None, bool | None, bool, bool]:
    """The largest loss of idle heads is said to matter."""
    whole = rng.normal(30, 3, (seeds, ADVERSARIAL_SEGMENTS))
    numbers = whole + rng.normal(0, 1, (HEADS, seeds, ADVERSARIAL_SEGMENTS))
    least = numbers.mean(axis=2).argmin(axis=0)
    plain = paired(np.stack([whole, numbers[least, np.arange(seeds)]]))
    without = {f"d:head={head}": rows_of(each) for head, each in enumerate(numbers)}
    ranks = by_rank(MEAN, rows_of(whole), without, 0.0)
    return None, None, said(plain), any(pair.verdict in ("better", "worse") for pair in ranks)


def idle_parts(rng: np.random.Generator, seeds: int) -> tuple[bool | None, bool | None, bool, bool]:
    """Of many parts, by two metrics, which all lose just the margin, one is said to make no difference."""
    margin, found = 1.0, []
    for _ in range(2):
        whole = rng.normal(30, 3, (seeds, ADVERSARIAL_SEGMENTS))
        numbers = whole - margin + rng.normal(0, 1, (4 * HEADS, seeds, ADVERSARIAL_SEGMENTS))
        systems = {WHOLE: linearise(MEAN.metric, rows_of(whole))}
        systems |= {str(part): linearise(MEAN.metric, rows_of(each)) for part, each in enumerate(numbers)}
        pairs = compared_pairs(MEAN, systems, margin, WHOLE)
        found.append(Ablation(MEAN, "zero", systems, pairs, [], [], None))
    even = [
        any(p.verdict == "even" for each in some for p in each.pairs) for some in (found, as_one_family(found, margin))
    ]
    return None, None, even[0], even[1]


def with_baseline(rng: np.random.Generator, seeds: int) -> tuple[bool | None, bool | None, bool, bool]:
    """Four systems are compared with a baseline, by Holm's method and by Dunnett's, with pooled variance."""
    pairs = paired(equal_systems(rng, seeds, 5), baseline="0", pooled_variance=True)
    plain = min(holm([pair.p_value or 1.0 for pair in pairs])) <= SIGNIFICANT
    return None, None, plain, said(pairs)


def numbers_of_methods(rng: np.random.Generator, losses: Floats) -> Floats:
    """The numbers (V, n, N) of methods that lose this much with each seed (V, n), and differ as BLEU usually does."""
    usual, (methods, seeds) = TYPICAL["bleu"], losses.shape
    of_seeds = rng.normal(30 - losses, usual.seeds / math.sqrt(2))[:, :, None]
    of_segments = rng.normal(0, usual.segments / math.sqrt(2), (methods, 1, TUNED_SEGMENTS))
    return of_seeds + of_segments + rng.normal(0, usual.interaction / math.sqrt(2), (methods, seeds, TUNED_SEGMENTS))


def as_output(numbers: Floats) -> CellOutput:
    """The output that has these numbers."""
    return CellOutput(EvaluationSet("tuning", (("",) * len(numbers),)), tuple(map(repr, numbers.tolist())))


def order_of_short_runs(rng: np.random.Generator, seeds: int) -> tuple[bool | None, bool | None, bool, bool]:
    """Each seed of either method chooses its rate; the short runs of one method are best a step above the best rate."""
    key, whole = "optimizer.learning_rate", Tuning(ORDER_LOST, RATES[1], 1.0, 0.0)
    tune, checks, values, at_edge = TuneConfig(key=key, values=RATES), list[Check](), list[list[float]](), False
    for name, best in (("0", RATES[1] * ORDER_SHIFT), ("1", RATES[1])):
        short = Tuning(ORDER_LOST, best, SHORT_SHARES[0], SHORT_NOISES[0])
        choices = [short.choice(rng, tune) for _ in range(seeds)]
        at_edge |= any(choice.edge for choice in choices)
        values.append([choice.value for choice in choices])
        for value in dict.fromkeys(values[-1]):
            seed = values[-1].index(value)
            neighbour = neighbour_of(key, choices[seed].tried, value, lambda value: 0.0)
            if choices[seed].edge:
                continue
            both = numbers_of_methods(rng, np.array([[whole.loss(neighbour)], [whole.loss(value)]]))[:, 0]
            scores = rng.normal(30 - short.share * short.loss(value), short.noise, (seeds, 1))
            share, outputs = values[-1].count(value) / seeds, (as_output(both[0]), as_output(both[1]))
            checks.append(Check(name, share, value, neighbour, seed, outputs, tuple(map(as_output, scores))))
    (pair,) = paired(numbers_of_methods(rng, np.array([[whole.loss(value) for value in row] for row in values])))
    plain = said([pair]) and not at_edge
    return None, None, plain, plain and not doubt_of(pair, gains_of(checks, MEAN.metric))


ADVERSARIES = (
    *(Adversary("the two worst seeds of one system fail", seeds, failed_seeds) for seeds in (5, 10)),
    *(Adversary("seeds are added until there is a verdict", seeds, peeking) for seeds in (5, 10)),
    *(Adversary("three of ten seeds fall in both systems", seeds, falling) for seeds in (3, 4, 5, 10)),
    *(Adversary("ten segments a document", seeds, in_documents) for seeds in (3, 5)),
    *(Adversary("tuned order of short runs", seeds, order_of_short_runs) for seeds in (3, 5, 10)),
    Adversary("the largest loss of eight idle heads", ABLATED_SEEDS, ranked_heads),
    Adversary("32 parts by two metrics, at the margin", ABLATED_SEEDS, idle_parts),
    *(Adversary("four systems and a baseline: Holm, Dunnett", seeds, with_baseline) for seeds in (3, 5)),
)


def adversarial_table(count: int, bar: Progress) -> Table:
    """A row for each adversary."""
    rows = list[list[Cell]]()
    for adversary in ADVERSARIES:
        rows.append(adversary.row(count))
        bar.update(bar.done + count)
    names = ("held, plainly", "held", "false, plainly", "false")
    columns = [Column("what is done"), Column("seeds"), *(Column(name, "%", ".1f") for name in names)]
    return Table(columns, rows, title=ADVERSARIAL_TITLE)


def adversarial_record(table: Table, count: int, command: str) -> ResultRecord:
    """The record of the adversarial table."""
    text = (
        f"Each row has {count:,} tables of equal systems, with {ADVERSARIAL_SEGMENTS} segments or documents, and seeds"
        " that vary by 1 point.",
        "Plainly is the rule without what headway does about the row: failed seeds are dropped, looks are not counted,"
        " means of two groups are compared, segments are independent, chosen rates are not checked, heads are ranked by"
        " the losses that are judged, and verdicts are not adjusted over parts and metrics. In the last two rows, it is"
        " Holm's method.",
        f"In the rows of tuned systems, BLEU varies as it usually does, on {TUNED_SEGMENTS} segments. Each seed chooses"
        f" its rate, one step from the best costs {ORDER_LOST[0]:g} BLEU, and the short runs of one of both systems are"
        " best one step above the best rate of whole runs.",
        "Held is the share of tables whose 95 % interval has the true difference, or that have no interval.",
        "False is the share of tables with a verdict that is wrong.",
    )
    measured = measured_now([command], [ADVERSARIAL_SEED])
    return ResultRecord(title=ADVERSARIAL_TITLE, measured=measured, text=text, tables=(table.to_json(),))


def tables_of(conditions: Sequence[Condition]) -> list[Table]:
    """Two tables with a row a condition: the method of headway, and others."""
    ours: list[list[Cell]] = [
        [one.seeds, one.deviation, one.coverage[METHODS[0]], one.false[METHODS[0]], one.false_of_four, one.power,
         one.width[METHODS[0]]]
        for one in conditions
    ]  # fmt: skip
    shares = ("intervals that hold the truth", "false verdicts, A against A", "false, 4 equal systems", "power, 1 BLEU")
    first = [Column("seeds"), Column("sd between seeds", "BLEU", ".1f")]
    columns = [*first, *(Column(name, "%", ".1f") for name in shares), Column("width", "BLEU", ".2f")]
    others: list[list[Cell]] = [
        [one.seeds, one.deviation, *(cell for name in METHODS[1:] for cell in (one.coverage[name], one.false[name]))]
        for one in conditions
    ]
    pairs = [Column(f"{name}: {what}", "%", ".1f") for name in METHODS[1:] for what in ("held", "false")]
    return [Table(columns, ours), Table([*first, *pairs], others)]


def draw(conditions: Sequence[Condition], path: Path) -> None:
    """Draw the coverage of all methods by the number of seeds, a panel a deviation."""
    panels = []
    for index, deviation in enumerate(DEVIATIONS):
        chosen = [one for one in conditions if one.deviation == deviation]
        lines = {name: [(float(one.seeds), one.coverage[name]) for one in chosen] for name in METHODS}
        lines["95 %"] = [(SEEDS[0], 95.0), (SEEDS[-1], 95.0)]
        title = f"sd between seeds {deviation:g} BLEU"
        panels.append(
            Panel(title, "seeds", "intervals that hold the truth, %" if not index else "", lines, limits=(60, 100.5),
                  baseline="95 %")
        )  # fmt: skip
    panel_chart(panels, path)


def tuned_text(count: int) -> tuple[str, ...]:
    """How the tables of tuned methods, and of pooled variance, came about."""
    return (
        f"The two equal methods whose rates are chosen have {count:,} tables a row, with {TUNED_SEGMENTS} segments, and"
        " BLEU that varies as it usually does in these results.",
        f"Three rates are given, each {STEP:g} times the one before; the best is the middle one, or the lowest.",
        "By variant, the first seed chooses for all; with rate?, a choice at an edge leaves no verdict.",
        "Growing is what headway does by default: up to three more rates at an edge. At an edge still is the share of"
        " tables where that was not enough for a seed of either method, so that rate? stands in place of a verdict.",
        "The note that short runs do not tell rates apart, by variant, is left out.",
        "In the last table two systems have twice the deviation of the others, and nothing differs by segment.",
        "Pooled is what headway does where it is asked to; plainly is the mean of all variances.",
    )


def with_tuning(path: Path, tables: Sequence[Table], count: int, command: str) -> ResultRecord:
    """A record that is there, with the tables of tuned methods measured anew, and when and by what they were."""
    record, now, own = read_record(path), measured_now([command], SIMULATION_SEEDS[4:]), tuned_text(count)
    titles = {table.title for table in tables}
    kept = [table for table in record.tables if table.get("title") not in titles]
    what = "The tables of tuned methods, and of pooled variance, were made"
    said = f"{what} on {now.date} at {now.commit}."
    text = [one for one in record.text if one not in own and not one.startswith(what)]
    commands = tuple(dict.fromkeys((*record.measured.commands, command)))
    return record.model_copy(
        update={
            "measured": record.measured.model_copy(update={"commands": commands}),
            "text": (*text, *own, said),
            "tables": (*kept, *(table.to_json() for table in tables)),
        }
    )


def record_of(
    tables: Sequence[Table], count: int, sentences: int, bleu: float, command: str, figure: Path | None = None
) -> ResultRecord:
    """The results with how they came about."""
    text = (
        f"In each condition {count:,} tables of each kind are simulated: two systems of which one is better by"
        f" {PLANTED:g} BLEU, two equal ones, and four equal ones.",
        f"A test set has {sentences:,} sentences, and a system about {bleu:.0f} BLEU.",
        "Held is the share of 95 % intervals around the difference of the unequal systems that hold the true one.",
        "Power is the share of them with the verdict better.",
        "Four equal systems make six pairs; a table of them is false where any pair has a verdict.",
        "By exact match, an output of either system is right by chance alone.",
        *tuned_text(count),
    )
    made = tuple(table.to_json() for table in tables)
    return ResultRecord(
        title="Coverage of intervals and verdicts", measured=measured_now([command], SIMULATION_SEEDS), text=text,
        tables=made, figures=() if figure is None else (Figure(file=figure.name, title=TITLE),),
    )  # fmt: skip


def main() -> None:
    """Simulate all conditions, print the tables, and write the record and the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=2000, help="of each kind and condition")
    parser.add_argument("--sentences", type=int, default=1000, help="of the test set")
    parser.add_argument("--output", type=Path, help="the record, as JSON")
    parser.add_argument("--figure", type=Path, help="the figure")
    parser.add_argument(
        "--part", choices=PARTS, default="all", help="tuning: into the record that is there; adversarial: alone"
    )
    given = parser.parse_args()
    tuned = len(LOST) * len(BEST) * len(SHORT_SHARES) * len(SHORT_NOISES) * len(TUNED_SEEDS)
    tuned += 3 * len(POOLED_SYSTEMS) * len(POOLED_SEEDS)
    command = " ".join(["python", *sys.argv])
    if given.part == "adversarial":
        with show(), progress("simulating", given.tables * len(ADVERSARIES), "tables") as bar:
            table = adversarial_table(given.tables, bar)
        print(table.text())
        if given.output is not None:
            write_record(given.output, adversarial_record(table, given.tables, command))
        return
    if given.part == "tuning":
        with show(), progress("simulating", given.tables * tuned, "tables") as bar:
            tables = [tuned_table(given.tables, bar), pooled_table(given.tables, bar)]
        print("\n\n".join(table.text() for table in tables))
        if given.output is not None:
            write_record(given.output, with_tuning(given.output, tables, given.tables, command))
        return
    world, conditions = World.measured(), []
    kinds = 3 * len(DEVIATIONS) + len(COUNTED_SENTENCES) * len(COUNTED_SHARES)
    with show(), progress("simulating", given.tables * (len(SEEDS) * kinds + tuned), "tables") as bar:
        for seeds in SEEDS:
            for deviation in DEVIATIONS:
                simulation = Simulation(world, seeds, deviation, count=given.tables, sentences=given.sentences, bar=bar)
                conditions.append(simulation.run())
        tables = [*tables_of(conditions), counted_table(given.tables, bar)]
        tables += [tuned_table(given.tables, bar), pooled_table(given.tables, bar)]
    print("\n\n".join(table.text() for table in tables))
    if given.output is not None:
        bleu = world.truth(0.0, 0.0)
        record = record_of(tables, given.tables, given.sentences, bleu, command, given.figure)
        write_record(given.output, record)
    if given.figure is not None:
        draw(conditions, given.figure)


if __name__ == "__main__":
    main()
