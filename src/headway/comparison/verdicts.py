"""The verdicts on every pair of variants, from the outputs of their cells."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from statistics import fmean
from types import MappingProxyType
from typing import Any

from headway.comparison.cell_results import CellResult, Costs, EvaluationSet
from headway.comparison.checks import check_cells, check_margin
from headway.comparison.comparison import (
    ComparedPair,
    ComparedVariant,
    Comparison,
    Measure,
    SeedScores,
    Verdict,
    margin_of,
)
from headway.comparison.statistics import SIGNIFICANT, Estimate, Linearised, holm, linearise
from headway.errors import UserError
from headway.metrics.metric import Metric, Statistics


def compare_cells(
    cells: Sequence[CellResult],
    metrics: Sequence[Metric],
    margin: Mapping[str, float] = MappingProxyType({}),
    baseline: str | None = None,
    *,
    own_metrics: Mapping[str, Sequence[Metric]] = MappingProxyType({}),
    any_tokenization: bool = False,
) -> Comparison:
    """Compare variants: every pair, or every variant with a baseline.

    Args:
        cells: of at least two variants, with the same seeds and the same test sets.
        metrics: what scores; at least one.
        margin: by the name or the label of a metric, the difference up to which variants are even. Without one, only
            those are whose interval is 0 alone.
        baseline: the name of a variant.
        own_metrics: by the name of a test set, what scores it in the place of `metrics`.
        any_tokenization: compare also hypotheses of which some look tokenised and others do not.

    Raises:
        UserError: cells that cannot be compared (see `check_cells`), a margin of no metric, or no such baseline.
    """
    check_cells(cells, baseline, any_tokenization=any_tokenization)
    names = list(dict.fromkeys(cell.variant for cell in cells))
    by_variant = {name: _of_variant(cells, name) for name in names}
    measures = _measures(metrics, own_metrics, [output.test for output in cells[0].outputs])
    check_margin(margin, [measure.metric for measure in measures])
    variants = {
        name: ComparedVariant(name, tuple(c.seed for c in row), {}, _mean(row)) for name, row in by_variant.items()
    }
    statistics: dict[tuple[str, str], tuple[Statistics, ...]] = {}
    scores: dict[str, dict[str, SeedScores]] = {name: {} for name in names}
    pairs: list[ComparedPair] = []
    for measure in measures:
        linearised = {}
        for name, row in by_variant.items():
            statistics[measure.key, name] = tuple(_statistics(measure, cell) for cell in row)
            linearised[name] = linearise(measure.metric, statistics[measure.key, name])
            scores[name][measure.key] = SeedScores(tuple(linearised[name].scores.tolist()))
        found = compared_pairs(measure, linearised, margin_of(measure.metric, margin) or 0.0, baseline)
        missing = measure.metric.missing(cells[0].outputs[measure.test].test.references)
        if missing is not None:
            found = [replace(pair, verdict="none", why=re.split("[,;]", missing)[0]) for pair in found]
        pairs += found
    compared = tuple(ComparedVariant(v.name, v.seeds, scores[v.name], v.costs) for v in variants.values())
    return Comparison(compared, tuple(pairs), measures, dict(margin), baseline, by_variant, statistics)


def compared_pairs(
    measure: Measure, linearised: Mapping[str, Linearised], margin: float, baseline: str | None
) -> list[ComparedPair]:
    """The verdicts on all pairs of systems, or on all against a baseline, by one measure."""
    names = list(linearised)
    pairs = [*combinations(names, 2)] if baseline is None else [(baseline, name) for name in names if name != baseline]
    estimates = [(linearised[b] - linearised[a]).estimate() for a, b in pairs]
    p_values = [estimate.p_value() for estimate in estimates]
    known = [p for p in p_values if p is not None]
    adjusted: list[float | None] = [*holm(known)] if len(known) == len(pairs) else [None] * len(pairs)
    return [
        ComparedPair(a, b, measure.key, estimate, verdict(estimate, adjusted_p, margin, measure.metric), p, adjusted_p)
        for (a, b), estimate, p, adjusted_p in zip(pairs, estimates, p_values, adjusted, strict=True)
    ]


def verdict(estimate: Estimate, adjusted_p_value: float | None, margin: float, metric: Metric) -> Verdict:
    """The verdict on a difference: none with one seed; even where the interval lies within the margin."""
    if adjusted_p_value is None:
        return "none"
    low, high = estimate.interval()
    if -margin <= low and high <= margin:
        return "even"
    if adjusted_p_value > SIGNIFICANT:
        return "none"
    return "better" if (estimate.value > 0) is metric.higher_is_better else "worse"


def _measures(
    metrics: Sequence[Metric], own: Mapping[str, Sequence[Metric]], tests: Sequence[EvaluationSet]
) -> tuple[Measure, ...]:
    several = len(tests) > 1
    return tuple(
        Measure(
            f"{name} on {test.name}" if several else name,
            f"{metric.label} on {test.name}" if several else metric.label,
            metric,
            index,
        )
        for index, test in enumerate(tests)
        for name, metric in _by_name(own.get(test.name, metrics)).items()
    )


def _by_name(metrics: Sequence[Metric]) -> dict[str, Metric]:
    """Metrics by their names, or by their labels where names are not enough. Raises UserError."""
    if not metrics:
        raise UserError("a comparison needs at least one metric", where="metrics")
    names = [metric.name for metric in metrics]
    if len(set(names)) < len(names):
        names = [metric.label for metric in metrics]
    if len(set(names)) < len(names):
        raise UserError("two metrics of one name", where="metrics", received=", ".join(names))
    return dict(zip(names, metrics, strict=True))


def _of_variant(cells: Sequence[CellResult], name: str) -> tuple[CellResult, ...]:
    return tuple(sorted((cell for cell in cells if cell.variant == name), key=lambda cell: cell.seed))


def _statistics(measure: Measure, cell: CellResult) -> Statistics:
    output = cell.outputs[measure.test]
    return measure.metric.counted(output.hypotheses, output.test.references)


def _mean(cells: Sequence[CellResult]) -> Costs:
    """The means of costs over the seeds; of those that are known of all."""
    known = [cell.costs.known() for cell in cells]
    means: dict[str, Any] = {}
    for name in known[0]:
        values = [costs[name] for costs in known if name in costs]
        if len(values) == len(cells):
            means[name] = values[0] if len(set(values)) == 1 else fmean(values)
    return Costs(**means)
