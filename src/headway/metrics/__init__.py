"""Metrics over per-segment statistics, and confidence intervals of their scores."""

import importlib
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headway.core.errors import UserError, option
from headway.core.languages import UNDETERMINED, is_language
from headway.core.registry import Registry, config_of, construct

if TYPE_CHECKING:
    from headway.metrics.intervals import Estimate, Interval, linearise
    from headway.metrics.metric import Kind, Metric, Score, Signature

__all__ = [
    "METRICS", "Estimate", "Interval", "Metric", "Score", "Signature", "as_metrics", "build_metric", "check_kind",
    "linearise", "metric_in", "written",
]  # fmt: skip

_HOMES = {
    "Estimate": "intervals",
    "Interval": "intervals",
    "linearise": "intervals",
    "Metric": "metric",
    "Score": "metric",
    "Signature": "metric",
}
# Examples: `chrf`, `chrf:word_order=2`, `bleu:tokenize=none,lowercase=true`, `module:Class:key=value`.
WITH_OPTIONS = re.compile(r"(?P<name>.+?)(:(?P<options>\w+=.*))?", re.DOTALL)

METRICS: Registry["Metric"] = Registry(
    "metric",
    "headway.metrics.metric:Metric",
    {
        "bleu": "headway.metrics.translation_scores:Bleu",
        "chrf": "headway.metrics.translation_scores:Chrf",
        "ter": "headway.metrics.translation_scores:Ter",
        "comet": "headway.metrics.comet:Comet",
        "aer": "headway.metrics.word_metrics:AlignmentErrorRate",
        "uas": "headway.metrics.word_metrics:UnlabelledAttachment",
        "deviation": "headway.metrics.word_metrics:Deviation",
        "rouge-1": "headway.metrics.rouge:Rouge1",
        "rouge-2": "headway.metrics.rouge:Rouge2",
        "rouge-l": "headway.metrics.rouge:RougeL",
        "rouge-lsum": "headway.metrics.rouge:RougeLsum",
        "wer": "headway.metrics.error_rates:WordErrorRate",
        "cer": "headway.metrics.error_rates:CharacterErrorRate",
        "exact_match": "headway.metrics.metric:ExactMatch",
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
    },
)

_UPPER = ("bleu", "ter", "aer", "uas", "wer", "cer", "rouge-1", "rouge-2", "f0.5")
_WRITTEN = {name: name.upper() for name in _UPPER} | {
    "chrf": "chrF", "rouge-l": "ROUGE-L", "rouge-lsum": "ROUGE-Lsum", "bracket-f1": "bracket F1",
}  # fmt: skip


def written(name: str) -> str:
    """The conventional name of a metric, such as BLEU, chrF or exact match, followed by its options."""
    plain, colon, options = name.partition(":")
    return _WRITTEN.get(plain, plain.replace("_", " ")) + colon + options


def __getattr__(name: str) -> Any:
    """Import the public names on first use, so that the command-line options of scoring load quickly."""
    if name not in _HOMES:
        raise AttributeError(f"module 'headway.metrics' has no attribute {name!r}")
    return getattr(importlib.import_module(f"headway.metrics.{_HOMES[name]}"), name)


def build_metric(name: str, **options: object) -> "Metric":
    """Create a metric from its name or import path and its options: `build_metric("chrf", word_order=2)` is chrF++.

    Raises:
        UserError: the metric or option is unknown (the message suggests the nearest), or a value is not allowed.
    """
    return construct(METRICS.get(name, option("metric")), options, where=name)


def check_kind(metrics: "Sequence[Metric]", kind: "Kind", where: str, *, of_texts: bool) -> None:
    """Raise UserError, at `where`, if a metric does not score outputs of this kind, or needs sources that are not text.

    Args:
        metrics: the metrics.
        kind: the kind of the outputs.
        where: the option that names the metrics.
        of_texts: whether the sources are texts, unlike those of speech.
    """
    for metric in metrics:
        if metric.reads_sources and not of_texts:
            raise UserError("this metric reads sources, and these are no texts", where=where, received=metric.name)
        if kind not in metric.kinds:
            what = f"this metric scores {' or '.join(metric.kinds)}, and the outputs are {kind}"
            allowed = [name for name in METRICS if kind in METRICS.get(name, where).kinds]
            raise UserError(what, where=where, received=metric.name, allowed=allowed)


def metric_in(language: str | None, entry: Mapping[str, Any], where: str = option("metric")) -> "Metric":
    """Create the metric of a recipe's entry, with `language` as the default of its option of this name.

    The name may include options: `NAME:KEY=VALUE,KEY=VALUE`. Raises UserError as `build_metric` does.
    """
    spelled = WITH_OPTIONS.fullmatch(entry["name"])
    name, given = (spelled["name"], spelled["options"]) if spelled else (entry["name"], None)
    pairs = (part.partition("=") for part in re.split(r",(?=\w+=)", given or "") if part)
    asks = "language" in config_of(METRICS.get(name, where)).model_fields
    known = language not in (None, UNDETERMINED) and is_language(str(language))
    named = {"language": language} if asks and known else {}
    return build_metric(**(named | dict(entry) | {key: value for key, _, value in pairs} | {"name": name}))


def as_metrics(metrics: "Metric | str | Sequence[Metric | str]", language: str | None = None) -> list["Metric"]:
    """One or several metrics as a list, with names replaced by metrics. Raises UserError as `metric_in` does."""
    several = metrics if isinstance(metrics, Sequence) and not isinstance(metrics, str) else [metrics]
    return [metric_in(language, {"name": one}) if isinstance(one, str) else one for one in several]
