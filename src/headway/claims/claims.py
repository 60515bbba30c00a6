"""Claims: hypotheses that are written down before they are measured.

A claim file has the variants, the data with the commands that prepare them, the budgets, the paper's numbers, and each
claim as an inequality with a margin. The file also records the findings, one sentence each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import inf
from pathlib import Path
from statistics import fmean, variance
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, field_validator, model_validator

from headway.comparison.cells import CellResult, Costs
from headway.comparison.comparison import FLOOR, Comparison, fisher_p, permutation_p, score_nothing
from headway.comparison.differences import banded_curves
from headway.comparison.options import LOGPROB, USUAL_BUDGET, AblateOptions
from headway.core.config import Section, merge, validated
from headway.core.errors import UserError, nearest
from headway.core.files import shipped
from headway.core.tables import Cell, Column, Table
from headway.grids.grid import Grid, GridConfig
from headway.grids.power import Sought, needed_in_words
from headway.metrics import Metric, build_metric
from headway.metrics.intervals import LEVEL, Estimate, level_of
from headway.recipe import read_tree

Relation = Literal[">", "=", ">="]
INEQUALITY = re.compile(r"\s*(\S+)\s*(>=|>|=)\s*(\S+)\s*")
COSTS = tuple(field.name for field in fields(Costs))
Finding = Literal["holds", "fails", "open", "rate?"]
Regime = Literal["plateau", "early", "as printed", "unknown", "unlearned"]

MORE_SEEDS = "more seeds than one are needed"
CLAIM_COLUMNS = ("claim", "inequality", "paper", "ours", "regime", "verdict")
IN_NOTES: dict[str, str] = {
    "early": "in the last fifth of the updates, one of both gained the margin or more on dev",
    "unknown": "no curve on dev says whether training was at a plateau",
    "unlearned": f"both scores are within {100 * FLOOR:g} % of the range of the worst score",
}
HIGHER_IS_BETTER = ("training_tokens_per_second", "decoding_tokens_per_second", LOGPROB)


class Inequality(NamedTuple):
    """`left > right`: left is better; `left = right`: both are even; `left >= right`: left is not worse."""

    left: str
    relation: Relation
    right: str


class ClaimConfig(Section):
    """One claim.

    `says`: the claim as a sentence. `claim`: an inequality of two variants, `A > B` (A is better), `A = B` (even) or `A
    >= B` (not worse), whichever direction of the metric is better. `metric`: one of the grid's, by default the first,
    or a cost such as `cpu_seconds`. `test`: the test set, if there are several. `margin`: in units of the metric, how
    much better A is at least, or the difference that counts as even. `paper`: the document's numbers by variant.
    `paper_spread`: the variance or standard deviation that the document prints beside them, by variant.
    """

    says: str
    claim: str
    metric: str | None = None
    test: str | None = None
    margin: Annotated[float, Field(ge=0, le=1e9)] = 0.0
    paper: dict[str, float] = Field(default={})
    paper_spread: dict[str, Annotated[float, Field(ge=0)]] = Field(default={})

    @field_validator("claim")
    @classmethod
    def _inequality(cls, value: str) -> str:
        match = INEQUALITY.fullmatch(value)
        if match is None or match[1] == match[3]:
            raise ValueError("a claim is A > B, A = B or A >= B, A and B being two variants")
        return value

    @model_validator(mode="after")
    def _even_within(self) -> ClaimConfig:
        if self.inequality.relation != ">" and not self.margin and self.metric not in COSTS:
            raise ValueError("what is even, or not worse, needs a margin")
        return self

    def printed(self, variant: str) -> str:
        """The document's number of a variant, with its spread."""
        spread = f" ± {self.paper_spread[variant]:g}" if variant in self.paper_spread else ""
        return f"{self.paper[variant]:g}{spread}"

    def paper_difference(self, *, higher_is_better: bool) -> float | None:
        """The difference of the document's numbers, above 0 if the left variant is better; None without numbers."""
        left, right = (self.paper.get(name) for name in (self.inequality.left, self.inequality.right))
        return None if left is None or right is None else (left - right) * (1 if higher_is_better else -1)

    @property
    def inequality(self) -> Inequality:
        """The parsed claim."""
        match = INEQUALITY.fullmatch(self.claim)
        assert match is not None
        return Inequality(match[1], match[2], match[3])  # type: ignore[arg-type]


