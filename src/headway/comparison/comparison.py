"""The comparison of variants over seeds and test sets: scores, differences with intervals, and verdicts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations, pairwise
from math import comb, inf, isfinite, sqrt
from statistics import fmean, stdev
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from headway.comparison.cells import CellResult, Costs, EvaluationSet, check_cells, check_margin
from headway.core.errors import UserError, nearest
from headway.core.log import counted
from headway.core.tables import Cell, Column, Spread, Table
from headway.metrics.intervals import (
    LEVEL,
    SIGNIFICANT,
    TRIALS,
    Estimate,
    Interval,
    Linearised,
    dunnett,
    equal_variances,
    holm,
    level_of,
    linearise,
    pooled_difference,
    randomized,
)
from headway.metrics.metric import Metric, Statistics

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

Verdict = Literal["better", "worse", "even", "none", "rate?"]
IN_WORDS: dict[Verdict, str] = {
    "better": "better", "worse": "worse", "even": "even", "none": "no verdict", "rate?": "rate?"
}  # fmt: skip
_BETWEEN: dict[Verdict, str] = {
    "better": "{b} is better than {a}",
    "worse": "{b} is worse than {a}",
    "even": "{b} and {a} are even",
    "none": "no verdict on {b} and {a}",
    "rate?": "rate? for {b} and {a}",
}
COLOURS: dict[Verdict, str] = {
    "better": "#0f7a4d", "worse": "#b42318", "even": "#1f2933", "none": "#5d6975", "rate?": "#5d6975"
}  # fmt: skip
COST_COLUMNS = {
    "parameters": Column("parameters", format=","),
    "flops_per_token": Column("FLOPs a token", format=",.0f"),
    "cpu_seconds": Column("CPU time", "s", ",.0f"),
    "gpu_seconds": Column("GPU time", "s", ",.0f"),
    "training_tokens_per_second": Column("training", "tokens/s", ",.0f"),
    "decoding_tokens_per_second": Column("decoding", "tokens/s", ",.0f"),
    "peak_memory": Column("peak memory", "MB", ",.0f"),
    "decoding_state": Column("state", "bytes a sentence", ","),
    "learning_rate": Column("learning rate", format="g", align="right"),
}
MEGABYTE = 1e6
OF_OUTPUTS = "p_outputs", "p_outputs_holm", "outputs"
APART, POINT = 5, 1.0  # for two groups: the gap in deviations, the smallest deviation
FEW_APART = {3: 20, 4: 8}  # the gap by fewer seeds: scores of one group have it by chance as often as those of five
ONE_RATE, UNTUNED, LEARNING = "one rate for all", "untuned", "still learning"
ORDER = "order of short runs unknown"
LIMITS = {
    ONE_RATE: "the learning rate is the same for both, and another one may suit one of them better.",
    UNTUNED: "nothing was tuned, so that the difference may be that of the learning rates.",
    LEARNING: "one of both gained the margin (a point without one) or more in the last fifth of the updates, on dev.",
    ORDER: "values were chosen by short runs, and no whole run has checked a neighbour of each.",
}
FEW = 20  # a system has learned nothing if it has more distinct references than this for each distinct output
FLOOR = 0.01  # or if its score is within this share of the metric's range of the worst score
UNLEARNED = f"has learned: one different output for {FEW} different references, or {100 * FLOOR:g} % of the best score"
IN_GROUPS = (
    "Seeds in two groups have no mean to compare. If all seeds of one variant are above all of the other, p is that of"
    " a permutation of seeds, and otherwise that of Fisher's exact test on the shares above the gap."
)


@dataclass(frozen=True)
class Measure:
    """One metric on one test set.

    Args:
        key: the name in JSON: the metric's name, followed by the test set's if there are several.
        label: the name for people.
        metric: the metric that computes the scores.
        test: the index of the test set in the outputs of each cell.
    """

    key: str
    label: str
    metric: Metric
    test: int = 0


@dataclass(frozen=True)
class SeedScores:
    """The scores of one variant by one measure: a score per seed, and their mean with its confidence interval.

    With one seed, the interval covers the variation of the test set alone.
    """

    scores: tuple[float, ...]
    interval: Interval

    @property
    def mean(self) -> float:
        return fmean(self.scores)

    @property
    def sd(self) -> float | None:
        """The standard deviation between seeds; None with one seed."""
        return stdev(self.scores) if len(self.scores) > 1 else None

    @property
    def cell(self) -> Cell:
        """A table cell: mean and standard deviation between seeds or, with one seed, half the interval's width."""
        return self.interval.cell if self.sd is None else Spread(self.mean, self.sd)

    def to_json(self) -> dict[str, Any]:
        low, high = self.interval.low, self.interval.high
        return {"mean": self.mean, "sd": self.sd, "low": low, "high": high, "seeds": list(self.scores)}


