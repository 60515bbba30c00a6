"""The grid of a comparison: its configuration, and the variants, seeds, tuning runs and test sets that it plans.

Pydantic reads the annotations when the module is imported, so `from __future__ import annotations` comes first.
"""

from __future__ import annotations

import copy
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_type_hints

from pydantic import BeforeValidator, Field, model_validator

from headway.comparison.cells import (
    CellResult,
    NamedCorpus,
    check_margin,
    content,
    corpus_files,
    name_of_corpus,
    read_result,
    shared_references,
)
from headway.comparison.comparison import measures_of
from headway.comparison.options import Documents
from headway.core.config import Count, Metrics, Section, Seed, merge, validated, validated_options
from headway.core.errors import UserError, nearest
from headway.core.files import first_existing, sha256
from headway.core.log import warn
from headway.formats.alignments import LinksFrom
from headway.formats.corpus_config import CorpusField, parts, paths_resolved
from headway.formats.corpus_format import open_format
from headway.formats.lines import check_file
from headway.metrics import Metric, check_kind, metric_in
from headway.models import StackedConfig, model_section
from headway.predictors.predict_options import PredictOptions
from headway.recipe import Recipe, apply_overrides, flatten, parse_recipe, read_tree, recipe_of, set_key
from headway.runs.run import open_run
from headway.tasks import build_task
from headway.training.start import check_recipe, new_schedule

SEED = "training.seed"
# The keys in which runs of one variant may differ.
FREE = (SEED, "training.log_every", "training.keep_last", "training.loggers", "decoding.batch_tokens")
ENDS = ("training.updates", "training.epochs", "training.minutes")
CELL = "cell.json"
CELLS: Final = "cells"
TUNING: Final = "tuning"
CHECKS: Final = "checks"
RunKind = Literal["cells", "tuning", "checks"]
NOT_OF_GRIDS = ("capture", "prefixes")  # options of prediction for single inputs


def _evaluation_set(value: Any) -> Any:
    """Accept a corpus without groups as an evaluation set."""
    return value if isinstance(value, Mapping) and "corpus" in value else {"corpus": value}


def _evaluation_sets(value: Any) -> Any:
    """Accept corpora by name, a list of corpora, or a single corpus. (The options of a corpus are not mappings.)"""
    if isinstance(value, Mapping) and "corpus" not in value and all(isinstance(one, Mapping) for one in value.values()):
        return [_evaluation_set(corpus) | {"name": str(name)} for name, corpus in value.items()]
    return [_evaluation_set(corpus) for corpus in (value if isinstance(value, list | tuple) else [value])]


class EvaluationSetConfig(Section):
    """A corpus that outputs are scored on.

    `name`: by default that of its first file. `groups`: a file with a group name for each example. `alignments`: a file
    with the true word alignment of each pair; outputs are then the model's alignments. `evenness`: outputs are how far
    each word's self-attention deviates from its mean, in a tagger's last layer, or averaged by layer weights.
    `metrics`: of this set; by default `aer` for alignments, `deviation` for evenness, and otherwise those of the grid.
    `links_from`: the number of the first word in `alignments`. `documents`: a file with the name of the document of
    each example, `{column: NAME}` for a column of a table (or its number), or `blank` if a document ends at a line with
    a blank source. Segments of a document are not independent.
    """

    corpus: CorpusField
    name: str | None = None
    groups: Path | None = None
    alignments: Path | None = None
    evenness: bool = False
    metrics: Metrics | None = None
    links_from: LinksFrom = None
    documents: Documents | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> EvaluationSetConfig:
        if self.alignments is not None and self.evenness:
            raise ValueError("the outputs for a set are alignments, or evenness")
        return self

    def own_metrics(self) -> tuple[dict[str, Any], ...] | None:
        """The metric entries of this set; None if it uses those of the grid."""
        if self.metrics is None and (self.alignments is not None or self.evenness):
            return ({"name": "deviation" if self.evenness else "aer"},)
        return self.metrics


