"""Grid files: read, changed by overrides, and built into a grid that was checked as a whole."""

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import ValidationError

from headway.comparison.cells import check_margin
from headway.comparison.grid import (
    ENDS,
    FREE,
    SEED,
    Grid,
    GridConfig,
    NamedCorpus,
    Variant,
    content,
    corpus_files,
    differ_in_nothing,
    name_of_corpus,
    shared_references,
)
from headway.config import explain, merge, validated_options
from headway.errors import UserError, nearest
from headway.files import first_existing
from headway.formats.corpus_config import parts, paths_resolved
from headway.formats.corpus_format import open_format
from headway.formats.lines import check_file
from headway.log import warn
from headway.metrics import METRICS, Metric, check_kind
from headway.models import StackedConfig, model_section
from headway.predictors.predict_options import PredictOptions
from headway.recipe import Recipe, apply_overrides, changed_keys, read_tree, recipe_of, set_key
from headway.runs.training.start import check_recipe, new_schedule
from headway.tasks import build_task

NAME = re.compile(r"[\w.+=-]+")
NOT_OF_GRIDS = ("capture", "prefixes")  # options of prediction for single inputs


@dataclass(frozen=True)
class _RawVariant:
    """A variant as it was read: the raw tree of its recipe, and the folders of that recipe and of the grid."""

    name: str
    tree: dict[str, Any]
    folders: tuple[Path, ...]

    def variant(self) -> Variant:
        """The variant, whose recipe may not fit together. Raises UserError."""
        with at_key(f"variants.{self.name}"):
            return Variant(self.name, recipe_of(copy.deepcopy(self.tree), self.folders))


def load_grid(path: Path, overrides: Sequence[str] = ()) -> Grid:
    """Read a grid file, apply `key.path=value` overrides and check all of it.

    An override whose first key is one of the grid changes the grid; any other changes all recipes.

    Args:
        path: the file; its relative paths of recipes begin at its folder. Those of corpora are looked for as those
            of a recipe, beside a variant's recipe and then beside this file.
        overrides: values are YAML.

    Raises:
        UserError: a file that cannot be read; a key, value or recipe that is not allowed; variants that do not differ;
            a tuning split that is also reported; two runs of one name.
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
    try:
        config = GridConfig.model_validate(tree)
    except ValidationError as error:
        raise UserError(explain(error, GridConfig)) from error
    _check_names(config)
    read = {name: _read(config, name, beside, recipe_changes) for name in config.variants}
    for one, other in combinations([raw.variant() for raw in read.values()], 2):
        if differ_in_nothing(one.recipe, other.recipe):
            what = f"this variant does not differ from {one.name}, but for what changes no result"
            raise UserError(what, where=f"variants.{other.name}")
    _match_variants(config, read)
    variants = [raw.variant() for raw in read.values()]
    for variant in variants:
        with at_key(f"variants.{variant.name}"):
            check_recipe(variant.recipe)
    task = variants[0].recipe.task
    for variant in variants[1:]:
        if variant.recipe.task != task:
            where = f"variants.{variant.name}"
            raise UserError(
                "variants of one task are compared", where=where, received=variant.recipe.task, allowed=task
            )
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
    short = {run.name: run.recipe for variant in variants for run in grid.tuning_runs(variant)}
    recipes = short or {variant.name: variant.recipe for variant in variants}
    written = shared_references({name: build_task(task).written(recipe) for name, recipe in recipes.items()})
    tests = tuple(replace(test, written=written) for test in tests)
    return replace(grid, tests=tests, tuning_set=tuning_set and replace(tuning_set, written=written))


def _check_names(config: GridConfig) -> None:
    for name in config.variants:
        if not NAME.fullmatch(name):
            allowed = "letters, digits and . _ + = -"
            raise UserError(
                "a variant's name is a part of a file's name", where="variants", received=name, allowed=allowed
            )
    names = list(config.variants)
    if len(names) < 2:
        raise UserError("a comparison needs two variants or more", where="variants", received=", ".join(names))
    match = config.match_parameters
    for where, meant in (("baseline", config.baseline), ("match_parameters.to", match.to if match else None)):
        if isinstance(meant, str) and meant not in names:
            raise UserError(f"no such variant{nearest(meant, names)}", where=where, received=meant, allowed=names)


def _read(config: GridConfig, name: str, beside: Path, changes: Sequence[str]) -> _RawVariant:
    """A variant's recipe, with all changes. Raises UserError."""
    own = dict(config.variants[name])
    path, where = own.pop("recipe", config.recipe), f"variants.{name}"
    if path is None:
        raise UserError(
            "a variant begins from a recipe", where=where, allowed=f"recipe, here or above, or {name}: FILE"
        )
    if not isinstance(path, str | Path):
        raise UserError("a recipe is the path of a file", where=f"{where}.recipe", received=path)
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
    """Raise UserError where a variant, or a change to all, sets what is the grid's to set: the seed, or a tuned key."""
    asked: dict[str, Any] = {}
    apply_overrides(asked, changes)
    for given in (config.overrides, own, asked):
        if _sets(given, SEED):
            raise UserError("the seeds of a comparison are the same for all variants", where=SEED, allowed="seeds")
        if config.tune is not None and _sets(given, config.tune.key):
            raise UserError("this key is tuned, so that nothing else can set it", where=config.tune.key)


