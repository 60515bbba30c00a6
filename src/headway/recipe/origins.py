"""Recipes of training that goes on from something: from a model of Hugging Face, or from a run.

What such a recipe leaves out is read from there, so that the copy in the run folder has everything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from headway.config import merge
from headway.errors import UserError
from headway.files import exists, first_existing
from headway.processing.marian_files import PREFIX, marian_folder, marian_section, marian_vocabulary, read_config
from headway.registry import import_paths

Tree = dict[str, Any]
SECTIONS = ("task", "text", "vocabulary", "model")  # those that a run hands on


def fill_from_origins(tree: Tree, folders: Sequence[Path], read: Callable[[Path], Tree]) -> None:
    """Put into a raw tree what it leaves to the run of `training.from`, or to the model of `model.from`.

    Args:
        tree: the recipe.
        folders: where relative paths are looked for, in this order.
        read: reads the raw tree of a recipe's file.

    Raises:
        UserError: no such run or model.
    """
    training, model = tree.get("training"), tree.get("model")
    if isinstance(training, dict) and training.get("from") is not None:
        folder = first_existing(Path(str(training["from"])), folders, "folder")
        training["from"] = str(folder)
        _fill_from_run(tree, folder, read)
    elif isinstance(model, dict) and model.get("from") is not None:
        _check_alone(tree, model)
        place = str(model["from"])
        if place.startswith(PREFIX):
            folder = first_existing(Path(place.removeprefix(PREFIX)), folders, "folder")
            model["from"] = place = f"{PREFIX}{folder}" if exists(folder, "folder") else place
        config = read_config(marian_folder(place))
        tree["model"] = merge(marian_section(config), model)
        tree.setdefault("vocabulary", marian_vocabulary(config))


def _check_alone(tree: Tree, model: Tree) -> None:
    """Raise UserError where a recipe wants something else than the model of `model.from`."""
    if model.get("kind", "transformer") != "transformer" or "preset" in model:
        what, received = "a model that begins from another is of its kind", model.get("preset", model.get("kind"))
        raise UserError(what, where="model.from", received=received, allowed="neither kind nor preset")
    vocabulary = tree.get("vocabulary")
    if vocabulary is not None and not (isinstance(vocabulary, dict) and vocabulary.get("kind") == "marian"):
        what, allowed = "the vocabulary comes with the model", "no vocabulary beside model.from"
        raise UserError(what, where="vocabulary", received=vocabulary, allowed=allowed)


def _fill_from_run(tree: Tree, run: Path, read: Callable[[Path], Tree]) -> None:
    if not exists(run / "recipe.yaml", "file"):
        raise UserError("there is no run to go on from", where="training.from", received=str(run))
    older = read(run / "recipe.yaml")
    added = {name: older[name] for name in SECTIONS if name in older and name not in tree}
    if code := import_paths(added) - import_paths(tree):
        raise UserError(
            "the run of training.from names code that is no part of headway", where="training.from",
            received=", ".join(sorted(code)), allowed="the same names in this recipe, where you trust that code",
        )  # fmt: skip
    tree.update(added)