@dataclass(frozen=True)
class ComparedVariant:
    """A variant: its seeds in ascending order, its scores by the key of the measure, and its mean costs."""

    name: str
    seeds: tuple[int, ...]
    scores: Mapping[str, SeedScores]
    costs: Costs


@dataclass(frozen=True)
class ComparedPair:
    """Variant b compared with variant a by one measure.

    Args:
        a, b: the names of the variants.
        metric: the key of the measure.
        estimate: the difference b - a, whichever direction is better.
        verdict: on b: `better`, `worse`, `even` if the interval lies within the margin, or `none`. `rate?` replaces the
            first three if `doubt` is not empty.
        p_value: accounts for seeds and test segments; None with one seed.
        adjusted_p_value: `p_value` adjusted by Holm's method over all pairs of the measure, and for looks.
        why: why there is no verdict: trainings are missing, or the metric cannot tell any outputs apart; or that seeds
            fall in two groups.
        doubts: of a and of b, the runs that are needed before the choice of its tuned value can be trusted.
        doubt: those that the verdict needs (see `needed`).
        most: the largest possible difference between two scores of the metric.
        limits: the limitations of the verdict, keys of `LIMITS`.
        level: the confidence level of the interval.
        groups: the gap between seeds in two groups, which replaces the interval; None without groups.
    """

    a: str
    b: str
    metric: str
    estimate: Estimate
    verdict: Verdict
    p_value: float | None
    adjusted_p_value: float | None
    why: str = ""
    doubts: tuple[str, str] = ("", "")
    doubt: str = ""
    most: float = inf
    limits: tuple[str, ...] = ()
    level: float = LEVEL
    groups: Groups | None = None

    @property
    def words(self) -> str:
        """The verdict with its limitations, for people."""
        words = ", ".join([IN_WORDS[self.verdict], *self.limits])
        return f"{words}: {self.why}" if self.why else words

    @property
    def needed(self) -> str:
        """The `doubts` that matter: those of the worse variant, which might be no worse, or of two that are even."""
        of_a, of_b = self.doubts
        of_verdict = {"better": (of_a,), "worse": (of_b,), "even": (of_a, of_b)}
        return "; ".join(filter(None, of_verdict.get(self.verdict, ())))

    @property
    def difference(self) -> float:
        """b - a."""
        return self.estimate.value

    @property
    def interval(self) -> tuple[float, float] | tuple[None, None]:
        """The confidence interval of the difference, clipped to the range of the metric's differences."""
        if self.groups is not None:
            return None, None
        low, high = self.estimate.interval(self.level)
        return max(low, -self.most), min(high, self.most)


