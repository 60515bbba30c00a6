"""Findings: whether the interval of a difference bears a claim out, and the table of claims that is shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, variance
from typing import Any, Literal

from headway.comparison.cell_results import CellResult
from headway.comparison.claims import COSTS, ClaimConfig, ClaimFile
from headway.comparison.comparison import Comparison
from headway.comparison.grid import Grid
from headway.comparison.grid_config import GridConfig
from headway.comparison.needed import needed_in_words
from headway.comparison.statistics import LEVEL, Estimate
from headway.errors import UserError
from headway.metrics import build_metric
from headway.tables import Cell, Column, Table

Finding = Literal["holds", "fails", "open"]

MORE_SEEDS = "more seeds than one are needed"
CLAIM_COLUMNS = ("claim", "inequality", "paper", "ours", "verdict")
HIGHER_IS_BETTER = ("training_tokens_per_second", "decoding_tokens_per_second")


@dataclass(frozen=True)
class Decided:
    """A claim with what was found.

    Attributes:
        claim: what was claimed.
        difference: of the two variants, in the direction that is better.
        low, high: the interval of it, for a cost that of the seeds; None for the cost of one seed.
        values: the scores, or costs, of both.
        finding: `holds`, `fails`, or `open` where the interval does not decide, or there is one seed.
        needs: of an open claim, what would decide it, in words.
    """

    claim: ClaimConfig
    difference: float
    low: float | None
    high: float | None
    values: tuple[float, float]
    finding: Finding
    needs: str = ""

    def to_json(self) -> dict[str, Any]:
        """The claim and the finding as values that JSON can hold."""
        found = {"difference": self.difference, "low": self.low, "high": self.high, "values": list(self.values)}
        return self.claim.model_dump(mode="json") | found | {"finding": self.finding, "needs": self.needs}


def decide(claim: ClaimConfig, comparison: Comparison, level: float = LEVEL) -> Decided | None:
    """The finding on a claim, by the interval of this level; None where one of its variants was not compared.

    Raises:
        UserError: a metric or test set that the comparison does not have.
    """
    left, _, right = claim.inequality
    variants = {variant.name: variant for variant in comparison.variants}
    if left not in variants or right not in variants:
        return None
    if claim.metric in COSTS:
        return _of_costs(claim, comparison.cells[left], comparison.cells[right], level)
    measure = comparison.measure(_measure_key(claim, comparison))
    for pair in comparison.pairs:
        if pair.metric == measure.key and {pair.a, pair.b} == {left, right}:
            break
    else:
        raise UserError("this pair is not compared", where=claim.claim, allowed="a grid without baseline")
    sign = (1 if pair.b == left else -1) * (1 if measure.metric.higher_is_better else -1)
    bounds = sorted(sign * bound for bound in pair.estimate.interval(level))
    values = variants[left].scores[measure.key].mean, variants[right].scores[measure.key].mean
    finding = finding_of(claim, bounds[0], bounds[1]) if comparison.seeds > 1 and not pair.why else "open"
    difference = sign * pair.difference
    needs = ""
    if finding == "open":
        paper = claim.paper_difference(higher_is_better=measure.metric.higher_is_better)
        needs = pair.why or _needs(claim, pair.estimate, sign, paper, level)
    return Decided(claim, difference, bounds[0], bounds[1], values, finding, needs)


def check_decidable(claims: ClaimFile, grid: Grid) -> None:
    """Raise UserError for a claim about variants of a grid by what the grid does not compare."""
    names = {variant.name for variant in grid.variants}
    for claim in claims.claims:
        left, _, right = claim.inequality
        if claim.metric in COSTS or not {left, right} <= names:
            continue
        measured = [(test.name, metric) for test in grid.tests for metric in grid.metrics_of(test)]
        if not any(
            claim.test in (None, test) and claim.metric in (None, metric.name, metric.label)
            for test, metric in measured
        ):
            received = f"{claim.metric or 'any metric'} on {claim.test or 'any test set'}"
            allowed = [f"{metric.name} on {test}" for test, metric in measured]
            raise UserError("there is no such measure", where=claim.claim, received=received, allowed=allowed)
        if grid.config.baseline not in (None, left, right):
            raise UserError("this pair is not compared", where=claim.claim, allowed="a grid without baseline")


def _needs(claim: ClaimConfig, estimate: Estimate, sign: int, paper: float | None, level: float) -> str:
    """The seeds and segments that would decide an open claim, were the difference the document's, or the one seen.

    Args:
        claim: the claim.
        estimate: of the difference.
        sign: -1 where it is above 0 when the left variant is worse.
        paper: the document's difference, above 0 where the left variant is better.
        level: of the interval.
    """
    if estimate.seed_variance is None:
        return MORE_SEEDS
    relation, margin, difference = claim.inequality.relation, claim.margin, sign * estimate.value
    if relation == ">" and paper is not None and paper > margin:
        if difference + estimate.half_width(level) < paper:
            return f"the interval leaves out a difference of {paper:.2f}, the published one"
        what = f"would mostly tell a difference of {paper:.2f}, the published one, from {margin:g}"
        return f"{needed_in_words(estimate, paper - margin, level)} {what}"
    distance = {">": difference - margin, ">=": difference + margin, "=": margin - abs(difference)}[relation]
    needs = needed_in_words(estimate, abs(distance), level)
    return f"{needs} would mostly be enough, were the difference the one that is seen"


def _measure_key(claim: ClaimConfig, comparison: Comparison) -> str:
    measures = comparison.measures
    fitting = [
        measure
        for measure in measures
        if claim.metric in (None, measure.metric.name, measure.metric.label)
        and claim.test in (None, comparison.tests[measure.test].name)
    ]
    if not fitting:
        raise UserError(
            "there is no such measure", where=claim.claim, received=f"{claim.metric} on {claim.test}",
            allowed=[measure.key for measure in measures],
        )  # fmt: skip
    return fitting[0].key


def finding_of(claim: ClaimConfig, low: float, high: float) -> Finding:
    """The finding by the interval of left - right, in the direction that is better."""
    relation, margin = claim.inequality.relation, claim.margin
    if relation == ">":
        holds, fails = low > margin, high <= margin
    elif relation == ">=":
        holds, fails = low >= -margin, high < -margin
    else:
        holds, fails = low >= -margin and high <= margin, high < -margin or low > margin
    return "holds" if holds else "fails" if fails else "open"


def _of_costs(
    claim: ClaimConfig, left: Sequence[CellResult], right: Sequence[CellResult], level: float
) -> Decided | None:
    """The finding on a cost, which differs by seed alone; None where a cell does not know it."""
    pairs = [[getattr(cell.costs, str(claim.metric)) for cell in pair] for pair in zip(left, right, strict=True)]
    if any(None in pair for pair in pairs):
        return None
    sign = 1 if claim.metric in HIGHER_IS_BETTER else -1
    differences, seeds = [sign * (one - other) for one, other in pairs], len(pairs)
    values = fmean(one for one, _ in pairs), fmean(other for _, other in pairs)
    if seeds == 1:
        return Decided(claim, differences[0], None, None, values, "open", MORE_SEEDS)
    estimate = Estimate(fmean(differences), seeds, seeds, variance(differences) / seeds, 0.0)
    low, high = estimate.interval(level)
    finding = finding_of(claim, low, high)
    needs = _needs(claim, estimate, 1, None, level) if finding == "open" else ""
    return Decided(claim, estimate.value, low, high, values, finding, needs)


def claims_table(decided: Mapping[str, Decided | None], claims: ClaimFile, *, as_printed: bool) -> Table:
    """A row a claim: what the paper has, what was found, and the verdict on the claim's sign.

    Args:
        decided: by the sentence of a claim.
        claims: the file.
        as_printed: whether data and budget are the paper's, so that absolute numbers are shown.
    """
    rows: list[list[Cell]] = []
    for claim in claims.claims:
        found = decided.get(claim.says)
        rows.append([
            claim.says, _margin_shown(claim), _paper_shown(claim, claims, as_printed=as_printed),
            "" if found is None else _found_shown(found, as_printed=as_printed),
            "not compared" if found is None else found.finding,
        ])  # fmt: skip
    columns = [Column(name, align="left") for name in CLAIM_COLUMNS]
    percent, difference = f"{100 * claims.level:.3g} %", "A difference is that of the left variant to the right"
    notes = [f"{difference}, above 0 where it is better, with the {percent} interval."]
    if claims.looks > 1:
        kept = f"{100 * claims.kept_level:.3g} %"
        notes += [f"Findings were looked at {claims.looks} times; all looks together keep {kept} or more."]
    notes += [
        f"Open, {claim.claim}: {found.needs}."
        for claim in claims.claims
        if (found := decided.get(claim.says)) is not None and found.needs
    ]
    return Table(columns, rows, title=f"{claims.document}: {claims.title}", notes=notes)


def _margin_shown(claim: ClaimConfig) -> str:
    return (
        f"{claim.claim} ± {claim.margin:g}"
        if claim.inequality.relation == "="
        else (
            f"{claim.claim} {'+' if claim.inequality.relation == '>' else '-'} {claim.margin:g}"
            if claim.margin
            else claim.claim
        )
    )


def _paper_shown(claim: ClaimConfig, claims: ClaimFile, *, as_printed: bool) -> str:
    """The numbers of the document, or their difference, above 0 where the left variant is better."""
    difference = claim.paper_difference(higher_is_better=_higher_is_better(claim, claims))
    if difference is None:
        return ""
    left, right = (claim.paper[name] for name in (claim.inequality.left, claim.inequality.right))
    return f"{left:g} / {right:g}" if as_printed else f"{difference:+.2f}"


def _higher_is_better(claim: ClaimConfig, claims: ClaimFile) -> bool:
    """Whether scores by the metric of a claim, or costs, are better where they are higher; yes where none is named."""
    if claim.metric in COSTS:
        return claim.metric in HIGHER_IS_BETTER
    grid = GridConfig.model_validate(claims.tree(claims.usual_budget))
    own = next((test.own_metrics() for test in grid.test if claim.test in (None, test.name)), None)
    metrics = [build_metric(**entry) for entry in own or grid.metrics or ()]
    if claim.metric is not None:
        named = (metric for metric in metrics if claim.metric in (metric.name, metric.label))
        return (next(named, None) or build_metric(claim.metric)).higher_is_better
    return not metrics or metrics[0].higher_is_better


def _found_shown(found: Decided, *, as_printed: bool) -> str:
    interval = "" if found.low is None else f" [{found.low:+.2f}, {found.high:+.2f}]"
    values = f"{found.values[0]:.2f} / {found.values[1]:.2f}, " if as_printed else ""
    return f"{values}{found.difference:+.2f}{interval}"
