"""The grid of a comparison: its keys, and the variants by seeds, tuning and test sets that it plans.

Names of annotations are read when the module is imported, so `from __future__ import annotations` stands first.
"""

from __future__ import annotations

import copy
import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from headway.config import Count, Metrics, Section, Seed
from headway.errors import option
from headway.files import exists, sha256
from headway.formats.corpus_config import AnyCorpus, CorpusField, parts
from headway.formats.corpus_format import content_hash
from headway.log import warn
from headway.metrics import Metric, metric_in
from headway.metrics.metric import Kind
from headway.processing.text.text_processor import PreparationConfig
from headway.recipe import Recipe, changed_keys, parse_recipe, set_key

SEED = "training.seed"
# Keys in which the runs of one variant may differ.
FREE = (SEED, "training.log_every", "training.keep_last", "training.tensorboard", "decoding.batch_tokens")
ENDS = ("training.updates", "training.epochs", "training.minutes")


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


@dataclass(frozen=True)
class NamedCorpus:
    """A corpus to score outputs on, with absolute paths; see `EvaluationSetConfig`.

    `key`: what names it, for messages; by default `test.NAME`. `written`: how references are normalised before they are
    scored; None as they are.
    """

    name: str
    corpus: AnyCorpus
    groups: Path | None = None
    alignments: Path | None = None
    evenness: bool = False
    metrics: tuple[dict[str, Any], ...] | None = None
    key: str | None = None
    written: PreparationConfig | None = None

    @property
    def steps(self) -> str:
        """The steps that normalise the references, separated by commas."""
        of_text = self.written is not None and self.alignments is None and not self.evenness
        return ", ".join(self.written.normalise) if self.written is not None and of_text else ""

    @property
    def where(self) -> str:
        """Its place, for messages."""
        return self.key or f"test.{self.name}"

    @property
    def where_groups(self) -> str:
        """The place of its groups, for messages."""
        return f"{option('by') if self.key else f'{self.where}.groups'}: {self.groups}"

    def kind(self, writes: Kind) -> Kind:
        """The kind of outputs that are scored, of models that write outputs of a kind."""
        return "links" if self.alignments else "numbers" if self.evenness else writes

    def fingerprint(self) -> str:
        """A hash of the contents of all files, of how they are read, and of what is asked of a model."""
        files = [*corpus_files(self.corpus), *(path for path in (self.groups, self.alignments) if path)]
        options = [part.model_dump_json() for _, part in parts(self.corpus, self.name)]
        asked = [*(["evenness"] if self.evenness else []), *([f"references {self.steps}"] if self.steps else [])]
        return content_hash([self.name, *options, *map(content, files), *asked])


def shared_references(configs: Mapping[str, PreparationConfig | None]) -> PreparationConfig | None:
    """How the references of a test set are normalised: as all systems, by name, write; None where these differ.

    Each system could write others. But systems that are compared are scored by the same references, and where they are
    to write different texts these are the references as they stand.
    """
    steps = {
        name: [*config.normalise, *([config.language] if "punctuation" in config.normalise else [])]
        for name, config in configs.items()
        if config is not None
    }
    if all(given == next(iter(steps.values())) for given in steps.values()):
        return next(iter(configs.values()))
    shown = "; ".join(f"{name}: {', '.join(given) or 'none'}" for name, given in steps.items())
    warn(f"text.target.normalise differs, so that references are scored as they stand ({shown})")
    return None


@dataclass(frozen=True)
class Variant:
    """One variant: its name and its recipe, whose seed and tuned key are still to be set."""

    name: str
    recipe: Recipe


@dataclass(frozen=True)
class PlannedRun:
    """A run of the grid: a cell, or a short run that tunes one.

    `name`: of its folder, which no other run of its kind has. `value`: of the tuned key; None where nothing is tuned.
    """

    name: str
    variant: str
    seed: int
    recipe: Recipe
    value: Any = None


@dataclass(frozen=True)
class Grid:
    """A comparison that can be run: everything in it was checked.

    `tuning_set`: what short runs are compared on; None without tuning. `metrics`: the entries of the metrics of all
    sets that have none of their own.
    """

    config: GridConfig
    variants: tuple[Variant, ...]
    tests: tuple[NamedCorpus, ...]
    tuning_set: NamedCorpus | None
    metrics: tuple[dict[str, Any], ...]

    def metrics_of(self, test: NamedCorpus | None = None) -> list[Metric]:
        """The metrics of a set, in their order; without one those of all sets that have none of their own."""
        own = None if test is None else test.metrics
        language = self.variants[0].recipe.text.target.language
        return [metric_in(language, entry) for entry in (self.metrics if own is None else own)]

    @property
    def total(self) -> int:
        """The number of all runs."""
        tune = self.config.tune
        short = 0 if tune is None else len(tune.values) * len(self._tuning_seeds)
        return len(self.variants) * (short + len(self.config.seeds))

    @property
    def _tuning_seeds(self) -> tuple[int, ...]:
        tune = self.config.tune
        return self.config.seeds[:1] if tune is None or tune.seeds is None else tune.seeds

    def tuning_runs(self, variant: Variant) -> list[PlannedRun]:
        """The short runs of a variant, one a value and seed, those of a value together; none without tuning."""
        tune = self.config.tune
        if tune is None:
            return []
        short = {**dict.fromkeys(ENDS), "training.updates": tune.updates}
        return [
            PlannedRun(
                f"{variant.name}-{slug(value)}-{seed}", variant.name, seed,
                changed(variant.recipe, short | {tune.key: value, SEED: seed}), value,
            )
            for value in tune.values for seed in self._tuning_seeds
        ]  # fmt: skip

    def cells(self, variant: Variant, value: Any = None) -> list[PlannedRun]:
        """The cells of a variant, one a seed, with the best value of the tuned key."""
        tuned = {} if self.config.tune is None else {self.config.tune.key: value}
        return [
            PlannedRun(
                f"{variant.name}-{seed}", variant.name, seed, changed(variant.recipe, tuned | {SEED: seed}), value
            )
            for seed in self.config.seeds
        ]


def slug(value: Any) -> str:
    """A value as a part of a file's name."""
    return re.sub(r"[^\w.+-]+", "_", str(value)).strip("_") or "_"


def file_name(name: str) -> str:
    """A name as a part of a file's name; one that is changed for that has a hash, so that no other name is like it."""
    part = slug(name)
    return part if part == name else f"{part}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def changed(recipe: Recipe, changes: Mapping[str, Any]) -> Recipe:
    """A recipe with other values at some key paths. Raises UserError where these are not allowed."""
    tree = recipe.model_dump(mode="json")
    for key, value in changes.items():
        set_key(tree, key, copy.deepcopy(value), key)
    return parse_recipe(tree)


def differ_in_nothing(one: Recipe, other: Recipe) -> bool:
    """Whether two recipes are of one variant: they differ in their seed alone, or in what changes no result."""
    return all(key in FREE for key in changed_keys(one, other))


def name_of_corpus(corpus: AnyCorpus) -> str:
    """A name for a corpus, after its first file."""
    path = next(iter(corpus_files(corpus)), None)
    return "test" if path is None else path.name.split(".")[0]


def corpus_files(corpus: AnyCorpus) -> Iterator[Path]:
    """The files that a corpus names."""
    for _, part in parts(corpus, "test"):
        for _, value in part:
            yield from (path for path in (value if isinstance(value, tuple) else (value,)) if isinstance(path, Path))


def content(path: Path) -> str:
    """A hash of a file's content; the path of one that is not there."""
    return sha256(path) if exists(path, "file") else str(path)