@dataclass(frozen=True)
class Comparison:
    """All variants by all measures, and the verdict on every pair, or on every variant against the baseline.

    Args:
        variants: in the order of their first cells.
        pairs: by measure, in the order of the variants.
        measures: the metrics on the test sets.
        margin: by the name or the label of a metric, the difference up to which variants are even.
        baseline: the variant that the others are compared with; None for every pair.
        cells: by variant, in ascending order of seeds.
        statistics: by the key of a measure and the variant, the metric's statistics of every seed.
        notes: further notes for readers of the scores.
        tuning: the choices of the tuned key of a grid, as JSON values.
        equal_variances: if the seeds' variance is pooled, by measure the p-value of the test that all variants have the
            same variance; None if the test cannot be computed.
        looks: how often these variants have been compared, with other seeds each time. Look k has 1/k of the first
            look's probability of a false verdict.
    """

    variants: tuple[ComparedVariant, ...]
    pairs: tuple[ComparedPair, ...]
    measures: tuple[Measure, ...]
    margin: Mapping[str, float]
    baseline: str | None
    cells: Mapping[str, tuple[CellResult, ...]] = field(repr=False)
    statistics: Mapping[tuple[str, str], tuple[Statistics, ...]] = field(repr=False)
    notes: tuple[str, ...] = ()
    tuning: Mapping[str, Any] = field(default_factory=dict)
    equal_variances: Mapping[str, float | None] = field(default_factory=dict)
    looks: int = 1

    @property
    def seeds(self) -> int:
        """The number of seeds of each variant."""
        return len(self.variants[0].seeds)

    @property
    def tests(self) -> tuple[EvaluationSet, ...]:
        """The test sets."""
        return tuple(output.test for output in self.cells[self.variants[0].name][0].outputs)

    def margin_of(self, measure: Measure) -> float | None:
        """The margin of a measure, by its metric's name or label. None if the metric has no margin."""
        return self.margin.get(measure.metric.name, self.margin.get(measure.metric.label))

    def measure(self, key: str) -> Measure:
        """A measure by its key. Raises UserError if there is no such measure."""
        found = {measure.key: measure for measure in self.measures}
        if key not in found:
            raise UserError(f"there is no such measure{nearest(key, found)}", received=key, allowed=found)
        return found[key]

    @cached_property
    def of_outputs(self) -> Mapping[ComparedPair, tuple[float, float, str]]:
        """With one seed, a randomisation test of each pair's outputs: p-value, Holm's p-value, and a word on b."""
        found = dict[ComparedPair, tuple[float, float, str]]()
        for measure in self.measures if self.seeds == 1 else ():
            pairs = [pair for pair in self.pairs if pair.metric == measure.key]
            unit, of_measure = self.tests[measure.test].by_document, measure.key
            own = {name: unit(rows[0]) for (key, name), rows in self.statistics.items() if key == of_measure}
            p_values = randomized(measure.metric, [(own[pair.a], own[pair.b]) for pair in pairs]) if pairs else []
            for pair, p, adjusted in zip(pairs, p_values, holm(p_values), strict=True):
                word = "better" if (pair.difference > 0) is measure.metric.higher_is_better else "worse"
                found[pair] = p, adjusted, "" if pair.why else word if adjusted <= SIGNIFICANT else "not told apart"
        return found

    def table(self) -> Table:
        """A table with a row per variant: its scores, as mean ± standard deviation between seeds, and its costs.

        With one seed, ± is half the 95 % confidence interval over this test set alone.
        """
        known = [name for name in COST_COLUMNS if any(name in variant.costs.known() for variant in self.variants)]
        columns = [Column("variant"), *(Column(measure.label, format=".2f") for measure in self.measures)]
        rows: list[list[Cell]] = []
        for variant in self.variants:
            scores = [variant.scores[measure.key].cell for measure in self.measures]
            rows.append([variant.name, *scores, *(_cost(name, variant.costs) for name in known)])
        title = "Variants" if len(rows) > 1 else ""
        return Table([*columns, *(COST_COLUMNS[name] for name in known)], rows, title=title, notes=self._notes())

    def pair_table(self) -> Table:
        """A table with a row per pair and measure, with the verdict on b compared with a."""
        rows: list[list[Cell]] = []
        for pair in self.pairs:
            low, high = pair.interval
            numbers = [pair.difference, low, high, *self.of_outputs.get(pair, (0, pair.adjusted_p_value))[1:]]
            rows.append([self.measure(pair.metric).label, pair.a, pair.b, *numbers, pair.words])
        numbers_of = [Column(name, format="+.2f") for name in ("b - a", "low", "high")]
        said = [Column("b's outputs are"), Column("b is")][self.seeds > 1 :]
        columns = [Column("metric"), Column("a"), Column("b"), *numbers_of, Column("p", format=".4f"), *said]
        return Table(columns, rows, title="Differences", notes=self._verdict_notes())

    def conclusions(self) -> list[str]:
        """The verdicts as sentences, one per pair."""
        sentences = []
        for pair in self.pairs:
            low, high = pair.interval
            by = f"{pair.difference:+.2f} {self.measure(pair.metric).label}"
            numbers = by if low is None else f"{by}, {100 * pair.level:.3g} % interval {low:+.2f} to {high:+.2f}"
            if (p := self.of_outputs.get(pair, (0, pair.adjusted_p_value))[1]) is not None:
                of = " of these outputs" if self.seeds == 1 else ""
                numbers += f", p{of} {p:.4f}" if p >= 0.0001 else f", p{of} < 0.0001"
            reason = pair.why or (pair.doubt if pair.verdict == "rate?" else ", ".join(pair.limits))
            why = f" ({reason})" if reason else ""
            sentences.append(f"{_BETWEEN[pair.verdict].format(a=pair.a, b=pair.b)}: {numbers}{why}.")
        return sentences

    def signature(self, measure: Measure) -> str:
        """The metric's signature, from which the scores of a measure can be reproduced."""
        return str(measure.metric.signature().with_references(self.tests[measure.test].steps))

    def _notes(self) -> list[str]:
        tests = []
        for test in self.tests:
            facts = [counted(len(test), "segment")]
            facts += [counted(len({*test.documents}), "document")] if test.documents else []
            facts += [f"{len(test.references)} reference sets"] if len(test.references) > 1 else []
            facts += [f"references normalised: {test.steps}"] if test.steps else []
            tests.append(f"{test.name} ({', '.join(facts)})")
        seeds = f"{self.seeds} seeds; ±: standard deviation between seeds"
        if self.seeds == 1:
            over = "this test set" if len(tests) == 1 else "a test set"
            seeds = f"one seed; ±: half of the 95 % interval over {over} alone"
        signatures = [f"{measure.label}: {self.signature(measure)}" for measure in self.measures]
        return [f"{', '.join(tests)}; {seeds}", *signatures, *_precision_note(self.cells), *self.notes]

    def _verdict_notes(self) -> list[str]:
        if self.seeds == 1:
            alone = "The interval holds 95 % over this test set alone."
            of_p = f"p is of these outputs: approximate randomization, {TRIALS:,} trials, Holm's method over the pairs."
            return [f"{alone} One seed says nothing of the method: there is no verdict.", of_p]
        share = f"{100 * level_of(self.looks):.3g} %"
        notes = [f"The interval holds {share} over seeds and test sets; p is adjusted by Holm's method over the pairs."]
        if self.looks > 1:
            notes += [f"This is look {self.looks} at these variants, by other seeds each time: p is multiplied by it."]
        margins = ", ".join(f"{name} ±{value:g}" for name, value in self.margin.items())
        notes += [f"Even is an interval within the margin: {margins}."] if margins else []
        notes += self._pooled_notes()
        found = {limit for pair in self.pairs for limit in pair.limits}
        notes += [f"{limit.capitalize()}: {means}" for limit, means in LIMITS.items() if limit in found]
        doubts = dict.fromkeys(pair.doubt for pair in self.pairs if pair.verdict == "rate?")
        return [*notes, *(f"rate?: {doubt}." for doubt in doubts)]

    def _pooled_notes(self) -> list[str]:
        if not self.equal_variances:
            return []
        unequal = [
            f"{self.measure(key).label} (p {p_value:.4f})"
            for key, p_value in self.equal_variances.items()
            if p_value is not None and p_value <= SIGNIFICANT
        ]
        against = f"The variances differ by the test of Brown and Forsythe: {', '.join(unequal)}; do not pool them."
        return ["The seeds' variance is pooled over all variants.", *([against] if unequal else [])]

    def text(self) -> str:
        """Both tables as plain text."""
        tables = [self.table(), *([self.pair_table()] if self.pairs else [])]
        return "\n\n".join(table.text() for table in tables)

    def to_json(self) -> dict[str, Any]:
        """The comparison as a JSON object."""
        pairs, significance = list[dict[str, Any]](), list[dict[str, Any]]()
        for pair in self.pairs:
            names, estimate = {"a": pair.a, "b": pair.b, "metric": pair.metric}, pair.estimate
            low, high = pair.interval
            found = {"difference": pair.difference, "low": low, "high": high, "verdict": pair.verdict}
            doubt = "; ".join(filter(None, pair.doubts))
            said = {"why": pair.why, "doubt": doubt, "limits": list(pair.limits)}
            pairs.append(names | found | {name: what for name, what in said.items() if what})
            variances = ("seeds", "segments", "seed_variance", "segment_variance", "interaction_variance")
            of_chance = {name: getattr(estimate, name) for name in variances}
            of_chance |= {"pooled": estimate.pooled} if self.equal_variances else {}
            of_chance |= dict(zip(OF_OUTPUTS, self.of_outputs.get(pair, ()), strict=False))
            significance.append(names | {"p": pair.p_value, "p_holm": pair.adjusted_p_value} | of_chance)
        variants = {
            variant.name: {key: scores.to_json() for key, scores in variant.scores.items()} | variant.costs.known()
            for variant in self.variants
        }
        tests = [
            {"name": test.name, "segments": len(test), **({"references": test.steps} if test.steps else {})}
            for test in self.tests
        ]
        metrics = {
            measure.key: {
                "signature": self.signature(measure),
                "higher_is_better": measure.metric.higher_is_better,
                "margin": self.margin_of(measure),
            }
            for measure in self.measures
        }
        values = {
            "variants": variants,
            "pairs": pairs,
            "tests": tests,
            "metrics": metrics,
            "significance": significance,
        }
        further: dict[str, Any] = {"tuning": dict(self.tuning), "equal_variances": dict(self.equal_variances)}
        further["looks"] = self.looks if self.looks > 1 else None
        return values | {"baseline": self.baseline} | {name: value for name, value in further.items() if value}

    def plot(self, metric: str | None = None, ax: Axes | None = None) -> Axes:
        """A forest plot: the difference of each pair by one measure with its interval, around zero and the margin.

        Args:
            metric: the key of a measure; by default the first.
            ax: the axes to draw on; by default those of a new figure.

        Raises:
            UserError: there is no such measure.
        """
        import matplotlib.pyplot

        measure = self.measures[0] if metric is None else self.measure(metric)
        pairs = [pair for pair in self.pairs if pair.metric == measure.key]
        if ax is None:
            ax = matplotlib.pyplot.subplots(figsize=(7, 1.2 + 0.35 * len(pairs)), layout="constrained")[1]
        if margin := self.margin_of(measure):
            ax.axvspan(-margin, margin, color="0.9", zorder=0)
        ax.axvline(0, color="0.4", linewidth=1)
        for row, pair in enumerate(pairs):
            low, high = pair.interval
            ends = [end for end in (low, high) if end is not None]
            ax.plot(ends, [row] * len(ends), color=COLOURS[pair.verdict], linewidth=2)
            filled = "none" if pair.verdict in ("none", "rate?") else COLOURS[pair.verdict]
            ax.plot([pair.difference], [row], "o", color=COLOURS[pair.verdict], markerfacecolor=filled)
        labels = [f"{pair.b} against {pair.a}: {pair.words}".replace("$", r"\$") for pair in pairs]
        ax.set_yticks(range(len(pairs)), labels=labels)
        ax.invert_yaxis()
        ax.set_xlabel(f"difference in {measure.label}, 95 % interval".replace("$", r"\$"))
        return ax

    def to_pandas(self) -> dict[str, DataFrame]:
        """The tables as data frames: `variants`, `pairs`, and `cells` with a row per variant, seed and measure.

        Raises:
            UserError: pandas is not installed.
        """
        cells: list[list[Cell]] = [
            [variant.name, seed, measure.key, score]
            for variant in self.variants
            for measure in self.measures
            for seed, score in zip(variant.seeds, variant.scores[measure.key].scores, strict=True)
        ]
        tables = {
            "variants": self.table(),
            "pairs": self.pair_table(),
            "cells": Table(["variant", "seed", "metric", "score"], cells),
        }
        return {name: table.to_pandas() for name, table in tables.items()}

    def __repr__(self) -> str:
        said = [f"{_BETWEEN[pair.verdict].format(a=pair.a, b=pair.b)} by {pair.metric}" for pair in self.pairs[:3]]
        more = len(self.pairs) - len(said)
        shown = "; ".join([*said, *([f"{more} more"] if more else [])])
        return f"Comparison({len(self.variants)} variants, seeds: {self.seeds}; {shown})"

    def _repr_html_(self) -> str:
        return f"{self.table().html()}\n{self.pair_table().html()}"


