"""The grid of a comparison: variants by seeds, tuning and test sets, read and checked as a whole before any work."""

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import ValidationError

from headway.comparison.grid_config import GridConfig
from headway.config import explain, merge, validated_options
from headway.errors import UserError, nearest
from headway.files import exists, sha256
from headway.formats.corpus_config import AnyCorpus, parts, paths_resolved
from headway.formats.corpus_format import content_hash
from headway.metrics import METRICS, Metric, build_metric
from headway.models import StackedConfig, model_section
from headway.recipe import Recipe, apply_override, changed_keys, parse_recipe, read_tree, recipe_of, set_key
from headway.runs.training.preparation import check_recipe, new_schedule
from headway.tasks import build_task

SEED = "training.seed"
NAME = re.compile(r"[\w.+=-]+")


@dataclass(frozen=True)
class NamedCorpus:
    """A corpus to score outputs on, with absolute paths; see `EvaluationSetConfig`."""

    name: str
    corpus: AnyCorpus
    groups: Path | None = None
    alignments: Path | None = None
    evenness: bool = False
    metrics: tuple[dict[str, Any], ...] | None = None

    def fingerprint(self) -> str:
        """A hash of the contents of all files, of how they are read, and of what is asked of a model."""
        files = [*corpus_files(self.corpus), *(path for path in (self.groups, self.alignments) if path)]
        options = [part.model_dump_json() for _, part in parts(self.corpus, self.name)]
        return content_hash([self.name, *options, *map(content, files), *(["evenness"] if self.evenness else [])])


@dataclass(frozen=True)
class Variant:
    """One variant: its name and its recipe, whose seed and tuned key are still to be set."""

    name: str
    recipe: Recipe


@dataclass(frozen=True)
class PlannedRun:
    """A run of the grid: a cell, or a short run that tunes one.

    Attributes:
        name: of its folder, which no other run of its kind has.
        variant: the name of the variant.
        seed: of training.
        recipe: what is trained.
        value: the value of the tuned key; None where nothing is tuned.
    """

    name: str
    variant: str
    seed: int
    recipe: Recipe
    value: Any = None


