"""Differences between variants: scores of parts of a test set, learning curves, n-grams and sentences.

Words are runs of letters and digits, punctuation marks, and wide characters. Tokenised text therefore has the same
words as the original. In scripts without spaces, each character is a word.

Shapes: n seeds, N segments, k statistics of a segment, C classes of words.
"""

import math
import re
import unicodedata
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import zip_longest
from math import isclose, sqrt
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import numpy as np

from headway.comparison.cells import CellOutput, CellResult
from headway.comparison.comparison import LEARNING, ONE_RATE, POINT, UNTUNED, ComparedPair, Comparison, Measure
from headway.core.languages import WIDE, look_unspaced
from headway.core.tables import Cell, Column, Table
from headway.metrics import METRICS
from headway.metrics.intervals import Interval, length_bins, linearise, ordered_groups
from headway.metrics.label_metrics import Accuracy
from headway.metrics.metric import Metric, Statistics, rank

FREQUENCIES = (0, 1, 2, 6, 21, 101, 1001)  # the lower bounds of the buckets
SCORE_STEP = 10
LOSS = "loss"
LAST = 0.2  # the last share of training; a run that gains little in it has reached a plateau
RATIO = Accuracy()  # 100 * part / whole, from the counts of both
LONGEST = 4
SHOWN = 20  # n-grams per system


@cache
def _pattern() -> re.Pattern[str]:
    """The pattern of a word. Combining marks, which `re` does not count as letters, belong to the preceding letter."""
    marks = "".join(sign for sign in map(chr, range(0x300, 0x10000)) if unicodedata.category(sign)[0] == "M")
    return re.compile(rf"[{WIDE}][{marks}]*|(?:[^\W{WIDE}][{marks}]*)+|[^\w\s]")


def words_of(text: str) -> list[str]:
    """The words of a text, in lower case."""
    return _pattern().findall(text.lower())


def word_counts(texts: Iterable[str]) -> Counter[str]:
    return Counter(word for text in texts for word in words_of(text))


def ngrams_of(text: str, longest: int) -> Counter[tuple[str, ...]]:
    """The counts of the n-grams of words in a text, for n from 1 to `longest`."""
    words = words_of(text)
    return Counter(
        tuple(words[start : start + length])
        for length in range(1, longest + 1)
        for start in range(len(words) - length + 1)
    )


def word_f1_statistics(
    hypotheses: Sequence[str], references: Sequence[str], class_of: Callable[[int, str], int], classes: int
) -> Statistics:
    """Statistics (C, N, 2) of the F1 score 2 P R / (P + R) of each class of words, compared as multisets, for `RATIO`.

    `class_of(segment, word)` returns the class of a word, or a negative number if it has none.
    """
    rows = np.zeros((classes, len(hypotheses), 2))
    for segment, (hypothesis, reference) in enumerate(zip(hypotheses, references, strict=True)):
        output, wanted = Counter(words_of(hypothesis)), Counter(words_of(reference))
        for column, weight, counts in ((0, 2, output & wanted), (1, 1, output), (1, 1, wanted)):
            for word, count in counts.items():
                if (index := class_of(segment, word)) >= 0:
                    rows[index, segment, column] += weight * count
    return rows


@dataclass(frozen=True)
class Bucketing:
    """The scores of all variants in the parts (buckets) of a test set.

    Args:
        title: names the measure and the property that the test set is divided by.
        axis: the name of that property.
        labels: of the parts, in order.
        counts: the number of segments or words in each part.
        counted: the name of the counted unit.
        scores: by variant, one for each part.
        differences: by the names of a pair, b - a for each part.
        lengths: of each part, the mean length, or the number in its name; empty if the parts are not lengths.
    """

    title: str
    axis: str
    labels: tuple[str, ...]
    counts: tuple[int, ...]
    counted: str
    scores: Mapping[str, Sequence[Interval]]
    differences: Mapping[tuple[str, str], Sequence[Interval]]
    lengths: tuple[float, ...] = ()

    def table(self) -> Table:
        """A table with a row per part and a column per variant."""
        columns = [
            Column(self.axis),
            Column(self.counted, format=","),
            *(Column(name, format=".2f") for name in self.scores),
        ]
        rows: list[list[Cell]] = [
            [label, count, *(scores[index].cell for scores in self.scores.values())]
            for index, (label, count) in enumerate(zip(self.labels, self.counts, strict=True))
        ]
        return Table(columns, rows, title=self.title, notes=["±: half of the 95 % interval"])