def _precision_note(cells: Mapping[str, Sequence[CellResult]]) -> list[str]:
    """A note on the precision of training, for each variant if runs differ. Empty if the precision is not known."""
    by_variant = {name: Counter(cell.precision or "unknown" for cell in row) for name, row in cells.items()}
    precisions = set().union(*by_variant.values())
    if len(precisions) == 1 and "unknown" not in precisions:
        return [f"Trained in {precisions.pop()}."]
    if len(precisions - {"unknown"}) < 2:
        return []
    in_words = [
        f"{name} {', '.join(f'{precision} ({count})' for precision, count in sorted(counts.items()))}"
        for name, counts in by_variant.items()
    ]
    return [f"Trained in different precisions, with the number of seeds: {'; '.join(in_words)}."]


def _cost(name: str, costs: Costs) -> Cell:
    value: Cell = costs.known().get(name)
    if isinstance(value, int | float) and name == "peak_memory":
        return value / MEGABYTE
    return round(value) if isinstance(value, int | float) and name in ("parameters", "decoding_state") else value


def compare_cells(
    cells: Sequence[CellResult],
    metrics: Sequence[Metric],
    margin: Mapping[str, float] = MappingProxyType({}),
    baseline: str | None = None,
    *,
    own_metrics: Mapping[str, Sequence[Metric]] = MappingProxyType({}),
    any_tokenization: bool = False,
    pooled_variance: bool = False,
    doubts: Mapping[str, str] = MappingProxyType({}),
    incomplete: Mapping[str, str] = MappingProxyType({}),
    looks: int = 1,
) -> Comparison:
    """Compare variants: every pair, or every variant with a baseline.

    Args:
        cells: of all variants, with the same seeds and the same test sets.
        metrics: at least one.
        margin: by the name or the label of a metric, the difference up to which variants are even. Without a margin,
            variants are even only if the interval is exactly 0.
        baseline: the name of a variant.
        own_metrics: by the name of a test set, the metrics that replace `metrics` for it.
        any_tokenization: allow some hypotheses to look tokenised and others not.
        pooled_variance: estimate the seeds' variance from all variants together (`pooled_difference`).
        doubts: by variant, the runs that are needed before the choice of its tuned value can be trusted.
        incomplete: by variant, the trainings that are missing. The seeds that are left are a selection, so that pairs
            of the variant have no verdict.
        looks: how often the variants have been compared, with other seeds each time.

    Raises:
        UserError: the cells cannot be compared (see `check_cells`), or a margin or the baseline has an unknown name.
    """
    check_cells(cells, baseline, any_tokenization=any_tokenization)
    by_variant = {
        name: tuple(sorted((cell for cell in cells if cell.variant == name), key=lambda cell: cell.seed))
        for name in dict.fromkeys(cell.variant for cell in cells)
    }
    measures = measures_of(metrics, own_metrics, [output.test.name for output in cells[0].outputs])
    check_margin(margin, [measure.metric for measure in measures])
    pairs, notes, equal = list[ComparedPair](), list[str](), dict[str, float | None]()
    statistics, scores = dict[tuple[str, str], tuple[Statistics, ...]](), dict[str, dict[str, SeedScores]]()
    for measure in measures:
        linearised, unlearned, metric = {}, set[str](), measure.metric
        test = cells[0].outputs[measure.test].test
        references = test.references
        by_each = list(references) if metric.each_reference and len(references) > 1 else []
        for name, row in by_variant.items():
            outputs = [cell.outputs[measure.test].hypotheses for cell in row]
            alone = [
                metric.score(outputs[0], [lines], test.sources).value for lines in by_each
            ]  # before the signature of all sets
            counts = tuple(metric.counted(output, references, test.sources) for output in outputs)
            statistics[measure.key, name] = counts
            linearised[name] = linearise(metric, [test.by_document(rows) for rows in counts])
            if all(FEW * len(set(each)) <= len(set(references[0])) for each in outputs) or (
                score_nothing(linearised[name].scores.tolist(), metric)
            ):
                unlearned.add(name)
            interval = linearised[name].interval(metric.bounds)
            scores.setdefault(name, {})[measure.key] = SeedScores(tuple(linearised[name].scores.tolist()), interval)
            if len(row) == 1:
                which, of_each = f"{measure.label} of {name}", ", ".join(f"{value:.2f}" for value in alone)
                notes += [f"{which} by each reference alone: {of_each}"] if alone else []
                notes += [f"{which}: {note}" for note in metric.notes(counts[0].sum(axis=0))]
        even = margin.get(metric.name, margin.get(metric.label, 0.0))
        missing = metric.missing(references)
        for pair in compared_pairs(measure, linearised, even, baseline, pooled_variance=pooled_variance, looks=looks):
            both = pair.a, pair.b
            why = "; ".join(dict.fromkeys(incomplete[name] for name in both if name in incomplete))
            why = why or ("" if missing is None else re.split("[,;]", missing)[0])
            if not why and unlearned.issuperset(both):
                why = f"{'none' if len(unlearned) == len(by_variant) else 'neither'} {UNLEARNED}"
            pair = replace(pair, doubts=(doubts.get(pair.a, ""), doubts.get(pair.b, "")))
            doubt = "" if why else pair.needed
            word: Verdict = "none" if why else "rate?" if doubt else pair.verdict
            pairs.append(replace(pair, verdict=word, why=why or pair.why, doubt=doubt))
            notes += [IN_GROUPS] if pair.groups and IN_GROUPS not in notes else []
        if pooled_variance:
            equal[measure.key] = equal_variances(list(linearised.values()))
    variants = tuple(
        ComparedVariant(name, tuple(cell.seed for cell in row), scores[name], _mean(row))
        for name, row in by_variant.items()
    )
    return Comparison(
        variants, tuple(pairs), measures, dict(margin), baseline, by_variant, statistics, tuple(notes),
        equal_variances=equal, looks=looks,
    )  # fmt: skip


