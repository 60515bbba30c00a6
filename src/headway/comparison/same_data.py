"""The data that the runs of a variant were trained on, which all of them share."""

import json
from collections.abc import Iterable
from pathlib import Path

from headway.errors import UserError
from headway.recipe import Recipe
from headway.runs.run_folder import RunFolder


def check_same_data(runs: Iterable[tuple[Path, Recipe]], allowed: str) -> None:
    """Raise UserError where the training data of a variant changed between two of its runs.

    Runs that are not complete notice by themselves when they go on.

    Args:
        runs: folders of the runs of one variant, with their recipes.
        allowed: what to do about it, for the error.
    """
    known: dict[str, tuple[Path, str]] = {}
    for path, recipe in runs:
        trained = RunFolder(path).read_manifest().get("data", {}).get("train")
        if trained is None:
            continue
        first, before = known.setdefault(_ground(recipe), (path, trained))
        if trained != before:
            what = f"this run was trained on other data than {first.parent.name}/{first.name}"
            raise UserError(what, where=str(path), allowed=allowed)


def _ground(recipe: Recipe) -> str:
    """All of a recipe that may decide what is read of its training data, and how."""
    return json.dumps(recipe.model_dump(mode="json", exclude={"training", "optimizer", "decoding"}), sort_keys=True)
