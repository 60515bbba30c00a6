"""One precision for runs that are compared."""

from collections.abc import Sequence
from pathlib import Path

from headway.recipe import Recipe
from headway.runs.run_folder import RunFolder
from headway.runs.training.run_arithmetic import AUTO, with_precision


class SharedPrecision:
    """The precision of runs that are compared, where their recipes leave it open: what the first to begin has chosen.

    If each measured for itself, the load of the machine at that moment would decide, and seeds of one variant would
    be rounded differently.

    Args:
        runs: the recipes and folders of all runs, made or not.
    """

    def __init__(self, runs: Sequence[tuple[Recipe, Path]]) -> None:
        self._folders = [RunFolder(folder) for recipe, folder in runs if is_open(recipe)]
        self._chosen: str | None = None

    def chosen(self) -> str | None:
        """The precision; None where recipes leave none open, or before a run has chosen it."""
        if self._chosen is None:
            known = (folder.read_manifest().get("precision") for folder in self._folders)
            self._chosen = next(filter(None, known), None)
        return self._chosen

    def given(self, recipe: Recipe) -> Recipe:
        """`recipe` with the precision that is known by now, where it leaves that open."""
        chosen = self.chosen()
        return recipe if chosen is None or not is_open(recipe) else with_precision(recipe, chosen)


def is_open(recipe: Recipe) -> bool:
    """Whether the run would choose its precision when it begins."""
    return recipe.training.precision == AUTO