def score_nothing(scores: Sequence[float], metric: Metric) -> bool:
    """Whether all scores are within `FLOOR` of the worst score, as a share of the range. False if there is no range."""
    worst, best = metric.bounds if metric.higher_is_better else metric.bounds[::-1]
    return isfinite(best - worst) and all(abs(score - worst) <= FLOOR * abs(best - worst) for score in scores)


class Groups(NamedTuple):
    """Two groups that the seeds of a variant fall in: the score between them, and the seeds above it in words."""

    gap: float
    why: str


def in_groups(scores: Mapping[str, Sequence[float]], margin: float) -> Groups | None:
    """The groups of the first variant whose seeds fall in two; else None.

    A gap is `APART` times as wide as the deviation within the groups (with three or four seeds `FEW_APART` times), and
    `APART` times as wide as the margin (by default one point).
    """
    for name, own in scores.items():
        if len(own) < min(FEW_APART):
            continue
        ordered = sorted(own)
        width, index = max((high - low, index) for index, (low, high) in enumerate(pairwise(ordered), 1))
        groups = ordered[:index], ordered[index:]
        squares = sum((score - fmean(group)) ** 2 for group in groups for score in group)
        within = FEW_APART.get(len(own), APART) * sqrt(squares / (len(own) - 2))
        if width > max(within, APART * (margin or POINT)):
            gap = fmean(ordered[index - 1 : index + 1])
            shares = [f"{sum(score > gap for score in row)} of {len(row)} of {each}" for each, row in scores.items()]
            said = f"the seeds of {name} fall in two groups, and above {gap:.2f} are"
            return Groups(gap, f"{said} {' and '.join(shares)}")
    return None