def _variant_entry(value: Any) -> Any:
    """Accept a recipe without changes as a variant."""
    return {} if value is None else {"recipe": value} if isinstance(value, str | Path) else value


def _share(value: Any) -> Any:
    """A fraction: `1%` is 0.01."""
    if isinstance(value, str) and (match := re.fullmatch(r"\s*([\d.]+)\s*%\s*", value)):
        return float(match[1]) / 100
    return value


def _match(value: Any) -> Any:
    """Accept `true`, or a fraction alone, for matching the first variant."""
    if value is True:
        return {}
    if value is False:
        return None
    share = _share(value)
    return {"within": share} if isinstance(share, float) else value


class MatchVariantsConfig(Section):
    """Equal numbers of parameters.

    `to`: the variant, or the number, that all others are sized to; by default the first variant. `by`: the size that is
    adjusted. `within`: the fraction by which numbers may differ.
    """

    to: str | Annotated[int, Field(gt=0, le=10**12)] | None = None
    by: Literal["feed_forward", "head_dim", "n", "hidden"] = "feed_forward"
    within: Annotated[float, BeforeValidator(_share), Field(gt=0, lt=1)] = 0.01


def _number(value: Any) -> Any:
    """Convert numbers such as 3e-3, which YAML 1.1 reads as text."""
    return float(value) if isinstance(value, str) and re.fullmatch(r"[-+]?[0-9]+[eE][-+]?[0-9]+", value) else value


class TuneConfig(Section):
    """Tuning of one key, the same for every variant: short runs with each value, compared by the first metric.

    `on`: the corpus for this comparison, which is not reported; by default the recipe's dev. `by`: with `seed`, the
    short runs of a seed choose the value for the cell of this seed; with `variant`, all cells of a variant share a
    value. `updates`: the length of a short run; by default half that of a cell. `seeds`: by variant, the training seeds
    of the short runs, by default the first of the grid; the value with the best mean is chosen. `grow`: if the best
    value is the lowest or the highest, at most this many further values are tried beyond it, each at the ratio of the
    two outermost. Only positive numbers grow. `check`: for each chosen value, train a cell of one seed with a
    neighbouring value, since whole runs may rank values in another order than short runs.
    """

    key: str
    values: Annotated[tuple[Annotated[Any, BeforeValidator(_number)], ...], Field(min_length=2)]
    on: CorpusField | None = None
    by: Literal["seed", "variant"] = "seed"
    updates: Count | None = None
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)] | None = None
    grow: Annotated[int, Field(ge=0, le=20)] = 3
    check: bool = True

    @property
    def grows(self) -> bool:
        """Whether values beyond those of the grid may be tried."""
        return self.grow > 0 and are_numbers(self.values) and min(self.values) > 0

    def beyond(self, tried: Sequence[Any], value: Any) -> list[Any]:
        """The candidates for the next value to try, best first, if `value` is the best of the `tried` values.

        Empty if `value` is at neither edge, or no more values may be tried. Integers may have to stay integers.
        """
        edge = edge_of(tried, value)
        if not (self.grows and edge) or len(tried) - len(self.values) >= self.grow:
            return []
        inner = sorted(tried)[1 if edge == "lowest" else -2]
        further = float(f"{value * (value / inner):.6g}")
        if not all(isinstance(each, int) for each in self.values):
            return [further]
        whole = round(further)
        wider = [whole] if whole not in (0, value) else []
        return wider if further == whole else [further, *wider]

    @model_validator(mode="before")
    @classmethod
    def _read(cls, value: Any) -> Any:
        """Accept the key `on`, which YAML 1.1 reads as true. The key `seeds` implies a choice by variant."""
        if not isinstance(value, Mapping):
            return value
        given = {("on" if key is True else key): entry for key, entry in value.items()}
        return given if given.get("seeds") is None else {"by": "variant", **given}

    @model_validator(mode="after")
    def _seeds_of_a_variant(self) -> TuneConfig:
        if self.by == "seed" and self.seeds is not None:
            raise ValueError("by: seed tries each value with the seed of the cell; seeds belong to by: variant")
        return self


