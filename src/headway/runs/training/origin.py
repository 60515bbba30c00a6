"""The run that training goes on from: its vocabulary and its weights, with new data and a new schedule."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headway.errors import UserError
from headway.models import Model
from headway.processing.processor import Processors
from headway.processing.text.extension import WHERE as EXTENSION
from headway.processing.text.extension import old_parts
from headway.processing.text.text_processor import TextProcessor
from headway.recipe import Recipe, changed_keys
from headway.runs.run_folder import RunFolder, load_weights, model_weights, trained_weights
from headway.storage import keep_folder
from headway.tasks import build_task
from headway.tensors.batch import SPECIALS
from headway.tensors.low_rank import adapt

KEPT = ("task", "text", "vocabulary")  # sections that the run's processors were made by


def check_origin(recipe: Recipe) -> None:
    """Find out, before anything is written, whether training can begin where the recipe says.

    Raises:
        UserError: no such run or model, weights of another shape, or a vocabulary that is not theirs.
    """
    if recipe.training.from_ is None:
        beginning = build_task(recipe.task).check_origin(recipe)
        if beginning is not None:
            add_low_rank(beginning, recipe)
        elif recipe.training.lora is not None:
            what, allowed = "small changes are learned of trained weights", "training.from, or model.from"
            raise UserError(what, where="training.lora", received="a model that begins at random", allowed=allowed)
        return
    _check_processors(recipe, recipe.training.from_)
    folder = RunFolder(recipe.training.from_)
    task = build_task(recipe.task)
    processors = task.processors(folder.vocabulary)
    if recipe.training.extend_vocabulary is not None:
        task.check_extension(recipe, processors)
    model = task.model(recipe, processors, initial=False)
    fill_from_run(model, recipe, processors)
    add_low_rank(model, recipe)


def add_low_rank(model: Model[Any], recipe: Recipe) -> None:
    """Freeze a model and give it the changes of `training.lora`, if there are any. Raises UserError."""
    config = recipe.training.lora
    if config is None:
        return
    try:
        adapt(model, config.rank, config.alpha, config.dropout, config.linears)
    except ValueError as error:
        raise UserError(str(error), where="training.lora.linears", received=", ".join(config.linears)) from error


def _check_processors(recipe: Recipe, run: Path) -> None:
    older = RunFolder(run).read_recipe()
    changes = {key: values for key, values in changed_keys(older, recipe).items() if key.partition(".")[0] in KEPT}
    if changes:
        shown = "; ".join(f"{key}: {old!r} -> {new!r}" for key, (old, new) in changes.items())
        raise UserError(
            f"the run of training.from has another vocabulary ({shown})", where="training.from", received=str(run),
            allowed="the run's own text and vocabulary, which stand in its recipe and need not be given; "
            f"{EXTENSION}: NUMBER adds tokens of the new data; for another one train anew, without training.from",
        )  # fmt: skip


def take_processors(recipe: Recipe, folder: RunFolder) -> None:
    """Copy the vocabulary of the run that training goes on from, or extend it, where that has not been done yet."""
    if recipe.training.from_ is None or folder.vocabulary.is_dir():
        return
    older = RunFolder(recipe.training.from_).vocabulary
    if recipe.training.extend_vocabulary is None:
        keep_folder(folder.vocabulary, partial(_copy, older))
        return
    build_task(recipe.task).extend(recipe, older, folder.vocabulary)


def _copy(older: Path, folder: Path) -> None:
    shutil.copytree(older, folder, dirs_exist_ok=True)


def fill_from_run(model: Model[Any], recipe: Recipe, processors: Processors) -> None:
    """Give a model the final weights of the run that training goes on from; rows of new tokens begin as `grown` says.

    Args:
        model: of these processors.
        recipe: it names the run.
        processors: the run's own, or these with further tokens.

    Raises:
        UserError: weights of another shape, or a run that has none yet.
    """
    run = recipe.training.from_
    assert run is not None
    folder = RunFolder(run)
    weights = trained_weights(folder, None)
    parts = _parts_of_new_tokens(build_task(recipe.task).processors(folder.vocabulary), processors)
    tensors = model_weights(model)
    for name, tensor in tensors.items():
        if name in weights:
            weights[name] = grown(weights[name], parts[0 if name.startswith("source_") else 1], tensor.shape)
        if name not in weights or weights[name].shape != tensor.shape:
            has = f"{tuple(weights[name].shape)}" if name in weights else "nothing"
            raise UserError(
                "the run of training.from has a model of another shape", where="training.from",
                received=f"{name}: {has} there, {tuple(tensor.shape)} here",
                allowed="the run's own model section, which need not be given; dropout may change",
            )  # fmt: skip
    load_weights(model, weights, str(folder.weights))


def _parts_of_new_tokens(older: Processors, newer: Processors) -> list[list[list[int]]]:
    """For each side, and each token that is new there, the old tokens that its text was cut into."""
    return [
        old_parts(old.vocabulary, new.vocabulary)
        if isinstance(old, TextProcessor) and isinstance(new, TextProcessor) and new.size > old.size
        else []
        for old, new in zip(older, newer, strict=True)
    ]


def grown(weight: Tensor, parts: Sequence[Sequence[int]], shape: torch.Size) -> Tensor:
    """A tensor with a row a token, (V, ...), with rows for new tokens (V', ...); any other as it is.

    A new row is the mean of the rows of the old tokens that the new one's text was cut into (Gee et al. 2022), or the
    mean of all rows but the specials' where none of these is known.

    Args:
        weight: the trained tensor.
        parts: of each new token.
        shape: of the tensor in the model with the new tokens.
    """
    if not parts or not shape or shape[0] != weight.shape[0] + len(parts) or shape[1:] != weight.shape[1:]:
        return weight
    exact = weight.double()
    others = exact[len(SPECIALS) :].mean(0)
    new = [exact[list(ids)].mean(0) if ids else others for ids in parts]
    return torch.cat([weight, torch.stack(new).to(weight.dtype)])


def provenance(recipe: Recipe) -> dict[str, Any]:
    """The entry of the manifest on where training began; nothing where it began with random weights."""
    if recipe.training.from_ is not None:
        manifest = RunFolder(recipe.training.from_).read_manifest()
        return {"from": {"run": str(recipe.training.from_), "model_sha256": manifest.get("model_sha256")}}
    return {} if recipe.model.from_ is None else {"from": {"model": recipe.model.from_}}