def _sets(changes: Mapping[str, Any], key: str) -> bool:
    """Whether changes, whose keys may be paths into sections, set a key."""
    for path, value in changes.items():
        rest = key.removeprefix(f"{path}.")
        if path == key or (rest != key and isinstance(value, Mapping) and _sets(value, rest)):
            return True
    return False


def _match_variants(config: GridConfig, read: Mapping[str, _RawVariant]) -> None:
    """Ask in the recipes of all variants but one for the number of parameters of that one.

    A variant that says itself what is to be sized keeps that.
    """
    match = config.match_parameters
    if match is None:
        return
    to: str | int = next(iter(read)) if match.to is None else match.to
    goal: Any = to
    if isinstance(to, str):
        with at_key(f"variants.{to}"):
            goal = model_section(_sized(read[to])).model_dump(mode="json")
    for name, variant in read.items():
        if name != to:
            own = _sized(variant).get("match_parameters")
            value = {"to": goal, "by": own["by"] if own else match.by, "within": match.within}
            set_key(variant.tree, "model.match_parameters", value, f"variants.{name}")


def _sized(raw: _RawVariant) -> Any:
    """The model of a variant, which can be sized. Raises UserError where it cannot."""
    model = raw.variant().recipe.model
    if not isinstance(model, StackedConfig):
        what = "a model of this kind cannot be sized to a number of parameters"
        raise UserError(what, where=f"variants.{raw.name}: match_parameters", received=model.kind)
    return model.model_dump(mode="json")


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


def _tuning_set(config: GridConfig, variants: Sequence[Variant], resolve: Any) -> NamedCorpus | None:
    """The corpus that short runs are compared on. Raises UserError where there is nothing."""
    if config.tune is None:
        return None
    if config.tune.on is not None:
        return NamedCorpus("tuning", paths_resolved(config.tune.on, resolve), key="tune.on")
    for variant in variants:
        if variant.recipe.data.dev is None:
            what = "tuning compares short runs on a corpus of its own"
            raise UserError(what, where="tune.on", allowed="a corpus, or data.dev in every recipe")
    dev = variants[0].recipe.data.dev
    assert dev is not None
    return NamedCorpus("tuning", dev, key="data.dev")


