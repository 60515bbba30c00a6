"""One precision for runs that are compared."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from headway.recipe import Recipe
from headway.registry import foreign_code, import_paths
from headway.runs.run_folder import RunFolder
from headway.runs.training.run_arithmetic import AUTO, shared_precision, with_precision


class SharedPrecision:
    """The precision of runs that are compared, where their recipes leave it open: that of runs which are there, else
    what suits all of them here.

    If each chose for itself, models of different sizes would be rounded differently.

    Args:
        runs: the recipes and folders of all runs, made or not.
    """

    def __init__(self, runs: Sequence[tuple[Recipe, Path]]) -> None:
        self._open = [(recipe, RunFolder(folder)) for recipe, folder in runs if recipe.training.precision == AUTO]

    @cached_property
    def _chosen(self) -> str:
        known = next(filter(None, (folder.read_manifest().get("precision") for _, folder in self._open)), None)
        recipes = [recipe for recipe, _ in self._open]
        with foreign_code(any(import_paths(recipe.model_dump(mode="json")) for recipe in recipes)):
            return known or shared_precision(recipes)

    def given(self, recipe: Recipe) -> Recipe:
        """`recipe` with a precision; measures where no run has one yet."""
        return with_precision(recipe, self._chosen) if recipe.training.precision == AUTO else recipe
