"""The run that training goes on from: its vocabulary and its weights, with new data and a new schedule."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Any

from headway.errors import UserError
from headway.models import Model
from headway.recipe import Recipe, changed_keys
from headway.runs.migration import FORMAT, todays_weights
from headway.runs.run_folder import RunFolder, load_weights, model_weights, trained_weights
from headway.storage import keep_folder
from headway.tasks import build_task

KEPT = ("task", "text", "vocabulary")  # sections that the run's processors were made by


def check_origin(recipe: Recipe) -> None:
    """Find out, before anything is written, whether training can begin where the recipe says.

    Raises:
        UserError: no such run or model, weights of another shape, or a vocabulary that is not theirs.
    """
    if recipe.training.from_ is None:
        build_task(recipe.task).check_origin(recipe)
        return
    _check_processors(recipe, recipe.training.from_)
    folder = RunFolder(recipe.training.from_)
    task = build_task(recipe.task)
    model = task.model(recipe, task.processors(folder.vocabulary), initial=False)
    fill_from_run(model, recipe.training.from_)


def _check_processors(recipe: Recipe, run: Path) -> None:
    older = RunFolder(run).read_recipe()
    changes = {key: values for key, values in changed_keys(older, recipe).items() if key.partition(".")[0] in KEPT}
    if changes:
        shown = "; ".join(f"{key}: {old!r} -> {new!r}" for key, (old, new) in changes.items())
        raise UserError(
            f"the run of training.from has another vocabulary ({shown})", where="training.from", received=str(run),
            allowed="the run's own text and vocabulary, which stand in its recipe and need not be given; for another "
            "vocabulary train anew, without training.from",
        )  # fmt: skip


def take_processors(recipe: Recipe, folder: RunFolder) -> None:
    """Copy the vocabulary of the run that training goes on from, where there is one and it has not been copied yet."""
    if recipe.training.from_ is None or folder.vocabulary.is_dir():
        return
    older = RunFolder(recipe.training.from_).vocabulary
    keep_folder(folder.vocabulary, partial(_copy, older))


def _copy(older: Path, folder: Path) -> None:
    shutil.copytree(older, folder, dirs_exist_ok=True)


def fill_from_run(model: Model[Any], run: Path) -> None:
    """Give a model the final weights of a run. Raises UserError where these are of another shape, or not there yet."""
    folder = RunFolder(run)
    weights = todays_weights(trained_weights(folder, None), folder.read_manifest().get("format", FORMAT))
    tensors = model_weights(model)
    for name, tensor in tensors.items():
        if name not in weights or weights[name].shape != tensor.shape:
            has = f"{tuple(weights[name].shape)}" if name in weights else "nothing"
            raise UserError(
                "the run of training.from has a model of another shape", where="training.from",
                received=f"{name}: {has} there, {tuple(tensor.shape)} here",
                allowed="the run's own model section, which need not be given; dropout may change",
            )  # fmt: skip
    load_weights(model, weights, str(folder.weights))


def provenance(recipe: Recipe) -> dict[str, Any]:
    """The entry of the manifest on where training began; nothing where it began with random weights."""
    if recipe.training.from_ is not None:
        manifest = RunFolder(recipe.training.from_).read_manifest()
        return {"from": {"run": str(recipe.training.from_), "model_sha256": manifest.get("model_sha256")}}
    return {} if recipe.model.from_ is None else {"from": {"model": recipe.model.from_}}