def bucketings(comparison: Comparison, training: Mapping[str, int] | None = None) -> list[Bucketing]:
    """All bucketings of a comparison with more than one part. `training` counts the words of the training data."""
    found: list[Bucketing] = []
    for test in range(len(comparison.tests)):
        measures = [measure for measure in comparison.measures if measure.test == test]
        parts = list(_parts_of(comparison, test))
        found += [_by_segments(comparison, measure, part) for part in parts for measure in measures]
        found += _by_score(comparison, measures[0])
        if any(measure.metric.of_text for measure in measures):
            found += _by_words(comparison, test, training)
    return [bucketing for bucketing in found if len(bucketing.labels) > 1]


def length_bucketings(comparison: Comparison, ends: Sequence[int] = ()) -> list[Bucketing]:
    """The scores by length for each measure: by groups whose names are numbers, else by bins of lengths.

    `ends` are the longest lengths of the bins. By default the bins are about equally large.
    """
    found: list[Bucketing] = []
    for measure in comparison.measures:
        parts = [part for part in _parts_of(comparison, measure.test, "length", ends) if part.lengths]
        found += [_by_segments(comparison, measure, part) for part in parts[:1]]
    return found


def group_bucketings(comparison: Comparison) -> list[Bucketing]:
    """The scores by the groups of the test sets, for each measure."""
    measures = [measure for measure in comparison.measures if comparison.tests[measure.test].groups]
    return [_by_segments(comparison, one, next(_parts_of(comparison, one.test))) for one in measures]


class _Part(NamedTuple):
    """A partition of segments: its axis, the parts' labels, the label index of each segment, the parts' lengths."""

    axis: str
    labels: tuple[str, ...]
    members: list[int]
    lengths: tuple[float, ...] = ()


def _parts_of(comparison: Comparison, test: int, groups: str = "group", ends: Sequence[int] = ()) -> Iterator[_Part]:
    """The partitions of a test set. `groups` is the axis of its own groups; `ends` are the longest lengths of bins."""
    given = comparison.tests[test]
    if given.groups:
        labels, lengths = ordered_groups(given.groups)
        yield _Part(groups, labels, [labels.index(group) for group in given.groups], lengths)
    of_text = any(measure.metric.of_text for measure in comparison.measures if measure.test == test)
    if given.sources and not _are_files(given.sources):
        yield _by_length("source", given.sources, ends)
    elif of_text:
        yield _by_length("reference", given.references[0], ends)


def _are_files(sources: Sequence[str]) -> bool:
    """Whether the sources are file paths (such as recordings) rather than texts."""
    return all(Path(source).suffix and Path(source).is_absolute() for source in sources[:10])


def _by_length(side: str, texts: Sequence[str], ends: Sequence[int]) -> _Part:
    """Partition texts into bins of lengths that end at `ends`, and one above; by default about equally large bins."""
    lengths = [len(words_of(text)) for text in texts]
    starts = [0, *(end + 1 for end in sorted(ends))] if ends else length_bins(lengths)
    bins = [bisect_right(starts, length) - 1 for length in lengths]
    used = sorted(set(bins))
    of_bins = [[length for length, bin in zip(lengths, bins, strict=True) if bin == index] for index in used]
    labels = tuple(_range(min(lengths), max(lengths)) for lengths in of_bins)
    axis = f"length of the {side} in {'characters' if look_unspaced(texts) else 'words'}"
    return _Part(axis, labels, [used.index(bin) for bin in bins], tuple(map(fmean, of_bins)))