class ClaimData(Section):
    """The data of a claim file.

    `about`: a description of the data and their origin. `prepare`: shell commands that write into `$OUTPUT`, and read
    the user's files in `$DATA`; they run in the folder of the claim file. `needs`: the files that have to be in
    `$DATA`; without any, the commands make all data.
    """

    about: str
    prepare: str
    needs: tuple[str, ...] = ()


class BudgetConfig(Section):
    """A budget: changes to the grid. `as_printed`: whether data and budget, and so the numbers, are the document's."""

    grid: dict[str, Any] = Field(default={})
    as_printed: bool = False


class CutConfig(Section):
    """The parts that are cut from variants.

    `parts`: patterns by VARIANT/PART, each cut as a whole. `options`: those of `headway inspect ablate`; `input` and
    `reference` are files in the folder of the data.
    """

    parts: Annotated[dict[Annotated[str, Field(pattern=r"^[\w.+=-]+/[\w.+=-]+$")], str], Field(min_length=1)]
    options: AblateOptions


class ClaimFile(Section):
    """A table of a document, or a question of our own.

    `document`: the source of the claims. `table`: the table in it. `setting`: the document's training data and budget.
    `data`: for the budget `small`, and for `full` unless `full_data` is set. `grid`: the keys of a grid, or the path of
    a grid file; `$OUTPUT` in its texts is the folder of the data. `cut`: parts of variants to cut. VARIANT/PART names
    the variant without the part; claims on it are by the first metric of `cut`, or their own. `looks`: how often
    findings were evaluated, with seeds or learning rates added for open claims, or all measured again. `paper_metric`:
    the metric of the document's numbers if it is not the first of the grid, such as `bleu:tokenize=13a-compounds`.
    `paper_flops`: the training cost that the document prints, in floating-point operations, by variant.
    """

    title: str
    document: str
    table: str = ""
    setting: str = ""
    data: ClaimData
    full_data: ClaimData | None = None
    grid: dict[str, Any]
    cut: CutConfig | None = None
    budgets: Annotated[dict[Literal["small", "full"], BudgetConfig], Field(min_length=1)]
    looks: Annotated[int, Field(ge=1, le=100)] = 1
    paper_metric: str = ""
    paper_flops: dict[str, Annotated[float, Field(gt=0)]] = Field(default={})
    claims: tuple[ClaimConfig, ...]
    findings: tuple[str, ...] = ()

    @property
    def usual_budget(self) -> str:
        """The default budget, or the first budget of the file if it lacks the default."""
        return USUAL_BUDGET if USUAL_BUDGET in self.budgets else next(iter(self.budgets))

    @property
    def level(self) -> float:
        """The confidence level of the last look."""
        return level_of(self.looks)

    @property
    def kept_level(self) -> float:
        """The confidence level that all looks together guarantee, by Bonferroni's inequality."""
        return 1 - sum(1 - level_of(look) for look in range(1, self.looks + 1))

    def tree(self, budget: str) -> dict[str, Any]:
        """The grid of a budget, as a raw tree. Raises UserError if the file has no such budget."""
        return merge(self.grid, self.budget(budget).grid)

    def budget(self, budget: str) -> BudgetConfig:
        """A budget by name. Raises UserError if the file has no such budget."""
        for name, config in self.budgets.items():
            if name == budget:
                return config
        raise UserError("these claims have no such budget", where="budget", received=budget, allowed=list(self.budgets))

    def data_of(self, budget: str) -> ClaimData:
        return self.full_data if budget == "full" and self.full_data is not None else self.data