def permutation_p(a: Sequence[float], b: Sequence[float]) -> float:
    """The two-sided p-value of a permutation of seeds if all seeds of one system are above all of the other; else 1."""
    return 2 / comb(len(a) + len(b), len(a)) if min(a) > max(b) or min(b) > max(a) else 1.0


def fisher_p(a: Sequence[float], b: Sequence[float], gap: float) -> float:
    """The two-sided p-value of Fisher's exact test on the shares of seeds above `gap`."""
    from scipy import stats  # imported late: it loads slowly

    counts = [(sum(score > gap for score in row), len(row)) for row in (a, b)]
    return float(stats.fisher_exact([[above, size - above] for above, size in counts]).pvalue)


def p_of_groups(a: Linearised, b: Linearised, gap: float) -> float:
    """The p-value of a pair whose seeds fall in two groups: of a permutation, or Fisher's test on shares above `gap`.

    It is never below the p-value over segments alone.
    """
    some, others = a.scores.tolist(), b.scores.tolist()
    over_segments = replace((b - a).estimate(), seed_variance=0.0).p_value() or 0.0
    return max(min(permutation_p(some, others), fisher_p(some, others, gap)), over_segments)


def compared_pairs(
    measure: Measure,
    linearised: Mapping[str, Linearised],
    margin: float,
    baseline: str | None,
    *,
    pooled_variance: bool = False,
    looks: int = 1,
) -> list[ComparedPair]:
    """The verdicts by one measure on all pairs of systems, or on all systems against the baseline, at look `looks`."""
    names = list(linearised)
    pairs = [*combinations(names, 2)] if baseline is None else [(baseline, name) for name in names if name != baseline]
    every = list(linearised.values())
    estimates = [
        pooled_difference(linearised[a], linearised[b], every)
        if pooled_variance
        else (linearised[b] - linearised[a]).estimate()
        for a, b in pairs
    ]
    groups = [in_groups({name: linearised[name].scores.tolist() for name in pair}, margin) for pair in pairs]
    p_values = [
        estimate.p_value() if found is None else p_of_groups(linearised[a], linearised[b], found.gap)
        for (a, b), estimate, found in zip(pairs, estimates, groups, strict=True)
    ]
    known = [p for p in p_values if p is not None]
    adjusted: list[float | None] = [None] * len(pairs)
    if known and len(known) == len(pairs):
        by_dunnett = pooled_variance and baseline is not None and not any(groups)
        first = estimates[0]
        family = dunnett(known, first.pooled * (first.seeds - 1)) if by_dunnett else holm(known)
        adjusted = [min(1.0, looks * p) for p in family]
    metric, (least, greatest), level = measure.metric, measure.metric.bounds, level_of(looks)
    return [
        ComparedPair(
            a, b, measure.key, one, verdict(one, adjusted_p, margin, metric, level, even=found is None), p, adjusted_p,
            why=found.why if found else "", most=greatest - least, level=level, groups=found,
        )
        for (a, b), one, p, adjusted_p, found in zip(pairs, estimates, p_values, adjusted, groups, strict=True)
    ]  # fmt: skip


