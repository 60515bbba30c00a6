"""What training needs, made from the recipe by its task."""

from pathlib import Path
from typing import Any

import torch

from headway.errors import UserError
from headway.models import Model
from headway.recipe import Recipe
from headway.runs.run_folder import RunFolder
from headway.tasks import build_task, dev_metrics
from headway.tasks.task import Corpora


def check_recipe(recipe: Recipe) -> None:
    """Find what cannot work before any work is done. Raises UserError."""
    build_task(recipe.task).check(recipe)
    dev_metrics(recipe)
    training, optimizer = recipe.training, recipe.optimizer
    if optimizer.schedule == "linear" and training.updates is None:
        raise UserError("a linear schedule ends at training.updates, which is not given", where="optimizer.schedule")
    if optimizer.schedule == "noam" and recipe.model.width() is None:
        raise UserError("noam needs a model.dim, which this model has not", where="optimizer.schedule")
    if recipe.data.dev is None and (training.patience or training.best_by):
        raise UserError("without data.dev nothing can be compared", where="training.patience or training.best_by")


def prepare(recipe: Recipe, folder: RunFolder) -> Corpora:
    """All that training needs, saying what was read. Raises UserError where that is at fault."""
    return build_task(recipe.task).corpora(recipe, folder.vocabulary)


def new_model(recipe: Recipe, prepared: Corpora, *, initial: bool = True) -> Model[Any]:
    """The recipe's model, with initial weights that depend on the seed alone, or for others to come."""
    torch.manual_seed(recipe.training.seed)
    return build_task(recipe.task).model(recipe, prepared.processors, initial=initial)


def data_hashes(prepared: Corpora) -> dict[str, str]:
    """What recognises changed data on resumption."""
    hashes = {"train": prepared.train.fingerprint}
    return hashes if prepared.dev is None else hashes | {"dev": prepared.dev.fingerprint}


def run_folder(path: Path, resume: bool) -> RunFolder:
    """The run folder at `path`: new, or an earlier run's with `resume`. Raises UserError where these do not agree."""
    folder = RunFolder(path)
    if path.exists() and not path.is_dir():
        raise UserError("the run folder is a file", where=f"--output {path}")
    if folder.recipe_file.exists() and not resume:
        raise UserError(
            "there is a run here already",
            where=f"--output {path}",
            allowed="--resume to go on with it, or another folder",
        )
    try:
        folder.checkpoints.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"the run folder cannot be made ({error.strerror})", where=f"--output {path}") from error
    return folder