class ClaimPath(NamedTuple):
    """`PAPER[/TABLE[/CELL]]`: a document, one of its claim files, and a variant in this file."""

    paper: str
    table: str | None = None
    cell: str | None = None

    @classmethod
    def parse(cls, text: str) -> ClaimPath:
        """Parse `PAPER[/TABLE[/CELL]]`. Raises UserError for any other text."""
        parts = text.split("/")
        if not all(parts) or len(parts) > 3:
            raise UserError("a claim is named PAPER/TABLE/CELL", where=text)
        return cls(*parts)


def claims_folder(given: Path | None = None) -> Path:
    """The folder of claim files: `given`, or `claims` in the current folder, or the one that headway ships."""
    here = Path("claims")
    return given or (here if here.is_dir() else shipped("claims"))


def claim_files(folder: Path) -> dict[str, Path]:
    """The claim files of a folder (`PAPER-TABLE.yaml`) by `PAPER/TABLE`. Raises UserError if there are none."""
    found = {path.stem.replace("-", "/", 1): path for path in sorted(folder.glob("*.yaml"))}
    if not found:
        raise UserError("there are no claim files here", where=str(folder))
    return found


def chosen_files(folder: Path, chosen: ClaimPath) -> dict[str, Path]:
    """The claim files of a document, or the one that `chosen` names. Raises UserError if there is none."""
    known = claim_files(folder)
    wanted = chosen.paper if chosen.table is None else f"{chosen.paper}/{chosen.table}"
    found = {name: path for name, path in known.items() if name == wanted or name.startswith(f"{wanted}/")}
    if not found:
        raise UserError(f"no such claims{nearest(wanted, known)}", where=wanted, allowed=known)
    return found


def read_claims(path: Path) -> ClaimFile:
    """Read a claim file. Raises UserError that lists all mistakes."""
    tree = read_tree(path)
    if isinstance(tree.get("grid"), str):
        tree["grid"] = _grid_of_file(path.parent / tree["grid"])
    claims = validated(ClaimFile, tree, str(path))
    variants = dict[str, Any]()
    for budget in claims.budgets:
        variants |= validated(GridConfig, claims.tree(budget), f"{path}: grid").variants
    cut = {} if claims.cut is None else claims.cut.parts
    if absent := [name for name in cut if name.partition("/")[0] not in variants]:
        raise UserError("no such variant", where=f"{path}: cut", received=absent, allowed=variants)
    variants |= cut
    said = [claim.says for claim in claims.claims]
    for claim in claims.claims:
        if said.count(claim.says) > 1:
            raise UserError("two claims say the same", where=str(path), received=claim.says)
        left, _, right = claim.inequality
        for name in (left, right, *claim.paper, *claim.paper_spread):
            if name not in variants:
                what, where = f"no such variant{nearest(name, variants)}", f"{path}: {claim.claim}"
                raise UserError(what, where=where, received=name, allowed=variants)
    return claims


def _grid_of_file(path: Path) -> dict[str, Any]:
    """The raw tree of a grid file, with absolute paths of recipes. Raises UserError."""

    def absolute(recipe: Any) -> Any:
        return str((path.parent / recipe).resolve()) if isinstance(recipe, str) else recipe

    tree = read_tree(path)
    if "recipe" in tree:
        tree["recipe"] = absolute(tree["recipe"])
    variants = tree.get("variants")
    if isinstance(variants, dict):
        for name, entry in variants.items():
            given = isinstance(entry, dict) and "recipe" in entry
            variants[name] = entry | {"recipe": absolute(entry["recipe"])} if given else absolute(entry)
    return tree


