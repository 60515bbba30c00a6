"""A ranking of systems: ranks that account for significance, and the worst sentences of each system, on one page."""

from __future__ import annotations

import html
from importlib import resources
from math import sqrt
from pathlib import Path

import numpy as np
from scipy import special

from headway.comparison.comparison import ComparedPair, Comparison, Measure
from headway.core.tables import Cell, Column, Table
from headway.metrics.intervals import SIGNIFICANT, holm
from headway.pages.page import write_page

WORST = 10  # sentences per system


def p_value(pair: ComparedPair) -> float:
    """The p-value of a difference: over seeds and the test set or, with one seed, over this test set alone."""
    if pair.why:
        return 1.0
    if pair.p_value is not None:
        return pair.p_value
    deviation, degrees = sqrt(pair.estimate.segment_variance), pair.estimate.segments - 1
    return float(2 * special.stdtr(degrees, -abs(pair.difference) / deviation)) if deviation and degrees else 1.0


def ranking(comparison: Comparison, measure: Measure) -> Table:
    """The systems, best first, with the range of ranks that each may have, by Holm's method over all pairs.

    A system's best rank comes after all systems that are significantly better, its worst rank before all that are
    significantly worse (Bojar et al. 2016).
    """
    pairs = [pair for pair in comparison.pairs if pair.metric == measure.key]
    adjusted = holm(list(map(p_value, pairs)))
    sign = 1 if measure.metric.higher_is_better else -1
    better, worse = ({variant.name: list[str]() for variant in comparison.variants} for _ in range(2))
    for pair, p in zip(pairs, adjusted, strict=True):
        if p <= SIGNIFICANT:
            first, second = (pair.b, pair.a) if sign * pair.difference > 0 else (pair.a, pair.b)
            better[second].append(first)
            worse[first].append(second)
    ordered = sorted(comparison.variants, key=lambda variant: -sign * variant.scores[measure.key].mean)
    rows, count = list[list[Cell]](), len(ordered)
    for place, variant in enumerate(ordered, start=1):
        low, high = 1 + len(better[variant.name]), count - len(worse[variant.name])
        told = {variant.name, *better[variant.name], *worse[variant.name]}
        others = ", ".join(each.name for each in ordered if each.name not in told)
        ranks = f"{low}" if low == high else f"{low} to {high}"
        rows.append([place, variant.name, variant.scores[measure.key].cell, ranks, others])
    names = "place", "system", measure.label, "ranks it may have", "not told apart from"
    over = "seeds and test sets" if comparison.seeds > 1 else "this test set alone"
    notes = [
        f"{measure.label}: {comparison.signature(measure)}",
        f"±: {'standard deviation between seeds' if comparison.seeds > 1 else 'half of the 95 % interval'}. Ranks are "
        f"those that paired differences leave, over {over}, with p up to {SIGNIFICANT} by Holm's method over "
        f"{len(pairs):,} pairs.",
    ]
    notes += dict.fromkeys(pair.why for pair in pairs if pair.why)
    columns = [Column(name, format=".2f") for name in names]  # only the scores have decimals
    return Table(columns, rows, title=f"Ranks by {measure.label}", notes=notes)


def worst_sentences(comparison: Comparison, measure: Measure, name: str) -> Table:
    """A table of the segments with the worst scores in the output of a system's first seed."""
    output = comparison.cells[name][0].outputs[measure.test]
    scores = measure.metric.segment_scores(comparison.statistics[measure.key, name][0])
    order = np.argsort(scores if measure.metric.higher_is_better else -scores, kind="stable")[:WORST].tolist()
    given = {"source": output.test.sources, "reference": output.test.references[0], "output": output.hypotheses}
    texts = {name: lines for name, lines in given.items() if lines}
    rows = [[index + 1, *(lines[index] for lines in texts.values()), float(scores[index])] for index in order]
    return Table(["line", *texts, Column(measure.label, format=".1f")], rows)


def write_ranking(comparison: Comparison, path: Path) -> None:
    """Write an HTML page with the ranks by every measure, and each system's worst sentences by the first measure."""
    first = comparison.measures[0]
    parts = [f"<section>{ranking(comparison, measure).html()}</section>" for measure in comparison.measures]
    parts.append(f"<h2>Worst sentences by {html.escape(first.label)}</h2>")
    for system in ranking(comparison, first).rows:
        name = str(system[1])
        table = worst_sentences(comparison, first, name).html()
        parts.append(f"<details><summary>{html.escape(name)}</summary>{table}</details>")
    title = f"{len(comparison.variants)} systems compared"
    assets = resources.files(__package__).joinpath("page")
    styles = ("palette.css", "report.css", "ranking.css")
    write_page(
        path,
        "ranking.html",
        title=title,
        styles=styles,
        scripts=(),
        data={},
        assets=assets,
        elements=[*parts, "</main>"],
    )