def are_numbers(values: Sequence[Any]) -> bool:
    """Whether all values are numbers, and so have an order."""
    return all(type(value) in (int, float) for value in values)


def edge_of(tried: Sequence[Any], value: Any) -> Literal["lowest", "highest", ""]:
    """Whether a value is the lowest or highest of the numbers `tried`; empty if neither, or if they are not numbers."""
    if len(tried) < 2 or not are_numbers(tried):
        return ""
    return "lowest" if value == min(tried) else "highest" if value == max(tried) else ""


VariantName = Annotated[str, Field(pattern=r"^[\w.+=-]+$")]  # it becomes part of a file name
VariantEntry = Annotated[dict[str, Any], BeforeValidator(_variant_entry)]


class GridConfig(Section):
    """The configuration of a comparison, as read from a grid file.

    `recipe`: the recipe that variants begin from. `variants`: by name, overrides by key path, or another recipe, or
    both (`{recipe: FILE, key.path: VALUE}`). `overrides`: changes to all recipes. `seeds`: of training. `test`: the
    reported test sets, a list of corpora, or corpora by name. `metrics`: by default those of the task; a test set may
    have its own. `margin`: by metric, the size of differences that count as even. `baseline`: the variant that all
    others are compared with; by default every pair is compared. `any_tokenization`: allow some outputs to look
    tokenised and others not. `pooled_variance`: estimate the seeds' variance from all variants. `predict`: options of
    prediction on test sets.
    """

    recipe: Path | None = None
    variants: Annotated[dict[VariantName, VariantEntry], Field(min_length=2)]
    overrides: dict[str, Any] = Field(default={})
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)] = (1, 2, 3, 4, 5)
    tune: TuneConfig | None = None
    match_parameters: Annotated[MatchVariantsConfig | None, BeforeValidator(_match)] = None
    test: Annotated[tuple[EvaluationSetConfig, ...], BeforeValidator(_evaluation_sets), Field(min_length=1)]
    metrics: Metrics | None = None
    margin: dict[str, Annotated[float, Field(ge=0)]] = Field(default={})
    baseline: str | None = None
    any_tokenization: bool = False
    pooled_variance: bool = False
    predict: dict[str, Any] = Field(default={})

    @model_validator(mode="after")
    def _variants_are_there(self) -> GridConfig:
        to = self.match_parameters.to if self.match_parameters else None
        for where, meant in (("baseline", self.baseline), ("match_parameters.to", to)):
            if isinstance(meant, str) and meant not in self.variants:
                raise ValueError(f"{where}: no such variant as {meant}{nearest(meant, self.variants)}")
        return self


@dataclass(frozen=True)
class Variant:
    """A variant: its name, and its recipe before the seed and the tuned key are set."""

    name: str
    recipe: Recipe


@dataclass(frozen=True)
class CellGroup:
    """The cells of a variant that share a value of the tuned key: the cell of one seed, or the cells of all seeds.

    `tuning_seeds`: the seeds that each value is tried with. `seed`: the cell's seed, if every seed has its own value.
    """

    variant: Variant
    seeds: tuple[int, ...]
    tuning_seeds: tuple[int, ...]
    seed: int | None = None

    @property
    def name(self) -> str:
        """The name of the file of its choice."""
        return self.variant.name if self.seed is None else f"{self.variant.name}-{self.seed}"

    @property
    def title(self) -> str:
        """The name in messages."""
        return self.variant.name if self.seed is None else f"{self.variant.name}, seed {self.seed}"


@dataclass(frozen=True)
class PlannedRun:
    """A run of the grid: a cell, a short run for tuning, or a cell with another value of the tuned key, as a check.

    `name`: the name of its folder, unique among runs of its kind. `value`: of the tuned key; None without tuning.
    """

    name: str
    variant: str
    seed: int
    recipe: Recipe
    value: Any = None


