"""The interface of a metric: scores are computed from statistics summed over segments.

A metric defines the statistics of each segment (`statistics`) separately from the corpus score of their sums
(`aggregate`). So every metric can be resampled, and all share one bootstrap and one randomization test.

Shapes: N segments, k statistics of one segment.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from headway.core.errors import UserError, check_characters, option, shortened
from headway.core.languages import look_unspaced
from headway.formats.lines import REMEDIES, read_lines, rows_kind


def release(package: str = "headway") -> str:
    return f"{package}-{version(package)}"


@dataclass(frozen=True)
class Signature:
    """Settings and versions in order. `str` joins `key:value` by `|`; a key without a value has no colon.

    Args:
        fields: keys with their values, or None for a key without a value.
    """

    fields: tuple[tuple[str, str | None], ...] = ()

    @classmethod
    def of(cls, **fields: str | int | None) -> Signature:
        """A signature in the order of the keywords. Keys with None are left out; keys with True have no value.

        `Signature.of(nrefs=None, f1=True, case="lower")` is `f1|case:lower`.
        """
        given = ((key, value) for key, value in fields.items() if value is not None)
        return cls(tuple((key, None if value is True else str(value)) for key, value in given))

    def with_references(self, steps: str) -> Signature:
        """The signature of a score with normalised references; `steps` are normalisation steps with commas."""
        return Signature((*self.fields, ("refs", steps.replace(", ", "+")))) if steps else self

    @classmethod
    def parse(cls, text: str) -> Signature:
        parts = [part.partition(":") for part in text.split("|") if part]
        return cls(tuple((key, value if colon else None) for key, colon, value in parts))

    def __str__(self) -> str:
        return "|".join(key if value is None else f"{key}:{value}" for key, value in self.fields)

    def __getitem__(self, key: str) -> str | None:
        """The value of a key. Raises KeyError for an unknown key."""
        return dict(self.fields)[key]

    def __contains__(self, key: object) -> bool:
        return any(key == name for name, _ in self.fields)


Statistics: TypeAlias = NDArray[np.float64]
Kind: TypeAlias = Literal["text", "labels", "trees", "links", "heads", "numbers"]


@dataclass(frozen=True)
class Score:
    """A corpus score with the information needed to reproduce it.

    Args:
        metric: the metric's `label`.
        value: 0 to 100 for shares; error rates may exceed 100.
        signature: the metric's settings and versions.
        segments: N.
    """

    metric: str
    value: float
    signature: Signature
    segments: int

    def __str__(self) -> str:
        return f"{self.metric}|{self.signature} = {self.value:.2f}"


class Metric(ABC):
    """A corpus metric over per-segment statistics. Options are keyword-only arguments of the constructor.

    The registry checks options against the annotations of these arguments, which may include bounds, as in
    `Annotated[float, Field(gt=0)]`.

    Attributes:
        name: the name in `METRICS`, or any name for a metric with an import path.
        higher_is_better: False for error rates.
        each_reference: whether reports also show the score for each reference set alone.
        kinds: the kinds of segments that it scores: texts by default, or labels, trees, links, heads or numbers of
            words.
        reads_sources: whether `statistics` gets the sources of the segments as a third argument.
        reads_references: False for a metric without references.
        links_from: the number of a first word in files of links; see `read_alignments`.
    """

    name: str
    higher_is_better: bool = True
    each_reference: bool = False
    kinds: tuple[Kind, ...] = ("text",)
    reads_sources: bool = False
    reads_references: bool = True
    links_from: int | None = None

    @property
    def label(self) -> str:
        """The name in papers. It distinguishes two settings of one metric if their names differ (chrF2, chrF2++)."""
        return self.name

    @property
    def bounds(self) -> tuple[float, float]:
        """The minimum and maximum score, to which intervals are clipped: 0 and 100, or infinity for error rates."""
        return 0.0, 100.0 if self.higher_is_better else math.inf

    @property
    def of_text(self) -> bool:
        return "text" in self.kinds

    def read(self, path: Path) -> list[str]:
        """Read the segments of a file, by default its lines. Raises UserError if it cannot be read."""
        return list(read_lines(path))

    def read_words(self, path: Path) -> list[tuple[str, ...]] | None:
        """Read the words that the segments of a file refer to, or return None (the default) if it has none."""
        return None

    @abstractmethod
    def statistics(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Statistics:
        """The statistics (N, k) of the segments, whose sums determine the corpus score.

        Args:
            hypotheses: N segments; an empty one is an empty output.
            references: `references[r][i]` is segment i of reference set r, as in a list of reference files. If some of
                the references are blank, see `present`.

        Raises:
            UserError: there are no segments, or the numbers of references and hypotheses differ (see `check_segments`).
        """

    def counted(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str]], sources: Sequence[str] = ()
    ) -> Statistics:
        """`statistics` of N segments, with their sources if the metric uses them.

        Raises:
            UserError: as `statistics`; sources are needed but missing, or an external metric does not return finite
                numbers (N, k).
        """
        if self.reads_sources and len(sources) != len(hypotheses):
            what, received = "this metric looks at the sources", f"{len(sources)} for {len(hypotheses)} segments"
            raise UserError(what, where=self.name, received=received, allowed=f"{option('source')} FILE")
        statistics = self.statistics(hypotheses, references, *([sources] if self.reads_sources else []))
        if statistics.ndim != 2 or len(statistics) != len(hypotheses) or not np.isfinite(statistics).all():
            what = f"{type(self).__name__}.statistics gives something else than a metric does"
            allowed = f"an array of finite numbers, ({len(hypotheses)}, k)"
            raise UserError(what, where=self.name, received=statistics.shape, allowed=allowed)
        return statistics

    @abstractmethod
    def aggregate(self, totals: Statistics) -> float:
        """The corpus score from statistics (k,) summed over segments."""

    def aggregate_all(self, totals: Statistics) -> Statistics:
        """The corpus scores (R,) from R sums of statistics (R, k), for resampling."""
        return np.array([self.aggregate(row) for row in totals])

    def segment_scores(self, statistics: Statistics) -> Statistics:
        """The scores (N,) of single segments from statistics (N, k). They only serve to show where systems differ."""
        return self.aggregate_all(statistics)

    @abstractmethod
    def signature(self) -> Signature:
        """The settings and versions, and the number of reference sets once `statistics` has run."""

    def notes(self, totals: Statistics) -> list[str]:
        """Further observations about statistics (k,) summed over segments, one sentence each."""
        return []

    def missing(self, references: Sequence[Sequence[str]]) -> str | None:
        """A sentence about what the references lack for this metric, or None (the default)."""
        return None

    def score(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str]], sources: Sequence[str] = ()
    ) -> Score:
        """Score a corpus. Arguments and errors are those of `counted` and `scored`."""
        return self.scored(self.counted(hypotheses, references, sources))

    def utilities(self, candidates: Sequence[str], references: Sequence[str], source: str) -> Statistics:
        """The score (C, R) of each of C outputs for a source against each of R references; higher is always better."""
        pairs = [candidate for candidate in candidates for _ in references], [[*references] * len(candidates)]
        scores = self.segment_scores(self.counted(*pairs, [source] * len(pairs[0])))
        return (scores if self.higher_is_better else -scores).reshape(len(candidates), -1)

    def scored(self, statistics: Statistics) -> Score:
        """The corpus score from statistics (N, k). Raises UserError if an external metric's score is not finite."""
        value = self.aggregate(statistics.sum(axis=0))
        if not math.isfinite(value):
            what = f"{type(self).__name__}.aggregate gives no finite number"
            raise UserError(what, where=self.name, received=value)
        return Score(self.label, float(value), self.signature(), len(statistics))


