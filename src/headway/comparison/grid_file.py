"""Grid files: read, changed by overrides, and built into a grid of checked recipes."""

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from headway.comparison.grid import FREE, SEED, Grid, NamedCorpus, Variant, name_of_corpus, shared_references
from headway.comparison.grid_checks import at_key, check_grid
from headway.comparison.grid_config import GridConfig
from headway.config import explain, merge
from headway.errors import UserError, nearest
from headway.files import first_existing
from headway.formats.corpus_config import paths_resolved
from headway.models import StackedConfig, model_section
from headway.recipe import Recipe, apply_overrides, changed_keys, read_tree, recipe_of, set_key
from headway.runs.training.preparation import check_recipe
from headway.tasks import build_task

NAME = re.compile(r"[\w.+=-]+")


@dataclass(frozen=True)
class _RawVariant:
    """A variant as it was read: the raw tree of its recipe, and the folders of that recipe and of the grid."""

    tree: dict[str, Any]
    folders: tuple[Path, ...]

    def recipe(self) -> Recipe:
        """The recipe. Raises UserError."""
        return recipe_of(copy.deepcopy(self.tree), self.folders)


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
    return _checked(config, beside, recipe_changes)


def _checked(config: GridConfig, beside: Path, changes: Sequence[str]) -> Grid:
    """The grid of a config. Raises UserError as `load_grid`."""
    _check_names(config)
    read = {name: _read(config, name, beside, changes) for name in config.variants}
    _check_differences([_unchecked(name, variant) for name, variant in read.items()])
    _match_variants(config, read)
    variants = [_variant(name, variant) for name, variant in read.items()]
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
    check_grid(grid)
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
    return _RawVariant(tree, ((beside / path).parent, beside))


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
            goal = model_section(_sized(read[to], f"variants.{to}")).model_dump(mode="json")
    for name, variant in read.items():
        if name != to:
            own = _sized(variant, f"variants.{name}").get("match_parameters")
            value = {"to": goal, "by": own["by"] if own else match.by, "within": match.within}
            set_key(variant.tree, "model.match_parameters", value, f"variants.{name}")


def _sized(variant: _RawVariant, where: str) -> Any:
    """The model of a variant, which can be sized. Raises UserError where it cannot."""
    with at_key(where):
        model = variant.recipe().model
    if not isinstance(model, StackedConfig):
        what = "a model of this kind cannot be sized to a number of parameters"
        raise UserError(what, where=f"{where}: match_parameters", received=model.kind)
    return model.model_dump(mode="json")


def _unchecked(name: str, read: _RawVariant) -> Variant:
    with at_key(f"variants.{name}"):
        return Variant(name, read.recipe())


def _variant(name: str, read: _RawVariant) -> Variant:
    variant = _unchecked(name, read)
    with at_key(f"variants.{name}"):
        check_recipe(variant.recipe)
    return variant


def _check_differences(variants: Sequence[Variant]) -> None:
    for one, other in combinations(variants, 2):
        if all(key in FREE for key in changed_keys(one.recipe, other.recipe)):
            what = f"this variant does not differ from {one.name}, but for what changes no result"
            raise UserError(what, where=f"variants.{other.name}")


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