@dataclass(frozen=True)
class CellJob:
    """The job of a worker process: train a planned run, and decode test sets.

    `kind`: `cells`, or `tuning` for a short run and `checks`, which get no report. `output`: the absolute path of the
    grid's folder: `cells/VARIANT-SEED` are run folders, `tuning/` has the short runs, `logs/` their output. `predict`:
    options of prediction. `beside`: the run that a check is compared with, whose outputs follow those of the check.
    """

    planned: PlannedRun
    kind: RunKind
    output: Path
    tests: tuple[NamedCorpus, ...]
    predict: Mapping[str, Any]
    threads: int
    beside: Path | None = None

    @property
    def name(self) -> str:
        """The name in messages."""
        planned, whose = self.planned, {TUNING: "tuning", CHECKS: "check"}
        return f"{planned.variant}, seed {planned.seed}" if self.kind == CELLS else f"{whose[self.kind]} {planned.name}"

    @property
    def run(self) -> Path:
        return self.output / self.kind / self.planned.name

    @property
    def log(self) -> Path:
        """The file that the run's output is written to."""
        return self.output / "logs" / f"{self.kind}-{self.planned.name}.txt"

    def is_trained(self) -> bool:
        """Whether training is complete."""
        manifest = open_run(self.run).manifest
        return manifest.get("status") == "finished" and "updates" in manifest

    def stamp(self) -> dict[str, Any]:
        """The weights, test sets and options that the result depends on."""
        return {
            "weights": open_run(self.run).manifest.get("model_sha256"),
            "tests": [test.fingerprint() for test in self.tests],
            # A file is identified by its content.
            "predict": {
                name: sha256(Path(value)) if name == "dictionary" and value is not None else value
                for name, value in self.predict.items()
            },
            **({} if self.beside is None else {"beside": open_run(self.beside).manifest.get("model_sha256")}),
        }

    def result(self) -> CellResult | None:
        """The result of a finished cell. None if there is none yet, or if it is of other weights or test sets."""
        return read_result(self.run / CELL, self.stamp()) if self.is_trained() else None