def tree_of_cell(tree: Mapping[str, Any], claims: ClaimFile, cell: str) -> dict[str, Any]:
    """The grid reduced to a variant and the variants that claims compare it with. Raises UserError."""
    variants = tree["variants"]
    if cell not in variants:
        raise UserError(f"no such variant{nearest(cell, variants)}", where=cell, allowed=variants)
    pairs = [claim.inequality for claim in claims.claims]
    wanted = {name for pair in pairs if cell in (pair.left, pair.right) for name in (pair.left, pair.right)}
    match = tree.get("match_parameters")
    sized_to = match.get("to") if isinstance(match, dict) else None
    if match and sized_to is None:
        sized_to = next(iter(variants))
    chosen = {name: entry for name, entry in variants.items() if name in wanted | {cell, sized_to}}
    return {**tree, "variants": chosen}


@dataclass(frozen=True)
class Decided:
    """A claim and its finding.

    Attributes:
        claim: the claim.
        difference: of the two variants, positive if left is better.
        low, high: the interval of the difference; for a cost over seeds alone. None for a cost with one seed, and for
            seeds in two groups.
        values: the scores, or costs, of both variants.
        finding: `holds`, `fails`, `open` if the interval does not decide or there is one seed, or `rate?` if the
            interval decides, but the choice of a tuned value may explain the difference.
        needs: for an undecided claim, what would decide it, as text.
        regime: how far both variants were trained; empty for a cost.
    """

    claim: ClaimConfig
    difference: float
    low: float | None
    high: float | None
    values: tuple[float, float]
    finding: Finding
    needs: str = ""
    regime: Regime | Literal[""] = ""

    @property
    def is_decided(self) -> bool:
        """Whether the claim holds or fails."""
        return self.finding in ("holds", "fails")

    @property
    def verdict(self) -> str:
        """The finding for people. A finding on early training says so."""
        return f"{self.finding} early" if self.regime == "early" and self.is_decided else self.finding

    def to_json(self) -> dict[str, Any]:
        return self.claim.model_dump(mode="json") | {name: each for name, each in vars(self).items() if name != "claim"}


def regimes_of(comparison: Comparison, *, as_printed: bool = False) -> dict[str, Regime]:
    """How far each variant was trained.

    A variant is at a `plateau` if the first dev metric with a margin improved by less than the margin in the last fifth
    of the updates, averaged over seeds, and `early` otherwise. It is `as printed` if data and budget are the paper's.
    """
    regimes: dict[str, Regime] = dict.fromkeys(comparison.cells, "as printed" if as_printed else "unknown")
    margins = {one.metric.name: comparison.margin_of(one) for one in comparison.measures} | dict(comparison.margin)
    for curves in banded_curves(comparison):
        if (margin := margins.get(curves.metric)) and not as_printed:
            gains = {variant: curves.last_gain(variant) for variant in curves.lines}
            known = {variant: gain for variant, gain in gains.items() if gain is not None}
            return regimes | {name: "plateau" if gain < margin else "early" for name, gain in known.items()}
    return regimes


def regime_of(claim: ClaimConfig, regimes: Mapping[str, Regime]) -> Regime | Literal[""]:
    """How far both variants of a claim were trained: early if either is. Empty if the claim is about a cost."""
    left, _, right = claim.inequality
    both = {regimes.get(name.partition("/")[0], "unknown") for name in (left, right)}
    order: tuple[Regime, ...] = ("early", "unknown", "plateau", "as printed")
    return "" if claim.metric in COSTS else next(regime for regime in order if regime in both)