@contextmanager
def at_key(where: str) -> Iterator[None]:
    """Put the place of a variant or value before the errors of its recipe."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{where}: {error.args[0]}") from error


def check_corpora(grid: Grid) -> None:
    """Raise UserError where a file that variants are trained on, or evaluated on meanwhile, is missing or empty."""
    for variant in grid.variants:
        with at_key(f"variants.{variant.name}"):
            for name, corpus in variant.recipe.data.corpora().items():
                for where, part in parts(corpus, name):
                    open_format(part, where).check()


def _check_metrics(grid: Grid) -> None:
    """Raise UserError for metrics that are not there, the same twice or of other outputs, or margins of others."""
    scored, writes = list[Metric](), build_task(grid.variants[0].recipe.task).writes
    for where, test in (("metrics", None), *((f"test.{test.name}.metrics", test) for test in grid.tests)):
        for entry in grid.metrics if test is None else test.metrics or ():
            if "name" not in entry:
                raise UserError("a metric needs a name", where=where, received=entry, allowed=METRICS)
        metrics = grid.metrics_of(test)
        if not metrics:
            raise UserError("a comparison needs a metric", where=where, allowed=METRICS)
        names = [metric.label for metric in metrics]
        scored += metrics
        if test is not None:
            check_kind(metrics, test.kind(writes), "metrics" if test.metrics is None else where)
        for name in names:
            if names.count(name) > 1:
                raise UserError("two metrics of one name", where=where, received=name)
    check_margin(grid.config.margin, scored)


def _check_tuning(grid: Grid) -> None:
    """Raise UserError for values that make the same recipe, or a split that is also reported."""
    tune, tuning_set = grid.config.tune, grid.tuning_set
    if tune is None or tuning_set is None:
        return
    if tune.key in (*FREE, *ENDS) or tune.key.split(".")[0] == "data":
        raise UserError("this key is not one to tune", where="tune.key", received=tune.key)
    for variant in grid.variants:
        with at_key(f"variants.{variant.name}"):
            runs = grid.tuning_runs(variant)
            for run in runs:
                new_schedule(run.recipe)
                if not tune.key.startswith("optimizer."):  # which has nothing to do with the model
                    check_recipe(run.recipe)
        for one, other in combinations(runs, 2):
            if one.seed == other.seed and one.name != other.name and not changed_keys(one.recipe, other.recipe):
                what = "two of the values make the same recipe"
                raise UserError(what, where="tune.values", received=f"{one.value}, {other.value}")
        if tune.key == "optimizer.learning_rate":
            updates, warmup = runs[0].recipe.training.updates, runs[0].recipe.optimizer.warmup
            if updates is not None and updates <= warmup:
                within = f"tune.updates {updates:,} are within optimizer.warmup {warmup:,}"
                none = "so that the short runs reach none of the learning rates that are tuned"
                warn(f"{variant.name}: {within}, {none}")
    tuned = {content(path): path for path in corpus_files(tuning_set.corpus)}
    for test in grid.tests:
        for path in corpus_files(test.corpus):
            if content(path) in tuned:
                raise UserError(
                    f"the test set {test.name} reports this split, so that nothing can be tuned on it",
                    where="tune.on", received=str(tuned[content(path)]),
                )  # fmt: skip
        if test.corpus == tuning_set.corpus:
            what = f"the test set {test.name} reports this corpus, so that nothing can be tuned on it"
            raise UserError(what, where="tune.on", received=name_of_corpus(test.corpus))


def _check_predict(grid: Grid) -> None:
    """Raise UserError for options of prediction that the task does not have, or that a variant's recipe cannot have."""
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
    """Raise UserError for two runs of one name, which would share a folder."""
    tune = grid.config.tune
    cells = [run for variant in grid.variants for run in grid.cells(variant, tune.values[0] if tune else None)]
    runs = [run for variant in grid.variants for run in grid.tuning_runs(variant)]
    for where, planned in (("seeds or variants", cells), ("tune.values, tune.seeds or variants", runs)):
        names: dict[str, str] = {}
        for run in planned:
            if run.name.casefold() in names:
                what = "two cells of one name"
                raise UserError(what, where=where, received=f"{names[run.name.casefold()]}, {run.name}")
            names[run.name.casefold()] = run.name
