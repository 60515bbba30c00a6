"""All that training needs, made from the recipe by its task."""

from pathlib import Path
from typing import Any

import torch

from headway.errors import UserError, option
from headway.files import sync
from headway.models import Model
from headway.optimizers.optimizers import build_schedule
from headway.optimizers.schedules import Schedule
from headway.recipe import Recipe
from headway.runs.run_folder import RunFolder
from headway.runs.training.origin import fill_from_run, take_processors
from headway.tasks import build_task, dev_metrics
from headway.tasks.task import Corpora

__all__ = [
    "Corpora",
    "check_compiler",
    "check_recipe",
    "data_hashes",
    "new_model",
    "new_schedule",
    "prepare",
    "run_folder",
]


def check_recipe(recipe: Recipe) -> None:
    """Find what cannot work before any work is done. Raises UserError."""
    build_task(recipe.task).check(recipe)
    dev_metrics(recipe)
    new_schedule(recipe)
    if recipe.data.dev is None and (recipe.training.patience or recipe.training.best_by):
        raise UserError("without data.dev nothing can be compared", where="training.patience or training.best_by")


def check_compiler(device: torch.device) -> None:
    """Compile something for `device`. Raises UserError where that fails, as it does without a compiler."""
    try:
        torch.compile(lambda values: values + 1)(torch.zeros(1, device=device))
    except Exception as error:  # whatever the compiler's own parts raise
        what = f"nothing can be compiled for {device.type} here ({type(error).__name__}: {error})"
        raise UserError(what, where="training.compile", received=True, allowed="false") from error


def new_schedule(recipe: Recipe) -> Schedule:
    """The recipe's learning rate as a function of the update. Raises UserError where it lacks something."""
    return build_schedule(recipe.optimizer, dim=recipe.model.width(), updates=recipe.training.updates)


def prepare(recipe: Recipe, folder: RunFolder) -> Corpora:
    """The corpora and what makes the model, saying what was read. Raises UserError where that is at fault."""
    take_processors(recipe, folder)
    return build_task(recipe.task).corpora(recipe, folder.vocabulary)


def new_model(recipe: Recipe, corpora: Corpora, *, initial: bool = True) -> Model[Any]:
    """The recipe's model: with initial weights, which depend on the seed and on what it begins from, or for others."""
    torch.manual_seed(recipe.training.seed)
    origin = recipe.training.from_ if initial else None
    model = build_task(recipe.task).model(recipe, corpora.processors, initial=initial and origin is None)
    if origin is not None:
        fill_from_run(model, origin)
    return model


def data_hashes(corpora: Corpora) -> dict[str, str]:
    """The fingerprints that recognise changed data on resumption."""
    hashes = {"train": corpora.train.fingerprint}
    return hashes if corpora.dev is None else hashes | {"dev": corpora.dev.fingerprint}


def run_folder(path: Path, resume: bool) -> RunFolder:
    """The run folder at `path`: new, or an earlier run's with `resume`. Raises UserError where these do not agree."""
    folder, where = RunFolder(path), f"{option('output')} {path}"
    if path.exists() and not path.is_dir():
        raise UserError("the run folder is a file", where=where)
    if folder.recipe_file.exists() and not resume:
        allowed = f"{option('resume')} to go on with it, or another folder"
        raise UserError("there is a run here already", where=where, allowed=allowed)
    try:
        folder.checkpoints.mkdir(parents=True, exist_ok=True)
        for made in (path, path.absolute().parent):
            sync(made)
    except OSError as error:
        raise UserError(f"the run folder cannot be made ({error.strerror})", where=where) from error
    return folder
