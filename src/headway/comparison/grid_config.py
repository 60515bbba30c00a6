"""The keys of a comparison's grid, and the short forms of their values.

Names of annotations are read when the module is imported, so `from __future__ import annotations` stands first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from headway.config import Count, Metrics, Section, Seed
from headway.formats.corpus_config import CorpusField


def _evaluation_set(value: Any) -> Any:
    """A corpus alone stands for one without groups."""
    return value if isinstance(value, Mapping) and "corpus" in value else {"corpus": value}


def _evaluation_sets(value: Any) -> Any:
    """Corpora by name, a list of corpora, or one alone."""
    if isinstance(value, Mapping) and not _is_corpus(value):
        return [_evaluation_set(corpus) | {"name": str(name)} for name, corpus in value.items()]
    return [_evaluation_set(corpus) for corpus in (value if isinstance(value, list | tuple) else [value])]


def _is_corpus(value: Mapping[str, Any]) -> bool:
    """Whether a mapping is one corpus, and not several by name: the options of a corpus are no mappings."""
    return "corpus" in value or not all(isinstance(option, Mapping) for option in value.values())


class EvaluationSetConfig(Section):
    """A corpus that outputs are scored on.

    `name`: by default that of its first file. `groups`: a file with the name of a group for each of its examples.
    `alignments`: a file with the true word alignment of each pair, for which outputs are the alignments of the model.
    `evenness`: outputs are how far the self-attention of each word deviates from its mean: that of a tagger's last
    layer, or of all layers as they are weighted. `metrics`: of this set; by default `aer` of alignments, `deviation`
    of evenness, and otherwise those of the grid.
    """

    corpus: CorpusField
    name: str | None = None
    groups: Path | None = None
    alignments: Path | None = None
    evenness: bool = False
    metrics: Metrics | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> EvaluationSetConfig:
        if self.alignments is not None and self.evenness:
            raise ValueError("the outputs for a set are alignments, or evenness")
        return self

    def own_metrics(self) -> tuple[dict[str, Any], ...] | None:
        """The entries of the metrics of this set; None where they are those of the grid."""
        if self.metrics is None and (self.alignments is not None or self.evenness):
            return ({"name": "deviation" if self.evenness else "aer"},)
        return self.metrics


def _variant_entry(value: Any) -> Any:
    """A recipe alone stands for one without changes."""
    return {} if value is None else {"recipe": value} if isinstance(value, str | Path) else value


def _share(value: Any) -> Any:
    """A share of one: `1%` is 0.01."""
    if isinstance(value, str) and (match := re.fullmatch(r"\s*([\d.]+)\s*%\s*", value)):
        return float(match[1]) / 100
    return value


def _match(value: Any) -> Any:
    """`true`, or a share alone, stands for matching the first variant."""
    if value is True:
        return {}
    if value is False:
        return None
    share = _share(value)
    return {"within": share} if isinstance(share, float) else value


class MatchVariantsConfig(Section):
    """Equal numbers of parameters.

    `to`: the variant, or the number, that all others are sized to; by default the first variant. `by`: what is sized
    for it. `within`: the share by which numbers may differ.
    """

    to: str | Annotated[int, Field(gt=0, le=10**12)] | None = None
    by: Literal["feed_forward", "head_dim", "n", "hidden"] = "feed_forward"
    within: Annotated[float, BeforeValidator(_share), Field(gt=0, lt=1)] = 0.01


def _number(value: Any) -> Any:
    """A number such as 3e-3, which YAML 1.1 reads as text."""
    return float(value) if isinstance(value, str) and re.fullmatch(r"[-+]?[0-9]+[eE][-+]?[0-9]+", value) else value


class TuneConfig(Section):
    """Tuning, the same for every variant: short runs with each value of one key, compared by the first metric.

    `on`: the corpus that they are compared on, which no table reports; by default the recipe's dev. `updates`: those
    of a short run. `seeds`: those of training that each value is tried with; by default the first of the grid. The
    value with the best mean is chosen.
    """

    key: str
    values: Annotated[tuple[Annotated[Any, BeforeValidator(_number)], ...], Field(min_length=2)]
    on: CorpusField | None = None
    updates: Count
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _on(cls, value: Any) -> Any:
        """The key `on`, which YAML 1.1 reads as true."""
        if not isinstance(value, Mapping):
            return value
        return {("on" if key is True else key): entry for key, entry in value.items()}


VariantEntry = Annotated[dict[str, Any], BeforeValidator(_variant_entry)]


class GridConfig(Section):
    """A comparison as a file says it.

    `recipe`: what variants begin from. `variants`: by name, overrides by key path, or a recipe of their own, or both
    (`{recipe: FILE, key.path: VALUE}`). `overrides`: changes to all recipes. `seeds`: of training. `test`: what is
    reported; a list of corpora, or corpora by name. `metrics`: by default those of the task; a test set may have
    others. `margin`: by metric, the size of differences that count as even. `baseline`: the variant that all others are
    compared with; by default every pair is compared. `any_tokenization`: compare also outputs of which some look
    tokenised and others do not. `predict`: options of prediction on test sets.
    """

    recipe: Path | None = None
    variants: Annotated[dict[str, VariantEntry], Field(min_length=1)]
    overrides: dict[str, Any] = Field(default={})
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)]
    tune: TuneConfig | None = None
    match_parameters: Annotated[MatchVariantsConfig | None, BeforeValidator(_match)] = None
    test: Annotated[tuple[EvaluationSetConfig, ...], BeforeValidator(_evaluation_sets), Field(min_length=1)]
    metrics: Metrics | None = None
    margin: dict[str, Annotated[float, Field(ge=0)]] = Field(default={})
    baseline: str | None = None
    any_tokenization: bool = False
    predict: dict[str, Any] = Field(default={})