def decide(
    claim: ClaimConfig,
    comparison: Comparison,
    level: float = LEVEL,
    regimes: Mapping[str, Regime] = MappingProxyType({}),
) -> Decided | None:
    """The finding on a claim that `check_decidable` accepts, by the confidence interval of this level.

    `regimes`: of the variants (`regimes_of`). None if a variant of the claim was not compared.
    """
    left, _, right = claim.inequality
    variants = {variant.name: variant for variant in comparison.variants}
    if left not in variants or right not in variants:
        return None
    if claim.metric in COSTS:
        return _of_costs(claim, comparison.cells[left], comparison.cells[right], level)
    measure = next(
        one
        for one in comparison.measures
        if claim.metric in (None, one.metric.name, one.metric.label)
        and claim.test in (None, comparison.tests[one.test].name)
    )
    pair = next(one for one in comparison.pairs if one.metric == measure.key and {one.a, one.b} == {left, right})
    higher = measure.metric.higher_is_better
    sign_of = 1 if higher else -1
    sign = sign_of if pair.b == left else -sign_of
    values = variants[left].scores[measure.key].mean, variants[right].scores[measure.key].mean
    estimate = replace(pair.estimate, value=sign * pair.difference)
    paper = claim.paper_difference(higher_is_better=higher)
    regime = "unlearned" if score_nothing(values, measure.metric) else regime_of(claim, regimes)
    ours, others = ([sign_of * score for score in variants[name].scores[measure.key].scores] for name in (left, right))
    grouped = pair.groups is not None and pair.why == pair.groups.why
    return decided_by(
        claim, estimate, values, level, paper, why=pair.why, regime=regime,
        doubts=pair.doubts if pair.a == left else pair.doubts[::-1],
        groups=Grouped(ours, others, sign_of * pair.groups.gap) if pair.groups is not None and grouped else None,
    )  # fmt: skip


def decided_by(
    claim: ClaimConfig,
    estimate: Estimate,
    values: tuple[float, float],
    level: float = LEVEL,
    paper: float | None = None,
    *,
    why: str = "",
    doubts: tuple[str, str] = ("", ""),
    regime: Regime | Literal[""] = "",
    groups: Grouped | None = None,
) -> Decided:
    """The finding from an estimate of left - right. The estimate and `paper` are above 0 if left is better.

    `why`: the reason why there is no finding; `doubts`: of left and of right, the runs that are needed before the
    choice of its tuned value can be trusted. `groups`: the scores of both variants' seeds, if they fall in two groups.
    """
    low, high = estimate.interval(level)
    finding: Finding = "open"
    if groups is not None:
        finding = _of_groups(claim, estimate, groups, level)
    elif estimate.seed_variance is not None and not why:
        finding = finding_of(claim, low, high)
    needs = why or _needs(claim, estimate, paper, level) if finding == "open" else ""
    if finding != "open" and (doubt := runs_needed(claim, finding, estimate.value, doubts)):
        finding, needs = "rate?", doubt
    ends: tuple[float | None, float | None] = (low, high) if groups is None else (None, None)
    return Decided(claim, estimate.value, *ends, values, finding, needs, regime)


def runs_needed(claim: ClaimConfig, finding: Finding, difference: float, doubts: tuple[str, str]) -> str:
    """The runs that a finding needs: those of the variants by whose better scores it would be another one."""
    left, right = doubts
    if claim.inequality.relation != "=":
        return right if finding == "holds" else left
    of_worse = left if difference < 0 else right
    return "; ".join(filter(None, doubts)) if finding == "holds" else of_worse


class Grouped(NamedTuple):
    """The scores of both variants' seeds, the higher the better, which fall in two groups around `gap`."""

    left: Sequence[float]
    right: Sequence[float]
    gap: float


def _of_groups(claim: ClaimConfig, estimate: Estimate, groups: Grouped, level: float) -> Finding:
    """The finding on seeds in two groups: what the differences of any two seeds agree on, if a permutation tells it.

    Otherwise it is that of the shares of seeds above the gap, if Fisher's test tells them apart. The interval over
    segments alone has to agree, too.
    """
    left, right, gap = groups
    margin = {">": claim.margin, ">=": -claim.margin, "=": claim.margin * (1 if fmean(left) > fmean(right) else -1)}
    moved = [score + margin[claim.inequality.relation] for score in right]
    if permutation_p(left, moved) <= 1 - level:
        found = finding_of(claim, min(left) - max(right), max(left) - min(right))
    elif fisher_p(left, moved, gap) <= 1 - level:
        ahead = inf if fmean(score > gap for score in left) > fmean(score > gap for score in moved) else -inf
        found = finding_of(claim, ahead, ahead)
    else:
        return "open"
    over_segments = finding_of(claim, *replace(estimate, seed_variance=0.0).interval(level))
    return found if found == over_segments else "open"