def _range(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"


def _by_segments(comparison: Comparison, measure: Measure, part: _Part) -> Bucketing:
    members, test = np.array(part.members), comparison.tests[measure.test]
    chosen = [members == index for index in range(len(part.labels))]
    statistics = (
        {
            variant.name: [
                test.by_document(rows, segments) for rows in comparison.statistics[measure.key, variant.name]
            ]
            for variant in comparison.variants
        }
        for segments in chosen
    )
    title, counts = f"{measure.label} by {part.axis}", tuple(int(segments.sum()) for segments in chosen)
    scored = _scored(comparison, measure.metric, statistics)
    return Bucketing(title, part.axis, part.labels, counts, "segments", *scored, part.lengths)


def _by_score(comparison: Comparison, measure: Measure) -> Iterator[Bucketing]:
    """The share of segments whose score lies in each range. Empty if the metric only has the scores right and wrong."""
    unit = comparison.tests[measure.test].by_document
    bins = {
        variant.name: [
            np.digitize(measure.metric.segment_scores(rows), range(SCORE_STEP, 100, SCORE_STEP))
            for rows in comparison.statistics[measure.key, variant.name]
        ]
        for variant in comparison.variants
    }
    every = np.array([row for seeds in bins.values() for row in seeds])
    used = np.unique(every).tolist()
    if len(used) <= 2:
        return
    statistics = (
        {
            name: [unit(np.stack([row == index, np.ones(len(row))], axis=1)) for row in seeds]
            for name, seeds in bins.items()
        }
        for index in used
    )
    lows = [SCORE_STEP * index for index in used]
    open_end = None if measure.metric.higher_is_better else 100 - SCORE_STEP
    labels = tuple(f"{low}+" if low == open_end else f"{low}–{low + SCORE_STEP}" for low in lows)
    counts = tuple(round(float((every == index).sum(axis=1).mean())) for index in used)
    title, axis = f"share of sentences by their own {measure.label}, in percent", f"{measure.label} of a sentence"
    yield Bucketing(title, axis, labels, counts, "sentences, mean", *_scored(comparison, RATIO, statistics))


def _by_words(comparison: Comparison, test: int, training: Mapping[str, int] | None) -> Iterator[Bucketing]:
    """The F1 score of words by their frequency in the training data, and by whether the source has them."""
    given = comparison.tests[test]
    on = f" on {given.name}" if len(comparison.tests) > 1 else ""
    if training is not None:
        edges = list(FREQUENCIES)
        labels = [*map(_range, edges[:-1], [edge - 1 for edge in edges[1:]]), f"{edges[-1]:,}+"]

        def frequency(segment: int, word: str) -> int:
            return bisect_right(edges, training.get(word, 0)) - 1

        axis = "times that a word was seen in training"
        yield _word_bucketing(comparison, test, f"F1 of words by {axis}{on}", axis, labels, frequency)
    if given.sources and not _are_files(given.sources):
        copied = [set(words_of(source)) for source in given.sources]

        def from_source(segment: int, word: str) -> int:
            return 0 if word in copied[segment] else 1

        labels = ["in the source, copied", "not in the source"]
        yield _word_bucketing(comparison, test, f"F1 of words that are copied{on}", "word", labels, from_source)


def _word_bucketing(
    comparison: Comparison, test: int, title: str, axis: str, labels: Sequence[str], class_of: Callable[[int, str], int]
) -> Bucketing:
    """The scores of classes of words. Classes that do not occur in the references are left out."""
    references, wanted = comparison.tests[test].references[0], Counter[int]()
    rows = {
        name: [word_f1_statistics(cell.outputs[test].hypotheses, references, class_of, len(labels)) for cell in cells]
        for name, cells in comparison.cells.items()
    }
    for segment, reference in enumerate(references):
        wanted.update(class_of(segment, word) for word in words_of(reference))
    used = [index for index in range(len(labels)) if wanted[index]]
    unit = comparison.tests[test].by_document
    statistics = ({name: [unit(seed[index]) for seed in seeds] for name, seeds in rows.items()} for index in used)
    counts, kept = tuple(wanted[index] for index in used), tuple(labels[index] for index in used)
    scored = _scored(comparison, RATIO, statistics)
    return Bucketing(title, axis, kept, counts, "words of the references", *scored)


def _scored(
    comparison: Comparison, metric: Metric, parts: Iterable[Mapping[str, Sequence[Statistics]]]
) -> tuple[dict[str, list[Interval]], dict[tuple[str, str], list[Interval]]]:
    """The scores of all variants and the differences of all pairs, in each part, from its statistics by variant."""
    scores: dict[str, list[Interval]] = {variant.name: [] for variant in comparison.variants}
    differences: dict[tuple[str, str], list[Interval]] = {(pair.a, pair.b): [] for pair in comparison.pairs}
    most = metric.bounds[1] - metric.bounds[0]
    for statistics in parts:
        linearised = {name: linearise(metric, seeds) for name, seeds in statistics.items()}
        for name, linear in linearised.items():
            scores[name].append(linear.interval(metric.bounds))
        for (a, b), row in differences.items():
            row.append((linearised[b] - linearised[a]).interval((-most, most)))
    return scores, differences


@dataclass(frozen=True)
class BandPoint:
    """An evaluation of a variant's seeds: the mean time, and the mean, lowest and highest score.

    `loss` is the mean loss, infinite if it is not known.
    """

    update: int
    seconds: float
    mean: float
    low: float
    high: float
    loss: float


@dataclass(frozen=True)
class BandedCurves:
    """The learning curves of all variants by one metric on the development set.

    Args:
        metric: the metric's name; `loss` is the cross-entropy per token.
        higher_is_better: the direction of the metric.
        lines: by variant, the evaluations that all of its seeds have.
        notes: further notes of the table.
    """

    metric: str
    higher_is_better: bool
    lines: dict[str, list[BandPoint]]
    notes: tuple[str, ...] = ()

    @property
    def are_long(self) -> bool:
        """Whether any variant was evaluated more than once, so that the curves show more than a point."""
        return any(len(points) > 1 for points in self.lines.values())

    def best(self, variant: str) -> BandPoint:
        """The evaluation of a variant with the best mean score."""
        points, higher = self.lines[variant], self.higher_is_better
        return min(points, key=lambda point: rank(point.mean, point.loss, higher_is_better=higher))

    def last_gain(self, variant: str) -> float | None:
        """The gain of the best mean score in the last fifth of the updates; None if no evaluation precedes it.

        The best score so far is interpolated linearly between evaluations.
        """
        updates = [point.update for point in self.lines[variant]]
        sign, start = 1 if self.higher_is_better else -1, (1 - LAST) * updates[-1]
        best = np.maximum.accumulate([sign * point.mean for point in self.lines[variant]])
        return None if updates[0] > start else float(best[-1] - np.interp(start, updates, best))

    def table(self) -> Table:
        """A table with each variant's best score, and the updates and time to the weakest variant's best score."""
        bests = {variant: self.best(variant) for variant in self.lines}
        means = [best.mean for best in bests.values()]
        level = min(means) if self.higher_is_better else max(means)
        rows: list[list[Cell]] = []
        for variant, best in bests.items():
            points, higher = self.lines[variant], self.higher_is_better
            reached = next(each for each in points if (each.mean >= level if higher else each.mean <= level))
            reaching = reached.update, reached.seconds, self.last_gain(variant)
            rows.append([variant, best.mean, best.update, best.seconds, *reaching])
        columns = [
            Column("variant"), Column("best on dev", format=".2f"), Column("at update", format=","),
            Column("after", "s", ",.0f"), Column(f"updates to {level:.2f}", format=","),
            Column("time to it", "s", ",.0f"), Column("gain of the last fifth", format=".2f"),
        ]  # fmt: skip
        notes = [f"{level:.2f} is the weakest variant's best score.", *self.notes]
        return Table(columns, rows, title=f"{self.metric} on dev, means over seeds", notes=notes)


def with_limits(comparison: Comparison, *, tuned: bool) -> Comparison:
    """A copy of the comparison with the limitations of each verdict. `tuned`: whether a key was tuned by variant."""
    curves = {each.metric: each for each in banded_curves(comparison)}
    rates = {name: {cell.rate for cell in row} for name, row in comparison.cells.items()}

    def limited(pair: ComparedPair) -> ComparedPair:
        measure, limits = comparison.measure(pair.metric), list[str]()
        of_both = rates[pair.a] | rates[pair.b]
        if not tuned and None not in of_both:
            limits.append(ONE_RATE if len(of_both) == 1 else UNTUNED)
        if lines := curves.get(measure.metric.name):
            gains = [lines.last_gain(name) or 0.0 for name in (pair.a, pair.b) if name in lines.lines]
            limits += [LEARNING] if max(gains, default=0.0) >= (comparison.margin_of(measure) or POINT) else []
        return replace(pair, limits=tuple(limits)) if pair.verdict in ("better", "worse", "even") else pair

    return replace(comparison, pairs=tuple(map(limited, comparison.pairs)))


def banded_curves(comparison: Comparison) -> list[BandedCurves]:
    """The learning curves by every metric on the development set, the comparison's own first. Empty without runs."""
    higher = {measure.metric.name: measure.metric.higher_is_better for measure in comparison.measures}
    found: dict[str, dict[str, list[BandPoint]]] = {}
    for variant, cells in comparison.cells.items():
        evaluated = [{name for point in cell.curve for name in point.scores} for cell in cells]
        for metric in sorted(set.intersection(*evaluated)):
            if points := _points(cells, metric):
                found.setdefault(metric, {})[variant] = points
    order = [*higher, *found]
    names = sorted(found, key=lambda name: (name == LOSS, order.index(name)))
    steps = {variant: cells[0].dev_steps or "none" for variant, cells in comparison.cells.items()}
    shown = "; ".join(f"{variant}: {each}" for variant, each in steps.items())
    differ = (f"The references of dev were not normalised alike ({shown}).",) if len(set(steps.values())) > 1 else ()
    # Metrics of the development set alone. A metric from outside the package counts as higher-is-better.
    higher |= {
        name: METRICS.get(name).higher_is_better if name in METRICS else name != LOSS
        for name in found.keys() - higher.keys()
    }
    return [BandedCurves(name, higher[name], found[name], () if name == LOSS else differ) for name in names]


def _points(cells: Sequence[CellResult], metric: str) -> list[BandPoint]:
    by_seed = [{point.update: point for point in cell.curve if metric in point.scores} for cell in cells]
    points = []
    for update in sorted(set.intersection(*map(set, by_seed))):
        scores = [seed[update].scores[metric] for seed in by_seed]
        seconds = fmean(seed[update].seconds for seed in by_seed)
        loss = fmean(seed[update].scores.get(LOSS, math.inf) for seed in by_seed)
        points.append(BandPoint(update, seconds, fmean(scores), min(scores), max(scores), loss))
    return points


@dataclass(frozen=True)
class NgramDifference:
    """An n-gram: how often outputs of a and b have it right (a mean over seeds), and how often references have it."""

    words: tuple[str, ...]
    a: float
    b: float
    references: int

    @property
    def ngram(self) -> str:
        return " ".join(self.words)

    @property
    def weight(self) -> float:
        """The difference b - a in units of its standard deviation, for counts of rare events."""
        return (self.b - self.a) / sqrt(self.a + self.b)


def ngram_differences(comparison: Comparison, a: str, b: str, test: int = 0) -> list[NgramDifference]:
    """The n-grams that b has right more often than a, largest difference first, then those that a has more often.

    If n-grams contain each other and have the same difference, only the longest is kept. N-grams that occur just once
    in
    the references are left out, unless one of the systems has no others.
    """
    right = {name: _right([cell.outputs[test] for cell in comparison.cells[name]]) for name in (a, b)}
    totals: Counter[tuple[str, ...]] = Counter()
    for reference in comparison.tests[test].references[0]:
        totals.update(ngrams_of(reference, LONGEST))
    every = [
        NgramDifference(words, right[a].get(words, 0.0), right[b].get(words, 0.0), totals[words])
        for words in right[a].keys() | right[b].keys()
        if right[a].get(words) != right[b].get(words)
    ]
    every.sort(key=lambda one: (-abs(one.weight), -len(one.words), one.words))
    chosen = list[NgramDifference]()
    for sign in (1, -1):
        some = [one for one in every if sign * one.weight > 0]
        chosen += _without_parts([one for one in some if one.references > 1] or some)
    return chosen


def _right(outputs: Sequence[CellOutput]) -> dict[tuple[str, ...], float]:
    """The number of times that each n-gram of a hypothesis occurs in its reference, averaged over seeds."""
    counts: Counter[tuple[str, ...]] = Counter()
    for output in outputs:
        for hypothesis, reference in zip(output.hypotheses, output.test.references[0], strict=True):
            counts.update(ngrams_of(hypothesis, LONGEST) & ngrams_of(reference, LONGEST))
    return {ngram: count / len(outputs) for ngram, count in counts.items()}


def _without_parts(differences: Sequence[NgramDifference]) -> list[NgramDifference]:
    """The first `SHOWN` differences, without repetitions: see `_is_said_by`."""
    chosen: list[NgramDifference] = []
    for one in differences:
        if not any(_is_said_by(one, other) for other in chosen):
            chosen.append(one)
        if len(chosen) == SHOWN:
            break
    return chosen


def _is_said_by(one: NgramDifference, other: NgramDifference) -> bool:
    """Whether one n-gram contains the other, and both have the same difference."""
    if not isclose(one.b - one.a, other.b - other.a, abs_tol=1e-9):  # means over seeds are not exact
        return False
    short, long = sorted((one.words, other.words), key=len)
    return any(long[start : start + len(short)] == short for start in range(len(long) - len(short) + 1))


def ngram_table(differences: Sequence[NgramDifference], a: str, b: str) -> Table:
    """A table with a row per n-gram."""
    columns = [Column("n-gram"), Column(a, format=".1f"), Column(b, format=".1f"), Column("references", format=",")]
    rows: list[list[Cell]] = [[one.ngram, one.a, one.b, one.references] for one in differences]
    return Table(columns, rows, title=f"n-grams that {b} has right more often than {a}, and less often")


def sentence_scores(comparison: Comparison, measure: Measure) -> list[dict[str, float]]:
    """The scores of each segment: by variant, the mean over seeds."""
    means: dict[str, Statistics] = {
        variant.name: np.mean(
            [measure.metric.segment_scores(rows) for rows in comparison.statistics[measure.key, variant.name]], axis=0
        )
        for variant in comparison.variants
    }
    count = len(comparison.tests[measure.test])
    return [{name: float(rows[index]) for name, rows in means.items()} for index in range(count)]


def most_different(sentences: Sequence[Mapping[str, float]], a: str, b: str, count: int) -> list[int]:
    """The segments where b is furthest above a, and furthest below a, alternating: at most `count` of each."""
    gains = [scores[b] - scores[a] for scores in sentences]
    ordered = sorted(range(len(gains)), key=lambda index: (-gains[index], index))
    best = [index for index in ordered[:count] if gains[index] > 0]
    worst = [index for index in ordered[::-1][:count] if gains[index] < 0]
    return [index for ranked in zip_longest(best, worst) for index in ranked if index is not None]
