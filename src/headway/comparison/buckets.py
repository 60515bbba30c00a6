"""Scores of parts of a test set, with an interval of their own: by length, by group, by score, by kinds of words.

Shapes: n seeds, N segments, k statistics of one segment.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import numpy as np

from headway.comparison.comparison import Comparison, Measure
from headway.comparison.statistics import Linearised, linearise
from headway.comparison.words import WordF1, words_of
from headway.metrics.groups import length_bins, ordered_groups
from headway.metrics.metric import Metric, Statistics
from headway.metrics.signature import Signature
from headway.tables import Cell, Column, Spread, Table

FREQUENCIES = (0, 1, 2, 6, 21, 101, 1001)  # the least of each bucket
SCORE_STEP = 10


class BucketScore(NamedTuple):
    """A mean over seeds with its interval, which a single segment does not have.

    Attributes:
        value: the mean.
        low, high: the ends of the interval. One that lies beyond the bounds of the metric is moved to the bound.
        half: half of the interval, whose ends were not moved for it.
    """

    value: float
    low: float | None = None
    high: float | None = None
    half: float | None = None


@dataclass(frozen=True)
class Bucketing:
    """The scores of all variants in the parts of a test set.

    Args:
        title: says what is scored and by what it is parted.
        axis: the name of what the parts are parts of.
        labels: of the parts, in their order.
        counts: of what each part holds.
        counted: the name of that.
        scores: by variant, of each part.
        differences: by the names of a pair, b - a of each part.
        lengths: of each part, the mean length, or the number that is its name; none where parts are no lengths.
    """

    title: str
    axis: str
    labels: tuple[str, ...]
    counts: tuple[int, ...]
    counted: str
    scores: Mapping[str, tuple[BucketScore, ...]]
    differences: Mapping[tuple[str, str], tuple[BucketScore, ...]]
    lengths: tuple[float, ...] = ()

    def table(self) -> Table:
        """A row a part and a column a variant."""
        columns = [
            Column(self.axis),
            Column(self.counted, format=","),
            *(Column(name, format=".2f") for name in self.scores),
        ]
        rows: list[list[Cell]] = [
            [label, count, *(_cell(scores[index]) for scores in self.scores.values())]
            for index, (label, count) in enumerate(zip(self.labels, self.counts, strict=True))
        ]
        return Table(columns, rows, title=self.title, notes=["±: half of the 95 % interval"])


def _cell(score: BucketScore) -> Cell:
    return score.value if score.half is None else Spread(score.value, score.half)


def bucketings(comparison: Comparison, training: Mapping[str, int] | None = None) -> list[Bucketing]:
    """All parts that a comparison's test sets have.

    Args:
        comparison: of all variants.
        training: how often each word occurs in the target texts of training; None where that is not known.
    """
    found: list[Bucketing] = []
    for test in range(len(comparison.tests)):
        measures = [measure for measure in comparison.measures if measure.test == test]
        parts = list(_parts_of(comparison, test))
        found += [_by_segments(comparison, measure, part) for part in parts for measure in measures]
        found += _by_score(comparison, measures[0])
        if any(measure.metric.of_text for measure in measures):
            found += _by_words(comparison, test, training)
    return [bucketing for bucketing in found if len(bucketing.labels) > 1]


def length_bucketings(comparison: Comparison) -> list[Bucketing]:
    """Each measure by length: by the groups of its test set where their names are numbers, else by bins of lengths."""
    found: list[Bucketing] = []
    for measure in comparison.measures:
        parts = [part for part in _parts_of(comparison, measure.test, groups="length") if part.lengths]
        found += [_by_segments(comparison, measure, part) for part in parts[:1]]
    return found


class _Part(NamedTuple):
    """A way to part segments: its axis, labels, the index of the label of each segment, lengths as of `Bucketing`."""

    axis: str
    labels: tuple[str, ...]
    members: list[int]
    lengths: tuple[float, ...] = ()


def _parts_of(comparison: Comparison, test: int, groups: str = "group") -> Iterator[_Part]:
    """The ways to part a test set; `groups` is the axis of those that it comes with."""
    given = comparison.tests[test]
    if given.groups:
        labels, lengths = ordered_groups(given.groups)
        yield _Part(groups, labels, [labels.index(group) for group in given.groups], lengths)
    of_text = any(measure.metric.of_text for measure in comparison.measures if measure.test == test)
    if given.sources and not _are_files(given.sources):
        yield _by_length("length of the source in words", given.sources)
    elif of_text:
        yield _by_length("length of the reference in words", given.references[0])


def _are_files(sources: Sequence[str]) -> bool:
    """Whether sources are paths of recordings and the like."""
    return all(Path(source).suffix and Path(source).is_absolute() for source in sources[:10])


def _by_length(axis: str, texts: Sequence[str]) -> _Part:
    """Bins with about equally many segments."""
    lengths = [len(words_of(text)) for text in texts]
    edges = length_bins(lengths)
    members = [bisect_right(edges, length) - 1 for length in lengths]
    ends = [*(edge - 1 for edge in edges[1:]), max(lengths)]
    of_bins = [
        [length for length, bin in zip(lengths, members, strict=True) if bin == index] for index in range(len(edges))
    ]
    return _Part(axis, tuple(map(_range, edges, ends)), members, tuple(map(fmean, of_bins)))


def _range(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"


def _by_segments(comparison: Comparison, measure: Measure, part: _Part) -> Bucketing:
    members = np.array(part.members)
    chosen = [members == index for index in range(len(part.labels))]

    def of_part(index: int) -> Mapping[str, Sequence[Statistics]]:
        return {
            variant.name: [rows[chosen[index]] for rows in comparison.statistics[measure.key, variant.name]]
            for variant in comparison.variants
        }

    counts = [int(rows.sum()) for rows in chosen]
    title = f"{measure.label} by {part.axis}"
    found = _bucketing(comparison, title, part.axis, part.labels, counts, "segments", measure.metric, of_part)
    return replace(found, lengths=part.lengths)


class Share(Metric):
    """The share of segments of a kind, times 100. Statistics: 1 or 0, and 1."""

    name = "share"

    def statistics(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Statistics:
        raise NotImplementedError("the kind of a segment is said by others")

    def aggregate(self, totals: Statistics) -> float:
        return float(self.aggregate_all(totals[None])[0])

    def aggregate_all(self, totals: Statistics) -> Statistics:
        scores: Statistics = 100 * totals[:, 0] / totals[:, 1]
        return scores

    def signature(self) -> Signature:
        return Signature()


def _by_score(comparison: Comparison, measure: Measure) -> Iterator[Bucketing]:
    """The share of sentences whose own score lies in each range, where there are more ranges than right and wrong."""
    scores = {
        variant.name: [measure.metric.segment_scores(rows) for rows in comparison.statistics[measure.key, variant.name]]
        for variant in comparison.variants
    }
    edges = list(range(0, 100, SCORE_STEP))
    labels = [f"{edge}–{edge + SCORE_STEP}" for edge in edges[:-1]] + [
        f"{edges[-1]}–100" if measure.metric.higher_is_better else f"{edges[-1]}+"
    ]
    bins = {
        name: [np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 1) for values in seeds]
        for name, seeds in scores.items()
    }
    used = sorted({int(index) for seeds in bins.values() for values in seeds for index in np.unique(values)})
    if len(used) <= 2:
        return
    rows = [values for seeds in bins.values() for values in seeds]
    counts = [round(float(np.mean([(values == index).sum() for values in rows]))) for index in used]

    def of_part(position: int) -> Mapping[str, Sequence[Statistics]]:
        return {
            name: [np.stack([values == used[position], np.ones(len(values))], axis=1).astype(float) for values in seeds]
            for name, seeds in bins.items()
        }

    title = f"share of sentences by their own {measure.label}, in percent"
    axis, kept = f"{measure.label} of a sentence", tuple(labels[index] for index in used)
    yield _bucketing(comparison, title, axis, kept, counts, "sentences, mean", Share(), of_part)


def _by_words(comparison: Comparison, test: int, training: Mapping[str, int] | None) -> Iterator[Bucketing]:
    """F1 of words by how often training has them, and of those that the source has and has not."""
    given = comparison.tests[test]
    on = f" on {given.name}" if len(comparison.tests) > 1 else ""
    if training is not None:
        edges = list(FREQUENCIES)
        labels = [*map(_range, edges[:-1], [edge - 1 for edge in edges[1:]]), f"{edges[-1]:,}+"]

        def frequency(segment: int, word: str) -> int:
            return bisect_right(edges, training.get(word, 0)) - 1

        axis = "times that a word was seen in training"
        yield from _word_bucketing(comparison, test, f"F1 of words by {axis}{on}", axis, labels, frequency)
    if given.sources and not _are_files(given.sources):
        copied = [set(words_of(source)) for source in given.sources]

        def from_source(segment: int, word: str) -> int:
            return 0 if word in copied[segment] else 1

        labels = ["in the source, copied", "not in the source"]
        yield from _word_bucketing(comparison, test, f"F1 of words that are copied{on}", "word", labels, from_source)


def _word_bucketing(
    comparison: Comparison, test: int, title: str, axis: str, labels: Sequence[str], class_of: Callable[[int, str], int]
) -> Iterator[Bucketing]:
    """The scores of classes of words, without those classes that no reference has."""
    metric, references = WordF1(), comparison.tests[test].references[0]
    rows = {
        name: [metric.by_class(cell.outputs[test].hypotheses, references, class_of, len(labels)) for cell in cells]
        for name, cells in comparison.cells.items()
    }
    first = next(iter(rows.values()))[0]
    wanted = first[:, :, 2].sum(axis=1)
    used = [index for index in range(len(labels)) if wanted[index]]

    def of_part(position: int) -> Mapping[str, Sequence[Statistics]]:
        return {name: [seed[used[position]] for seed in seeds] for name, seeds in rows.items()}

    counts = [int(wanted[index]) for index in used]
    kept = tuple(labels[index] for index in used)
    yield _bucketing(comparison, title, axis, kept, counts, "words of the references", metric, of_part)


def _bucketing(
    comparison: Comparison,
    title: str,
    axis: str,
    labels: Sequence[str],
    counts: Sequence[int],
    counted: str,
    metric: Metric,
    of_part: Callable[[int], Mapping[str, Sequence[Statistics]]],
) -> Bucketing:
    pairs = list(dict.fromkeys((pair.a, pair.b) for pair in comparison.pairs))
    scores: dict[str, list[BucketScore]] = {variant.name: [] for variant in comparison.variants}
    differences: dict[tuple[str, str], list[BucketScore]] = {pair: [] for pair in pairs}
    for index in range(len(labels)):
        statistics = of_part(index)
        if len(next(iter(statistics.values()))[0]) < 2:
            means = {
                name: float(np.mean([metric.aggregate(rows.sum(axis=0)) for rows in seeds]))
                for name, seeds in statistics.items()
            }
            for name, mean in means.items():
                scores[name].append(BucketScore(mean))
            for a, b in pairs:
                differences[a, b].append(BucketScore(means[b] - means[a]))
            continue
        linearised = {name: linearise(metric, seeds) for name, seeds in statistics.items()}
        for name, linear in linearised.items():
            scores[name].append(_score(linear, metric.bounds))
        for a, b in pairs:
            differences[a, b].append(_score(linearised[b] - linearised[a]))
    return Bucketing(
        title, axis, tuple(labels), tuple(counts), counted,
        {name: tuple(row) for name, row in scores.items()}, {pair: tuple(row) for pair, row in differences.items()},
    )  # fmt: skip


def _score(linear: Linearised, bounds: tuple[float, float] = (-math.inf, math.inf)) -> BucketScore:
    """The mean over seeds, with its interval within `bounds`."""
    estimate = linear.estimate()
    low, high = estimate.interval()
    return BucketScore(estimate.value, max(low, bounds[0]), min(high, bounds[1]), (high - low) / 2)