def check_decidable(claims: ClaimFile, grid: Grid) -> None:
    """Raise UserError for a claim about variants of a grid by a measure that the grid does not have."""
    names = {variant.name for variant in grid.variants}
    for claim in claims.claims:
        left, _, right = claim.inequality
        if claim.metric in COSTS or not {left, right} <= names:
            continue
        if not _measures_of(claim, grid):
            received = f"{claim.metric or 'any metric'} on {claim.test or 'any test set'}"
            allowed = [f"{metric.name} on {test.name}" for test in grid.tests for metric in grid.metrics_of(test)]
            raise UserError("there is no such measure", where=claim.claim, received=received, allowed=allowed)
        if grid.config.baseline not in (None, left, right):
            raise UserError("this pair is not compared", where=claim.claim, allowed="a grid without baseline")


def _measures_of(claim: ClaimConfig, grid: Grid) -> list[tuple[str, Metric]]:
    """The test sets and metrics that may decide a claim. The first one does."""
    return [
        (test.name, metric)
        for test in grid.tests
        for metric in grid.metrics_of(test)
        if claim.test in (None, test.name) and claim.metric in (None, metric.name, metric.label)
    ]


def _needs(claim: ClaimConfig, estimate: Estimate, paper: float | None, level: float) -> str:
    """The seeds and segments that would decide an open claim, for the document's difference or the observed one."""
    if estimate.seed_variance is None:
        return MORE_SEEDS
    relation, margin, difference = claim.inequality.relation, claim.margin, estimate.value
    if relation == ">" and paper is not None and paper > margin:
        if difference + estimate.half_width(level) < paper:
            return f"the interval leaves out a difference of {paper:.2f}, the published one"
        what = f"would mostly tell a difference of {paper:.2f}, the published one, from {margin:g}"
        return f"{needed_in_words(estimate, paper - margin, level)} {what}"
    distance = {">": difference - margin, ">=": difference + margin, "=": margin - abs(difference)}[relation]
    needs = needed_in_words(estimate, abs(distance), level)
    return f"{needs} would mostly be enough, were the difference the one that is seen"


def sought_of_claims(claims: ClaimFile, grid: Grid) -> Iterator[Sought]:
    """The differences that a grid has to detect: margins of claims on even or not worse, else published differences."""
    names = {variant.name for variant in grid.variants}
    for claim in claims.claims:
        left, relation, right = claim.inequality
        if not (found := _measures_of(claim, grid)) or not {left, right} <= names:
            continue
        test, metric = found[0]
        paper = claim.paper_difference(higher_is_better=metric.higher_is_better) or 0.0
        distance = paper - claim.margin if relation == ">" else claim.margin
        if distance > 0:
            says = f"{claim.claim}, the {'published difference' if relation == '>' else 'margin'}"
            yield Sought(says, metric, test, distance, claims.level)


def finding_of(claim: ClaimConfig, low: float, high: float) -> Finding:
    """The finding for the interval [low, high] of left - right. Positive values mean that left is better."""
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
    """The finding on a cost, which varies between seeds alone; None if the cost of a cell is not known."""
    pairs = [[getattr(cell.costs, str(claim.metric)) for cell in pair] for pair in zip(left, right, strict=True)]
    if any(None in pair for pair in pairs):
        return None
    sign = 1 if claim.metric in HIGHER_IS_BETTER else -1
    differences, seeds = [sign * (one - other) for one, other in pairs], len(pairs)
    values = fmean(one for one, _ in pairs), fmean(other for _, other in pairs)
    if seeds == 1:
        return Decided(claim, differences[0], None, None, values, "open", MORE_SEEDS)
    estimate = Estimate(fmean(differences), seeds, seeds, variance(differences) / seeds, 0.0)
    return decided_by(claim, estimate, values, level)