@dataclass(frozen=True)
class Grid:
    """A checked comparison that can be run.

    `tuning_set`: the corpus that short runs are compared on; None without tuning. `metrics`: the metric entries for all
    test sets without their own.
    """

    config: GridConfig
    variants: tuple[Variant, ...]
    tests: tuple[NamedCorpus, ...]
    tuning_set: NamedCorpus | None
    metrics: tuple[dict[str, Any], ...]

    def metrics_of(self, test: NamedCorpus | None = None) -> list[Metric]:
        """The metrics of a test set, in order; without `test`, the metrics of all sets without their own."""
        own = None if test is None else test.metrics
        language = self.variants[0].recipe.text.target.language
        return [metric_in(language, entry) for entry in (self.metrics if own is None else own)]

    def own_metrics(self) -> dict[str, list[Metric]]:
        """The metrics of the test sets that have their own, by the name of the set."""
        return {test.name: self.metrics_of(test) for test in self.tests if test.metrics is not None}

    def groups_of(self, variant: Variant) -> list[CellGroup]:
        """The cells of a variant, grouped by the cells that share a value of the tuned key."""
        tune, seeds = self.config.tune, self.config.seeds
        if tune is not None and tune.by == "seed":
            return [CellGroup(variant, (seed,), (seed,), seed) for seed in seeds]
        return [CellGroup(variant, seeds, seeds[:1] if tune is None or tune.seeds is None else tune.seeds)]

    def short_share(self, variant: Variant) -> float:
        """The length of a short run as a fraction of a cell's length; 1 if it is not known."""
        ends = _ends(variant.recipe)
        return max((short / ends[end] for end, short in self._short(ends).items() if short and ends[end]), default=1.0)

    def _short(self, ends: Mapping[str, Any]) -> dict[str, Any]:
        """The stopping criteria of a short run, from those of a cell."""
        tune = self.config.tune
        if tune is not None and tune.updates is not None:
            return {**dict.fromkeys(ENDS), "training.updates": tune.updates}
        return {end: (whole + 1) // 2 if isinstance(whole, int) else whole and whole / 2 for end, whole in ends.items()}

    def tuning_runs(self, group: CellGroup, values: Sequence[Any] | None = None) -> list[PlannedRun]:
        """The short runs of a group, with these values of the tuned key (by default the grid's). Empty without tuning.

        There is one run per value and seed; the runs of a value are adjacent.
        """
        tune, variant = self.config.tune, group.variant
        if tune is None:
            return []
        short = self._short(_ends(variant.recipe))
        return [
            PlannedRun(
                f"{variant.name}-{slug(value)}-{seed}", variant.name, seed,
                changed(variant.recipe, short | {tune.key: value, SEED: seed}), value,
            )
            for value in (tune.values if values is None else values) for seed in group.tuning_seeds
        ]  # fmt: skip

    def check(self, group: CellGroup, value: Any) -> PlannedRun:
        """The cell of the first seed of a group with a neighbour of the chosen value."""
        (cell,) = self.cells(replace(group, seeds=group.seeds[:1]), value)
        return replace(cell, name=f"{group.variant.name}-{slug(value)}-{cell.seed}")

    def cells(self, group: CellGroup, value: Any = None) -> list[PlannedRun]:
        """The cells of a group, one per seed, with the chosen value of the tuned key."""
        tuned, variant = {} if self.config.tune is None else {self.config.tune.key: value}, group.variant
        return [
            PlannedRun(
                f"{variant.name}-{seed}", variant.name, seed, changed(variant.recipe, tuned | {SEED: seed}), value
            )
            for seed in group.seeds
        ]


def _ends(recipe: Recipe) -> dict[str, Any]:
    """The stopping criteria of training by their keys; None for those that are not set."""
    return {key: getattr(recipe.training, key.rpartition(".")[2]) for key in ENDS}


def slug(value: Any) -> str:
    """Convert a value into a part of a file name."""
    return re.sub(r"[^\w.+-]+", "_", str(value)).strip("_") or "_"


def file_name(name: str) -> str:
    """Convert a name into a part of a file name. A name that has to be changed gets a hash, so that it stays unique."""
    part = slug(name)
    return part if part == name else f"{part}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def changed(recipe: Recipe, changes: Mapping[str, Any]) -> Recipe:
    """A copy of a recipe with other values at some key paths. Raises UserError if these are not allowed."""
    tree = recipe.model_dump(mode="json")
    for key, value in changes.items():
        set_key(tree, key, copy.deepcopy(value), key)
    return parse_recipe(tree)


def counting_keys(recipe: Recipe) -> dict[str, Any]:
    """The values by key that define a variant: all but the seed and the keys that do not change results."""
    values = flatten(recipe.model_dump(mode="json"))
    return {key: value for key, value in values.items() if key not in FREE and value is not None}


@dataclass(frozen=True)
class _RawVariant:
    """A variant before validation: the raw tree of its recipe, and the folders that relative paths begin at."""

    name: str
    tree: dict[str, Any]
    folders: tuple[Path, ...]

    def variant(self) -> Variant:
        """Validate the recipe. Raises UserError."""
        with at_key(f"variants.{self.name}"):
            return Variant(self.name, recipe_of(copy.deepcopy(self.tree), self.folders))


def load_grid(path: Path, overrides: Sequence[str] = ()) -> Grid:
    """Read a grid file, apply `key.path=value` overrides, and check it.

    An override whose first key is a key of grids changes the grid; any other changes all recipes.

    Args:
        path: the file. Its relative recipe paths begin at its folder. Corpus paths are searched for beside the
            variant's recipe, and then beside this file.
        overrides: values are YAML.

    Raises:
        UserError: the file cannot be read; a key, value or recipe is not allowed; variants do not differ; the tuning
            set is also reported; or two runs have the same name.
    """
    return grid_of(read_tree(path), path.parent, overrides)


def grid_of(tree: dict[str, Any], beside: Path, overrides: Sequence[str] = ()) -> Grid:
    """The grid of a raw tree; see `load_grid`. Relative paths of recipes begin at the folder `beside`."""
    tree = copy.deepcopy(tree)
    recipe_changes, grid_changes = [], []
    for override in overrides:
        first = override.partition("=")[0].split(".")[0]
        if first in Recipe.model_fields:
            recipe_changes.append(override)
        elif first in GridConfig.model_fields:
            grid_changes.append(override)
        else:
            names = [*GridConfig.model_fields, *Recipe.model_fields]
            raise UserError(f"unknown key{nearest(first, names)}", where=override, allowed=names)
    apply_overrides(tree, grid_changes)
    config = validated(GridConfig, tree)
    read = {name: _read(config, name, beside, recipe_changes) for name in config.variants}
    for one, other in combinations([raw.variant() for raw in read.values()], 2):
        if counting_keys(one.recipe) == counting_keys(other.recipe):
            what = f"this variant does not differ from {one.name}, but for what changes no result"
            raise UserError(what, where=f"variants.{other.name}")
    _match_variants(config, read)
    variants = [raw.variant() for raw in read.values()]
    task = variants[0].recipe.task
    for variant in variants:
        with at_key(f"variants.{variant.name}"):
            if variant.recipe.task != task:
                raise UserError("variants of one task are compared", received=variant.recipe.task, allowed=task)
            check_recipe(variant.recipe)
    folder = next(iter(read.values())).tree.get("data", {}).get("folder")
    resolve = partial(first_existing, folders=[Path(folder)] if folder else [Path(), beside])
    tests = tuple(_named_sets(config, resolve))
    metrics = build_task(task).metrics if config.metrics is None else config.metrics
    tuning_set = _tuning_set(config, variants, resolve)
    grid = Grid(config, tuple(variants), tests, tuning_set, tuple(metrics))
    _check_metrics(grid)
    _check_tuning(grid)
    _check_predict(grid)
    _check_run_names(grid)
    short = {run.name: run.recipe for variant in variants for run in grid.tuning_runs(grid.groups_of(variant)[0])}
    recipes = short or {variant.name: variant.recipe for variant in variants}
    written = shared_references({name: build_task(task).written(recipe) for name, recipe in recipes.items()})
    tests = tuple(replace(test, written=written) for test in tests)
    return replace(grid, tests=tests, tuning_set=tuning_set and replace(tuning_set, written=written))


def _read(config: GridConfig, name: str, beside: Path, changes: Sequence[str]) -> _RawVariant:
    """Read a variant's recipe, with all changes. Raises UserError."""
    own = dict(config.variants[name])
    path, where = own.pop("recipe", config.recipe), f"variants.{name}"
    if not isinstance(path, str | Path):
        what, allowed = "a variant begins from a recipe", f"recipe: FILE, here or above, or {name}: FILE"
        raise UserError(what, where=where, received=path, allowed=allowed)
    with at_key(where):
        tree = copy.deepcopy(read_tree(beside / path))
        _check_own_keys(config, own, changes)
        for key, value in [*config.overrides.items(), *own.items()]:
            section = tree.get(key)
            if isinstance(value, dict) and isinstance(section, dict) and key in Recipe.model_fields:
                tree[key] = merge(section, copy.deepcopy(value))
            else:
                set_key(tree, key, copy.deepcopy(value), key)
        apply_overrides(tree, changes)
        set_key(tree, SEED, config.seeds[0], SEED)
    return _RawVariant(name, tree, ((beside / path).parent, beside))


def _check_own_keys(config: GridConfig, own: Mapping[str, Any], changes: Sequence[str]) -> None:
    """Raise UserError if a variant or an override sets a key that the grid controls: the seed, or the tuned key."""
    asked: dict[str, Any] = {}
    apply_overrides(asked, changes)
    for key in (SEED, *([] if config.tune is None else [config.tune.key])):
        if any(_sets(given, key) for given in (config.overrides, own, asked)):
            what, allowed = "the grid itself sets this key, for all variants alike", "seeds" if key == SEED else "tune"
            raise UserError(what, where=key, allowed=allowed)


def _sets(changes: Mapping[str, Any], key: str) -> bool:
    """Whether changes, whose keys may be paths into sections, set `key`."""
    for path, value in changes.items():
        rest = key.removeprefix(f"{path}.")
        if path == key or (rest != key and isinstance(value, Mapping) and _sets(value, rest)):
            return True
    return False


def _match_variants(config: GridConfig, read: Mapping[str, _RawVariant]) -> None:
    """Set the number of parameters of one variant as the target in the recipes of all others.

    A variant that names the quantity to be sized keeps it. Raises UserError for a model that cannot be sized.
    """
    match = config.match_parameters
    if match is None:
        return
    to: str | int = next(iter(read)) if match.to is None else match.to
    models = {name: raw.variant().recipe.model for name, raw in read.items()}
    for name, model in models.items():
        if not isinstance(model, StackedConfig):
            what = "a model of this kind cannot be sized to a number of parameters"
            raise UserError(what, where=f"variants.{name}: match_parameters", received=model.kind)
    sections = {name: model.model_dump(mode="json") for name, model in models.items()}
    goal: Any = to
    if isinstance(to, str):
        with at_key(f"variants.{to}"):
            goal = model_section(sections[to]).model_dump(mode="json")
    for name, variant in read.items():
        if name != to:
            own = sections[name].get("match_parameters")
            value = {"to": goal, "by": own["by"] if own else match.by, "within": match.within}
            set_key(variant.tree, "model.match_parameters", value, f"variants.{name}")


def _named_sets(config: GridConfig, resolve: Any) -> Iterator[NamedCorpus]:
    """The reported test sets with unique names. Raises UserError."""
    names = set()
    for entry in config.test:
        corpus = paths_resolved(entry.corpus, resolve)
        name = entry.name or name_of_corpus(corpus)
        if name in names:
            allowed = "test: {NAME: CORPUS, ...}"
            raise UserError("two test sets of one name", where="test", received=name, allowed=allowed)
        names.add(name)
        groups, alignments = (path and resolve(path) for path in (entry.groups, entry.alignments))
        own, first = entry.own_metrics(), entry.links_from
        documents = resolve(entry.documents) if isinstance(entry.documents, Path) else entry.documents
        yield NamedCorpus(name, corpus, groups, alignments, entry.evenness, own, links_from=first, documents=documents)


def _tuning_set(config: GridConfig, variants: Sequence[Variant], resolve: Any) -> NamedCorpus | None:
    """The corpus that short runs are compared on. Raises UserError if there is none."""
    if config.tune is None:
        return None
    if config.tune.on is not None:
        return NamedCorpus("tuning", paths_resolved(config.tune.on, resolve), key="tune.on")
    dev = variants[0].recipe.data.dev
    if dev is None or any(variant.recipe.data.dev is None for variant in variants):
        what = "tuning compares short runs on a corpus of its own"
        raise UserError(what, where="tune.on", allowed="a corpus, or data.dev in every recipe")
    return NamedCorpus("tuning", dev, key="data.dev")


@contextmanager
def at_key(where: str) -> Iterator[None]:
    """Prefix the errors of a recipe with the key of its variant or value."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{where}: {error.args[0]}") from error


def check_corpora(grid: Grid) -> None:
    """Raise UserError if a file for training, or for evaluation during training, is missing or empty."""
    for variant in grid.variants:
        with at_key(f"variants.{variant.name}"):
            for name, corpus in variant.recipe.data.corpora().items():
                for where, part in parts(corpus, name):
                    open_format(part, where).check()


def _check_metrics(grid: Grid) -> None:
    """Raise UserError if metrics are unknown, repeated or of other outputs, or if margins are of other metrics."""
    task = build_task(grid.variants[0].recipe.task)
    entries = [entry for metrics in (grid.metrics, *(test.metrics or () for test in grid.tests)) for entry in metrics]
    if unnamed := [entry for entry in entries if "name" not in entry]:
        raise UserError("a metric needs a name", where="metrics", received=unnamed[0])
    for test in grid.tests:
        where = "metrics" if test.metrics is None else f"test.{test.name}.metrics"
        check_kind(grid.metrics_of(test), test.kind(task.writes), where, of_texts=task.reads_text)
    measures = measures_of(grid.metrics_of(), grid.own_metrics(), [test.name for test in grid.tests])
    check_margin(grid.config.margin, [*grid.metrics_of(), *(measure.metric for measure in measures)])


def check_tuned(recipe: Recipe, key: str) -> None:
    """Raise UserError if a recipe is inconsistent after a value of the tuned key was set in it."""
    new_schedule(recipe)
    if not key.startswith("optimizer."):  # does not affect the model
        check_recipe(recipe)


def _check_tuning(grid: Grid) -> None:
    """Raise UserError if two values lead to the same recipe, or if the tuning set is also reported."""
    tune, tuning_set = grid.config.tune, grid.tuning_set
    if tune is None or tuning_set is None:
        return
    if tune.key in (*FREE, *ENDS) or tune.key.split(".")[0] == "data":
        raise UserError("this key is not one to tune", where="tune.key", received=tune.key)
    for variant in grid.variants:
        with at_key(f"variants.{variant.name}"):
            runs = grid.tuning_runs(grid.groups_of(variant)[0])
            for run in runs:
                check_tuned(run.recipe, tune.key)
        for one, other in combinations(runs, 2):
            if one.seed == other.seed and one.name != other.name and one.recipe == other.recipe:
                what = "two of the values make the same recipe"
                raise UserError(what, where="tune.values", received=f"{one.value}, {other.value}")
        if tune.key == "optimizer.learning_rate":
            updates, warmup = runs[0].recipe.training.updates, runs[0].recipe.optimizer.warmup
            if updates is not None and updates <= warmup:
                within = f"short runs of {updates:,} updates are within optimizer.warmup {warmup:,}"
                warn(f"{variant.name}: {within}, and reach none of the learning rates that are tuned")
    tuned = {content(path): path for path in corpus_files(tuning_set.corpus)}
    for test in grid.tests:
        shared = [str(tuned[content(path)]) for path in corpus_files(test.corpus) if content(path) in tuned]
        if shared or test.corpus == tuning_set.corpus:
            what = f"the test set {test.name} reports this split, so that nothing can be tuned on it"
            raise UserError(what, where="tune.on", received=(shared or [name_of_corpus(test.corpus)])[0])


def _check_predict(grid: Grid) -> None:
    """Raise UserError if the task has no such option of prediction, or a variant's recipe does not allow it."""
    task = build_task(grid.variants[0].recipe.task)
    predictor = get_type_hints(type(task).predictor)["return"]
    if not hasattr(predictor, "Options"):
        return
    for name in NOT_OF_GRIDS:
        if name in grid.config.predict:
            raise UserError("a grid's test sets are decoded without this", where=f"predict.{name}")
    with at_key("predict"):
        checked = validated_options(predictor.Options, grid.config.predict)
    if not isinstance(checked, PredictOptions):
        return
    if checked.dictionary is not None:
        check_file(checked.dictionary, "predict.dictionary")
    for variant in grid.variants:
        with at_key(f"variants.{variant.name}: predict"):
            checked.search(variant.recipe.decoding)


def _check_run_names(grid: Grid) -> None:
    """Raise UserError if two runs have the same name, because they would share a folder."""
    tune = grid.config.tune
    groups = [group for variant in grid.variants for group in grid.groups_of(variant)]
    cells = [run for group in groups for run in grid.cells(group, tune and tune.values[0])]
    runs = [run for group in groups for run in grid.tuning_runs(group)]
    for where, planned in (("seeds or variants", cells), ("tune.values, tune.seeds or variants", runs)):
        names: dict[str, str] = {}
        for run in planned:
            if run.name.casefold() in names:
                what = "two cells of one name"
                raise UserError(what, where=where, received=f"{names[run.name.casefold()]}, {run.name}")
            names[run.name.casefold()] = run.name