def share(part: float, whole: float) -> float:
    """A part of a whole, times 100; 0 if the whole is 0."""
    return float(100 * part / whole) if whole else 0.0


def rank(score: float, loss: float | None, *, higher_is_better: bool) -> tuple[float, float]:
    """The sort key of an evaluation; the best evaluation has the lowest key.

    Equal scores are ordered by the loss on dev. A number that is not finite or not known is sorted last.
    """
    numbers = -score if higher_is_better else score, math.inf if loss is None else loss
    first, second = (number if math.isfinite(number) else math.inf for number in numbers)
    return first, second


def check_segments(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> int:
    """The number of reference sets.

    Raises:
        UserError: there are no hypotheses, a reference set has another number of segments, or a segment is not a text.
    """
    if not hypotheses:
        raise UserError("there is nothing to score", where="hypotheses")
    for index, lines in enumerate(references, start=1):
        if len(lines) != len(hypotheses):
            what = f"{len(lines)} references for {len(hypotheses)} hypotheses; there must be one a segment"
            raise UserError(what, where=f"references, set {index}")
    for number, texts in enumerate(zip(hypotheses, *references, strict=True), start=1):
        for text in texts:
            check_characters(text, f"segment {number}")
    return len(references)


def check_one_reference(what: str, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    """Raise UserError if there are several references for `what`, or as `check_segments` does."""
    if (count := check_segments(hypotheses, references)) > 1:
        raise UserError(f"{what} has one reference", where="references", received=f"{count} sets")


def present(references: Sequence[Sequence[str]]) -> NDArray[np.bool_]:
    """A mask (R, N) of the references that exist: blank texts do not, if their segment has another reference.

    So segments may have different numbers of references. If all references are blank, the correct output is blank. The
    metrics of sacrebleu treat blank texts as sacrebleu does.
    """
    written = np.array([[bool(text.strip()) for text in lines] for lines in references])
    return written | ~written.any(axis=0)


def references_of_each(there: NDArray[np.bool_]) -> int | Literal["var"]:
    """The number of references per segment, for the signature; `var`, as in sacrebleu, if it varies."""
    counts = set(there.sum(axis=0).tolist())
    return counts.pop() if len(counts) == 1 else "var"


def check_alike(metric: Metric, files: Mapping[str, Sequence[str]]) -> None:
    """Raise UserError if one of the named files has rows, such as scores before texts, and another has plain texts."""
    if type(metric).read is not Metric.read:
        return
    kinds = {name: rows_kind(lines) for name, lines in files.items()}
    texts = next((name for name, kind in kinds.items() if kind is None and any(map(str.strip, files[name]))), None)
    for name, kind in kinds.items():
        if kind is not None and texts is not None:
            received, allowed = next(filter(str.strip, files[name])), REMEDIES[kind].format(2)
            raise UserError(f"these are {kind}, and {texts} has texts", where=name, received=received, allowed=allowed)


def spelt(text: str) -> str:
    """The characters of a text, separated by spaces, without white space."""
    return " ".join("".join(text.split()))


def without_words(references: Sequence[Sequence[str]]) -> str | None:
    """A warning about references without spaces between words for metrics of words; None if they have spaces."""
    if not any(map(look_unspaced, references)):
        return None
    remedy = "name their language: the option language, in a recipe text.target.language"
    return f"the references have no spaces between words, and count as hardly any words; {remedy}"


def check_words(metric: Metric, paths: Sequence[Path]) -> None:
    """Raise UserError if segments of two files, of those that contain words, refer to different words."""
    known = [(path, read) for path in paths if (read := metric.read_words(path)) is not None]
    for path, sentences in known[1:]:
        first, wanted = known[0]
        for segment, (words, others) in enumerate(zip(sentences, wanted, strict=False), start=1):
            if words != others:
                what, where = f"these words are not those of {first}", f"{path}, segment {segment}"
                raise UserError(what, where=where, received=" ".join(words), allowed=shortened(" ".join(others)))


class ExactMatch(Metric):
    """Segments equal to any of their references once outer white space is stripped, times 100.

    Statistics: 1 or 0, and 1.
    """

    name = "exact_match"
    kinds = ("text", "labels", "trees")

    def __init__(self) -> None:
        self._references: int | str | None = None

    def statistics(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Statistics:
        check_segments(hypotheses, references)
        there = present(references)
        self._references = references_of_each(there)
        outputs = [output.strip() for output in hypotheses]
        equal = np.array([[*map(str.__eq__, outputs, map(str.strip, lines))] for lines in references])
        matches = (equal & there).max(axis=0).astype(np.float64)
        return np.stack([matches, np.ones(len(outputs))], axis=1)

    def aggregate(self, totals: Statistics) -> float:
        return float(100 * totals[0] / totals[1])

    def signature(self) -> Signature:
        return Signature.of(nrefs=self._references, case="mixed", space="stripped", version=release())
