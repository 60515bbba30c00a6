"""The data that the runs of a grid were trained on, which all seeds and short runs of a variant share."""

import json
from collections.abc import Sequence
from pathlib import Path

from headway.comparison.grid_state import CellState, VariantState
from headway.errors import UserError, option
from headway.runs.run_folder import RunFolder


def check_same_data(states: Sequence[VariantState]) -> None:
    """Raise UserError where the training data of a variant changed between two of its runs.

    Runs that are not complete notice by themselves when they go on.
    """
    for state in states:
        known: dict[str, tuple[Path, str]] = {}
        for run in state.runs:
            path = run.job.run
            trained = RunFolder(path).read_manifest().get("data", {}).get("train")
            if trained is None:
                continue
            first, before = known.setdefault(_ground(run), (path, trained))
            if trained != before:
                raise UserError(
                    f"this run was trained on other data than {first.parent.name}/{first.name}",
                    where=str(path), allowed=f"runs of one training set: remove one of the two, or {option('output')}",
                )  # fmt: skip


def _ground(run: CellState) -> str:
    """All of a recipe that may decide what is read of its training data, and how."""
    return json.dumps(run.job.recipe.model_dump(mode="json", exclude={"training", "optimizer"}), sort_keys=True)
