"""The Metric contract: a score is computed from statistics summed over segments.

A metric says what it needs to know of each segment (`statistics`) apart from how a corpus is scored from the sums
(`aggregate`). So every metric can be resampled, and one bootstrap and one randomisation test serve them all.

Shapes: N segments, k statistics of one segment.
"""

import importlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from headway.errors import UserError, nearest
from headway.formats.lines import read_lines

Statistics: TypeAlias = NDArray[np.float64]

# Imported when first asked for, so that a metric's library is loaded only by those who use it.
METRICS = {
    "bleu": "headway.metrics.translation_scores:Bleu",
    "chrf": "headway.metrics.translation_scores:Chrf",
    "ter": "headway.metrics.translation_scores:Ter",
    "aer": "headway.metrics.alignment_error:AlignmentErrorRate",
    "rouge-1": "headway.metrics.rouge:Rouge1",
    "rouge-2": "headway.metrics.rouge:Rouge2",
    "rouge-l": "headway.metrics.rouge:RougeL",
    "rouge-lsum": "headway.metrics.rouge:RougeLsum",
    "wer": "headway.metrics.error_rates:WordErrorRate",
    "cer": "headway.metrics.error_rates:CharacterErrorRate",
    "exact_match": "headway.metrics.exact_match:ExactMatch",
    "precision": "headway.metrics.label_metrics:Precision",
    "recall": "headway.metrics.label_metrics:Recall",
    "f0.5": "headway.metrics.label_metrics:FBeta",
    "accuracy": "headway.metrics.label_metrics:Accuracy",
    "bracket-f1": "headway.metrics.brackets:BracketF1",
    "bracket-precision": "headway.metrics.brackets:BracketPrecision",
    "bracket-recall": "headway.metrics.brackets:BracketRecall",
    "complete-match": "headway.metrics.brackets:CompleteMatch",
    "tagging-accuracy": "headway.metrics.brackets:TaggingAccuracy",
    "crossing-brackets": "headway.metrics.brackets:CrossingBrackets",
    "well-formed": "headway.metrics.brackets:WellFormed",
}


@dataclass(frozen=True)
class Score:
    """A corpus score with what is needed to reproduce it.

    Args:
        metric: the metric's `label`.
        value: 0 to 100 for shares; error rates may exceed 100.
        signature: the metric's settings and versions.
        segments: N.
    """

    metric: str
    value: float
    signature: str
    segments: int

    def __str__(self) -> str:
        return f"{self.metric}|{self.signature} = {self.value:.2f}"


class Metric(ABC):
    """A corpus metric over per-segment statistics. Options are keyword-only arguments of the constructor.

    Attributes:
        name: the name in `METRICS`.
        higher_is_better: False for error rates.
        each_reference: whether reports show the score by each reference set alone beside that by all together.
    """

    name: str
    higher_is_better: bool = True
    each_reference: bool = False

    @property
    def label(self) -> str:
        """The name as papers print it; tells apart two settings of one metric where the field does (chrF2, chrF2++)."""
        return self.name

    def read(self, path: Path) -> list[str]:
        """The segments of a file, by default its lines. Raises UserError where it cannot be read."""
        return list(read_lines(path))

    @abstractmethod
    def statistics(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Statistics:
        """What each segment adds to the corpus score, (N, k).

        Args:
            hypotheses: N segments; an empty one is an empty output.
            references: `references[r][i]` is segment i of reference set r, as in a list of reference files.

        Raises:
            UserError: no segments, no references, or not as many references as hypotheses (see `check_segments`).
        """

    @abstractmethod
    def aggregate(self, totals: Statistics) -> float:
        """The corpus score from statistics (k,) summed over segments."""

    @abstractmethod
    def signature(self) -> str:
        """Settings and versions, `key:value` joined by `|`; with the number of references once `statistics` has run."""

    def notes(self, totals: Statistics) -> list[str]:
        """What else statistics (k,) summed over segments say, a sentence each."""
        return []

    def score(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
        """Score a corpus; arguments and errors as for `statistics`."""
        totals = self.statistics(hypotheses, references).sum(axis=0)
        return Score(self.label, self.aggregate(totals), self.signature(), len(hypotheses))


def check_segments(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    """Raise a UserError unless there are hypotheses, references, and as many of each reference set as of hypotheses."""
    if not references:
        raise UserError("scoring needs at least one set of references", where="references")
    if not hypotheses:
        raise UserError("there is nothing to score", where="hypotheses")
    for number, lines in enumerate(references, start=1):
        if len(lines) != len(hypotheses):
            what = f"{len(lines)} references for {len(hypotheses)} hypotheses; there must be one a segment"
            raise UserError(what, where=f"references, set {number}")


def _metric_class(name: str) -> type[Metric]:
    if name not in METRICS:
        raise UserError(f"unknown metric{nearest(name, METRICS)}", where="metric", received=name, allowed=METRICS)
    module, _, class_name = METRICS[name].partition(":")
    metric: type[Metric] = getattr(importlib.import_module(module), class_name)
    return metric


def build_metrics(names: Sequence[str], options: Mapping[str, object]) -> list[Metric]:
    """Metrics by name, each with those of the options that it has.

    Raises:
        UserError: as `build_metric`; an option that none of the metrics has.
    """
    known = {name: inspect.signature(_metric_class(name)).parameters for name in names}
    for option, value in options.items():
        if not any(option in parameters for parameters in known.values()):
            where = "--" + (f"no_{option}" if value is False else option).replace("_", "-")
            raise UserError("none of these metrics has such an option", where=where, received=", ".join(names))
    own = ({option: value for option, value in options.items() if option in known[name]} for name in names)
    return [build_metric(name, **each) for name, each in zip(names, own, strict=True)]


def build_metric(name: str, **options: object) -> Metric:
    """Build a metric by name, with its own options: `build_metric("chrf", word_order=2)` is chrF++.

    Raises:
        UserError: an unknown metric or option (both name the nearest), or a value that is not allowed.
    """
    metric = _metric_class(name)
    parameters = inspect.signature(metric).parameters
    for option in options:
        if option not in parameters:
            allowed = ", ".join(parameters) or "none; it has no options"
            raise UserError(f"unknown option{nearest(option, parameters)}", where=f"{name}.{option}", allowed=allowed)
    try:
        return metric(**options)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join([name, *map(str, first["loc"])])
        raise UserError(first["msg"][0].lower() + first["msg"][1:], where=where, received=first["input"]) from error