@dataclass(frozen=True)
class Grid:
    """A comparison that can be run: everything in it was checked.

    Attributes:
        config: the grid as it was given.
        variants: in the order of the file.
        tests: the reported sets.
        tuning_set: what short runs are compared on; None without tuning.
        metrics: the entries of the metrics of all sets that have none of their own.
    """

    config: GridConfig
    variants: tuple[Variant, ...]
    tests: tuple[NamedCorpus, ...]
    tuning_set: NamedCorpus | None
    metrics: tuple[dict[str, Any], ...]

    def metrics_of(self, test: NamedCorpus | None = None) -> list[Metric]:
        """The metrics of a set, in their order; without one those of all sets that have none of their own."""
        own = None if test is None else test.metrics
        return [build_metric(**entry) for entry in (self.metrics if own is None else own)]

    def tuning_runs(self, variant: Variant) -> list[PlannedRun]:
        """The short runs of a variant, one a value; none without tuning."""
        tune, seed = self.config.tune, self.config.seeds[0]
        if tune is None:
            return []
        short = {"training.updates": tune.updates, "training.epochs": None, "training.minutes": None, SEED: seed}
        return [
            PlannedRun(
                f"{variant.name}-{slug(value)}", variant.name, seed,
                changed(variant.recipe, short | {tune.key: value}), value,
            )
            for value in tune.values
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


def changed(recipe: Recipe, changes: Mapping[str, Any]) -> Recipe:
    """A recipe with other values at some key paths. Raises UserError where these are not allowed."""
    tree = recipe.model_dump(mode="json")
    for key, value in changes.items():
        set_key(tree, key, copy.deepcopy(value), key)
    return parse_recipe(tree)


def load_grid(path: Path, overrides: Sequence[str] = ()) -> Grid:
    """Read a grid file, apply `key.path=value` overrides and check all of it.

    An override whose first key is one of the grid changes the grid; any other changes all recipes.

    Args:
        path: the file; its relative paths of recipes begin at its folder, those of corpora as in a recipe.
        overrides: values are YAML.

    Raises:
        UserError: a file that cannot be read; a key, value or recipe that is not allowed; variants that do not differ;
            a tuning split that is also reported; two runs of one name.
    """
    return grid_of(read_tree(path), path.parent, overrides)


def grid_of(tree: dict[str, Any], beside: Path, overrides: Sequence[str] = ()) -> Grid:
    """The grid of a raw tree; see `load_grid`. Relative paths of recipes begin at the folder `beside`."""
    tree = copy.deepcopy(tree)
    recipe_changes = []
    for override in overrides:
        first = override.partition("=")[0].split(".")[0]
        if first in Recipe.model_fields:
            recipe_changes.append(override)
        elif first in GridConfig.model_fields:
            apply_override(tree, override)
        else:
            names = [*GridConfig.model_fields, *Recipe.model_fields]
            raise UserError(f"unknown key{nearest(first, names)}", where=override, allowed=names)
    try:
        config = GridConfig.model_validate(tree)
    except ValidationError as error:
        raise UserError(explain(error, GridConfig)) from error
    return _checked(config, beside, recipe_changes)


def _checked(config: GridConfig, beside: Path, changes: Sequence[str]) -> Grid:
    """The grid of a config. Raises UserError as `load_grid`."""
    _check_names(config)
    trees = {name: _tree_of(config, name, beside, changes) for name in config.variants}
    _match_variants(config, trees, beside)
    variants = [_variant(name, tree, beside) for name, tree in trees.items()]
    task = variants[0].recipe.task
    for variant in variants[1:]:
        if variant.recipe.task != task:
            where = f"variants.{variant.name}"
            raise UserError(
                "variants of one task are compared", where=where, received=variant.recipe.task, allowed=task
            )
    _check_differences(variants)
    folder = next(iter(trees.values())).get("data", {}).get("folder")
    resolve = _resolver([Path(folder)] if folder else [Path(), beside])
    tests = tuple(_named_sets(config, resolve))
    metrics = build_task(task).metrics if config.metrics is None else config.metrics
    tuning_set = _tuning_set(config, variants, resolve)
    grid = Grid(config, tuple(variants), tests, tuning_set, tuple(metrics))
    _check_metrics(grid)
    _check_tuning(grid)
    _check_predict(grid)
    _check_run_names(grid)
    return grid


def _check_names(config: GridConfig) -> None:
    for name in config.variants:
        if not NAME.fullmatch(name):
            allowed = "letters, digits and . _ + = -"
            raise UserError(
                "a variant's name is a part of a file's name", where="variants", received=name, allowed=allowed
            )
    names = list(config.variants)
    match = config.match_parameters
    for where, meant in (("baseline", config.baseline), ("match_parameters.to", match.to if match else None)):
        if isinstance(meant, str) and meant not in names:
            raise UserError(f"no such variant{nearest(meant, names)}", where=where, received=meant, allowed=names)


@contextmanager
def _at(where: str) -> Iterator[None]:
    """Put the place of a variant or value before the errors of its recipe."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{where}: {error.args[0]}") from error


def _tree_of(config: GridConfig, name: str, beside: Path, changes: Sequence[str]) -> dict[str, Any]:
    """The raw tree of a variant's recipe, with all changes. Raises UserError."""
    own = dict(config.variants[name])
    path, where = own.pop("recipe", config.recipe), f"variants.{name}"
    if path is None:
        raise UserError(
            "a variant begins from a recipe", where=where, allowed=f"recipe, here or above, or {name}: FILE"
        )
    with _at(where):
        tree = copy.deepcopy(read_tree(beside / path))
        for key, value in [*config.overrides.items(), *own.items()]:
            if key == SEED and key in own:
                raise UserError("the seeds of a comparison are the same for all variants", where=key, allowed="seeds")
            section = tree.get(key)
            if isinstance(value, dict) and isinstance(section, dict) and key in Recipe.model_fields:
                tree[key] = merge(section, copy.deepcopy(value))
            else:
                set_key(tree, key, copy.deepcopy(value), key)
        for change in changes:
            apply_override(tree, change)
        set_key(tree, SEED, config.seeds[0], SEED)
        if config.tune is not None and config.tune.key in own:
            raise UserError("this key is tuned, so that a variant cannot set it", where=config.tune.key)
    return tree


def _match_variants(config: GridConfig, trees: Mapping[str, dict[str, Any]], beside: Path) -> None:
    """Ask in the recipes of all variants but one for the number of parameters of that one.

    A variant that says itself what is to be sized keeps that.
    """
    match = config.match_parameters
    if match is None:
        return
    to: str | int = next(iter(trees)) if match.to is None else match.to
    goal: Any = to
    if isinstance(to, str):
        with _at(f"variants.{to}"):
            goal = model_section(_sized(trees[to], f"variants.{to}", beside)).model_dump(mode="json")
    for name, tree in trees.items():
        if name != to:
            own = _sized(tree, f"variants.{name}", beside).get("match_parameters")
            value = {"to": goal, "by": own["by"] if own else match.by, "within": match.within}
            set_key(tree, "model.match_parameters", value, f"variants.{name}")


def _sized(tree: dict[str, Any], where: str, beside: Path) -> Any:
    """The model of a variant, which can be sized. Raises UserError where it cannot."""
    with _at(where):
        model = recipe_of(copy.deepcopy(tree), beside).model
    if not isinstance(model, StackedConfig):
        what = "a model of this kind cannot be sized to a number of parameters"
        raise UserError(what, where=f"{where}: match_parameters", received=model.kind)
    return model.model_dump(mode="json")


def _variant(name: str, tree: dict[str, Any], beside: Path) -> Variant:
    with _at(f"variants.{name}"):
        recipe = recipe_of(copy.deepcopy(tree), beside)
        check_recipe(recipe)
    return Variant(name, recipe)


def _check_differences(variants: Sequence[Variant]) -> None:
    for one, other in combinations(variants, 2):
        if not changed_keys(one.recipe, other.recipe):
            raise UserError(f"this variant does not differ from {one.name}", where=f"variants.{other.name}")


def _resolver(folders: Sequence[Path]) -> Any:
    def resolve(path: Path) -> Path:
        existing = (folder / path for folder in folders if exists(folder / path))
        return next(existing, folders[0] / path).absolute()

    return resolve


def _named_sets(config: GridConfig, resolve: Any) -> Iterator[NamedCorpus]:
    """The reported sets, each with a name of its own. Raises UserError."""
    names = set()
    for entry in config.test:
        corpus = paths_resolved(entry.corpus, resolve)
        name = entry.name or name_of_corpus(corpus)
        if name in names:
            allowed = "test: {NAME: CORPUS, ...}"
            raise UserError("two test sets of one name", where="test", received=name, allowed=allowed)
        names.add(name)
        groups, alignments = (path and resolve(path) for path in (entry.groups, entry.alignments))
        yield NamedCorpus(name, corpus, groups, alignments, entry.evenness, entry.own_metrics())


def name_of_corpus(corpus: AnyCorpus) -> str:
    """A name for a corpus, after its first file."""
    path = next(iter(corpus_files(corpus)), None)
    return "test" if path is None else path.name.split(".")[0]


def corpus_files(corpus: AnyCorpus) -> Iterator[Path]:
    """The files that a corpus names."""
    for _, part in parts(corpus, "test"):
        for _, value in part:
            yield from (path for path in (value if isinstance(value, tuple) else (value,)) if isinstance(path, Path))


def _tuning_set(config: GridConfig, variants: Sequence[Variant], resolve: Any) -> NamedCorpus | None:
    """The corpus that short runs are compared on. Raises UserError where there is nothing."""
    if config.tune is None:
        return None
    if config.tune.on is not None:
        return NamedCorpus("tuning", paths_resolved(config.tune.on, resolve))
    for variant in variants:
        if variant.recipe.data.dev is None:
            what = "tuning compares short runs on a corpus of its own"
            raise UserError(what, where="tune.on", allowed="a corpus, or data.dev in every recipe")
    dev = variants[0].recipe.data.dev
    assert dev is not None
    return NamedCorpus("tuning", dev)


def _check_metrics(grid: Grid) -> None:
    """Raise UserError for metrics that are not there or the same twice, or margins of others."""
    known = set[str]()
    for where, test in (("metrics", None), *((f"test.{test.name}.metrics", test) for test in grid.tests)):
        for entry in grid.metrics if test is None else test.metrics or ():
            if "name" not in entry:
                raise UserError("a metric needs a name", where=where, received=entry, allowed=METRICS)
        metrics = grid.metrics_of(test)
        names = [metric.label for metric in metrics]
        known |= {*names, *(metric.name for metric in metrics)}
        for name in names:
            if names.count(name) > 1:
                raise UserError("two metrics of one name", where=where, received=name)
    for name in grid.config.margin:
        if name not in known:
            raise UserError(f"no such metric here{nearest(name, known)}", where=f"margin.{name}", allowed=sorted(known))


def _check_tuning(grid: Grid) -> None:
    """Raise UserError for values that make the same recipe, or a split that is also reported."""
    tune, tuning_set = grid.config.tune, grid.tuning_set
    if tune is None or tuning_set is None:
        return
    if tune.key == SEED or tune.key.split(".")[0] == "data":
        raise UserError("this key is not one to tune", where="tune.key", received=tune.key)
    for variant in grid.variants:
        with _at(f"variants.{variant.name}"):
            runs = grid.tuning_runs(variant)
            for run in runs:
                new_schedule(run.recipe)
                if not tune.key.startswith("optimizer."):  # which has nothing to do with the model
                    check_recipe(run.recipe)
        for one, other in combinations(runs, 2):
            if not changed_keys(one.recipe, other.recipe):
                what = "two of the values make the same recipe"
                raise UserError(what, where="tune.values", received=f"{one.value}, {other.value}")
    tuned = {content(path): path for path in corpus_files(tuning_set.corpus)}
    for test in grid.tests:
        for path in corpus_files(test.corpus):
            if content(path) in tuned:
                raise UserError(
                    f"the test set {test.name} reports this split, so that nothing can be tuned on it",
                    where="tune.on", received=str(tuned[content(path)]),
                )  # fmt: skip


def content(path: Path) -> str:
    """A hash of a file's content; the path of one that is not there."""
    return sha256(path) if exists(path, "file") else str(path)


def _check_predict(grid: Grid) -> None:
    """Raise UserError for options of prediction that the task does not have."""
    task = build_task(grid.variants[0].recipe.task)
    predictor = get_type_hints(type(task).predictor)["return"]
    if hasattr(predictor, "Options"):
        with _at("predict"):
            validated_options(predictor.Options, grid.config.predict)


def _check_run_names(grid: Grid) -> None:
    """Raise UserError for two runs of one name, which would share a folder."""
    cells = [run for variant in grid.variants for run in grid.cells(variant, _first_value(grid))]
    runs = [run for variant in grid.variants for run in grid.tuning_runs(variant)]
    for where, planned in (("seeds or variants", cells), ("tune.values or variants", runs)):
        names: dict[str, str] = {}
        for run in planned:
            if run.name.casefold() in names:
                what = "two cells of one name"
                raise UserError(what, where=where, received=f"{names[run.name.casefold()]}, {run.name}")
            names[run.name.casefold()] = run.name


def _first_value(grid: Grid) -> Any:
    return None if grid.config.tune is None else grid.config.tune.values[0]