def verdict(
    estimate: Estimate, adjusted_p_value: float | None, margin: float, metric: Metric, level: float, *, even: bool
) -> Verdict:
    """The verdict on a difference: `none` with one seed, `even` (if allowed) if the interval lies within the margin."""
    if adjusted_p_value is None:
        return "none"
    low, high = estimate.interval(level)
    if even and -margin <= low and high <= margin:
        return "even"
    if adjusted_p_value > SIGNIFICANT:
        return "none"
    return "better" if (estimate.value > 0) is metric.higher_is_better else "worse"


def measures_of(
    metrics: Sequence[Metric], own: Mapping[str, Sequence[Metric]], tests: Sequence[str]
) -> tuple[Measure, ...]:
    """The measures of metrics on test sets, with the metrics' names as keys, or their labels if names repeat.

    Raises:
        UserError: there are no metrics, or two are the same.
    """
    found = []
    for index, test in enumerate(tests):
        chosen = own.get(test, metrics)
        names = [metric.name for metric in chosen]
        if len(set(names)) < len(names):
            names = [metric.label for metric in chosen]
        if not chosen or len(set(names)) < len(names):
            what = "two metrics of one name" if chosen else "a comparison needs at least one metric"
            raise UserError(what, where="metrics", received=", ".join(names))
        on = f" on {test}" if len(tests) > 1 else ""
        found += [
            Measure(f"{n}{on}", f"{metric.label}{on}", metric, index) for n, metric in zip(names, chosen, strict=True)
        ]
    return tuple(found)


def _mean(cells: Sequence[CellResult]) -> Costs:
    """The mean over seeds of each cost that is known for all seeds. Learning rates that differ are listed as text."""
    known = [cell.costs.known() for cell in cells]
    means: dict[str, Any] = {}
    for name in known[0]:
        values = [costs[name] for costs in known if name in costs]
        if len(values) == len(cells):
            listed = ", ".join(f"{value:g}" for value in sorted(set(values)))
            means[name] = values[0] if len(set(values)) == 1 else listed if name == "learning_rate" else fmean(values)
    return Costs(**means)