def claims_table(
    decided: Mapping[str, Decided | None],
    claims: ClaimFile,
    *,
    as_printed: bool,
    missing: str = "not compared",
    costs: Mapping[str, Costs] = MappingProxyType({}),
) -> Table:
    """A table with a row per claim: the paper's numbers, the difference that was `decided`, and the verdict.

    The paper's numbers are shown as differences unless `as_printed`. `missing` is the verdict without a finding. The
    `costs` of variants are shown beside the FLOPs that the paper prints.
    """
    rows, still_open = list[list[Cell]](), list[str]()
    for claim in claims.claims:
        found, (left, relation, right), margin = decided.get(claim.says), claim.inequality, claim.margin
        sign = {">": "+", ">=": "-", "=": "±"}[relation]
        shown = f"{claim.claim} {sign} {margin:g}" if margin or relation == "=" else claim.claim
        paper = ours = ""
        difference = claim.paper_difference(higher_is_better=higher_is_better(claim, claims))
        if difference is not None:
            numbers = f"{claim.printed(left)} / {claim.printed(right)}"
            paper = numbers if as_printed else f"{difference:+.2f}"
            paper += f" ({numbers})" if claim.paper_spread and not as_printed else ""
        if found is not None:
            interval = "" if found.low is None else f" [{found.low:+.2f}, {found.high:+.2f}]"
            values = f"{found.values[0]:.2f} / {found.values[1]:.2f}, " if as_printed else ""
            ours = f"{values}{found.difference:+.2f}{interval}"
            still_open += [f"{found.finding.capitalize()}, {claim.claim}: {found.needs}."] if found.needs else []
        last = ("", missing) if found is None else (found.regime, found.verdict)
        rows.append([claim.says, shown, paper, ours, *last])
    columns = [Column(name, align="left") for name in CLAIM_COLUMNS]
    of_what, percent = "A difference is that of the left variant to the right", f"{100 * claims.level:.3g} %"
    notes = [f"{of_what}, above 0 where it is better, with the {percent} interval."]
    if claims.looks > 1:
        kept = f"{100 * claims.kept_level:.3g} %"
        notes += [f"Findings were looked at {claims.looks} times; all looks together keep {kept} or more."]
    if claims.paper_metric:
        notes += [f"The document's numbers are of {claims.paper_metric}, and comparable with no other metric's."]
    notes += [_flops_note(name, printed, costs.get(name)) for name, printed in claims.paper_flops.items()]
    regimes = {found.regime for found in decided.values() if found is not None}
    notes += [f"{regime.capitalize()}: {said}." for regime, said in IN_NOTES.items() if regime in regimes]
    return Table(columns, rows, title=f"{claims.document}: {claims.title}", notes=[*notes, *still_open])


def _flops_note(variant: str, printed: float, costs: Costs | None) -> str:
    """The FLOPs of training a variant: those that the document prints, and ours."""
    ours = f"{costs.training_flops:.2g} here" if costs and costs.training_flops else "not measured here"
    return f"FLOPs of training {variant}: {printed:.2g} in the document, {ours}."


def higher_is_better(claim: ClaimConfig, claims: ClaimFile) -> bool:
    """Whether higher scores or costs are better by the metric of a claim. True if no metric is named."""
    if claim.metric in (*COSTS, LOGPROB):
        return claim.metric in HIGHER_IS_BETTER
    metric = metric_of(claim, claims)
    return metric is None or metric.higher_is_better


def metric_of(claim: ClaimConfig, claims: ClaimFile) -> Metric | None:
    """The metric of a claim that is neither about a cost nor about log probabilities. None if no metric is named."""
    grid = GridConfig.model_validate(claims.tree(claims.usual_budget))
    own = next((test.own_metrics() for test in grid.test if claim.test in (None, test.name)), None)
    metrics = [build_metric(**entry) for entry in own or grid.metrics or ()]
    if claim.metric is not None:
        named = (metric for metric in metrics if claim.metric in (metric.name, metric.label))
        return next(named, None) or build_metric(claim.metric)
    return metrics[0] if metrics else None
