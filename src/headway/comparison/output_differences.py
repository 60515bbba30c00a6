"""Differences between the outputs of two systems: n-grams that one wins and the other loses, and sentences."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import isclose, sqrt

import numpy as np

from headway.comparison.cell_results import CellOutput
from headway.comparison.comparison import Comparison, Measure
from headway.comparison.words import ngrams_of
from headway.metrics.metric import Statistics
from headway.tables import Cell, Column, Table

LONGEST = 4
SHOWN = 20  # n-grams, of each system


@dataclass(frozen=True)
class NgramDifference:
    """An n-gram of the references, and how often each of two systems has it where a reference has it.

    Args:
        ngram: words with blanks between them.
        a, b: occurrences that are right, a mean over seeds.
        references: occurrences in the references.
    """

    ngram: str
    a: float
    b: float
    references: int

    @property
    def weight(self) -> float:
        """b - a in standard deviations of so rare an event."""
        return (self.b - self.a) / sqrt(self.a + self.b)


def ngram_differences(comparison: Comparison, a: str, b: str, test: int = 0) -> list[NgramDifference]:
    """N-grams that b has right more often than a, most first, and then those that a has right more often.

    Of n-grams that are parts of each other and differ alike, the longest one stands for all. Those that the references
    have just once are left out, unless one of the two systems has no others.
    """
    right = {name: _right([cell.outputs[test] for cell in comparison.cells[name]]) for name in (a, b)}
    totals: Counter[tuple[str, ...]] = Counter()
    for reference in comparison.tests[test].references[0]:
        totals.update(ngrams_of(reference, LONGEST))
    differences = [
        (ngram, NgramDifference(" ".join(ngram), right[a].get(ngram, 0.0), right[b].get(ngram, 0.0), totals[ngram]))
        for ngram in right[a].keys() | right[b].keys()
        if right[a].get(ngram, 0.0) != right[b].get(ngram, 0.0)
    ]
    differences.sort(key=lambda item: (-abs(item[1].weight), -len(item[0]), item[0]))
    won = [item for item in differences if item[1].weight > 0]
    lost = [item for item in differences if item[1].weight < 0]
    return [*_without_parts(_repeated(won) or won), *_without_parts(_repeated(lost) or lost)]


def _repeated(
    differences: Sequence[tuple[tuple[str, ...], NgramDifference]],
) -> list[tuple[tuple[str, ...], NgramDifference]]:
    return [item for item in differences if item[1].references > 1]


def _right(outputs: Sequence[CellOutput]) -> dict[tuple[str, ...], float]:
    """How often each n-gram of a hypothesis is in its reference, a mean over seeds."""
    counts: Counter[tuple[str, ...]] = Counter()
    for output in outputs:
        for hypothesis, reference in zip(output.hypotheses, output.test.references[0], strict=True):
            counts.update(ngrams_of(hypothesis, LONGEST) & ngrams_of(reference, LONGEST))
    return {ngram: count / len(outputs) for ngram, count in counts.items()}


def _without_parts(differences: Sequence[tuple[tuple[str, ...], NgramDifference]]) -> list[NgramDifference]:
    """The first differences, less those that contain an earlier one, or are contained in it, with the same counts."""
    chosen: list[tuple[tuple[str, ...], NgramDifference]] = []
    for ngram, difference in differences:
        if len(chosen) == SHOWN:
            break
        if not any(_contains(ngram, other) and _alike(difference, its) for other, its in chosen):
            chosen.append((ngram, difference))
    return [difference for _, difference in chosen]


def _contains(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether one of two n-grams is a part of the other."""
    short, long = sorted((one, other), key=len)
    return any(long[start : start + len(short)] == short for start in range(len(long) - len(short) + 1))


def _alike(one: NgramDifference, other: NgramDifference) -> bool:
    return isclose(one.b - one.a, other.b - other.a, abs_tol=1e-9)  # means over seeds are not exact


def ngram_table(differences: Sequence[NgramDifference], a: str, b: str) -> Table:
    """A row an n-gram."""
    columns = [Column("n-gram"), Column(a, format=".1f"), Column(b, format=".1f"), Column("references", format=",")]
    rows: list[list[Cell]] = [[one.ngram, one.a, one.b, one.references] for one in differences]
    return Table(columns, rows, title=f"n-grams that {b} has right more often than {a}, and less often")


@dataclass(frozen=True)
class SentenceScores:
    """A segment with its own scores, by variant a mean over seeds."""

    segment: int
    scores: dict[str, float]


def sentence_scores(comparison: Comparison, measure: Measure) -> list[SentenceScores]:
    """The scores of every segment by itself."""
    means: dict[str, Statistics] = {
        variant.name: np.mean(
            [measure.metric.segment_scores(rows) for rows in comparison.statistics[measure.key, variant.name]], axis=0
        )
        for variant in comparison.variants
    }
    count = len(comparison.tests[measure.test])
    return [SentenceScores(index, {name: float(rows[index]) for name, rows in means.items()}) for index in range(count)]


def most_different(sentences: Sequence[SentenceScores], a: str, b: str, count: int) -> list[int]:
    """The segments at which b is furthest above a, and furthest below it: so many of each, in turn."""
    ordered = sorted(sentences, key=lambda one: (one.scores[a] - one.scores[b], one.segment))
    best = [one.segment for one in ordered[:count] if one.scores[b] > one.scores[a]]
    worst = [one.segment for one in ordered[::-1][:count] if one.scores[b] < one.scores[a]]
    longest = max(len(best), len(worst))
    return [row[index] for index in range(longest) for row in (best, worst) if index < len(row)]
