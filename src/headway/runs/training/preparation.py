"""All that training needs, made from the recipe by its task."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headway.errors import UserError, option
from headway.files import sync
from headway.formats.corpus_config import parts
from headway.log import say
from headway.metrics import check_kind
from headway.models import Model
from headway.optimizers.optimizers import build_schedule
from headway.optimizers.schedules import Schedule, TrainingProgress
from headway.processing.processor import Processors
from headway.processing.text.extension import WHERE as EXTENSION
from headway.processing.text.extension import old_parts
from headway.processing.text.text_processor import TextProcessor, check_languages
from headway.recipe import Recipe, changed_keys
from headway.runs.checkpoint_files import list_checkpoints
from headway.runs.run import open_run
from headway.runs.run_folder import RunFolder, load_weights, model_weights
from headway.storage import keep_folder
from headway.tasks import build_task, dev_metrics
from headway.tasks.task import Corpora, Task
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
    task = build_task(recipe.task)
    processors = open_run(recipe.training.from_).processors
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
    older = open_run(run).recipe
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
    older = open_run(recipe.training.from_).folder.vocabulary
    if recipe.training.extend_vocabulary is None:

        def copy(made: Path) -> None:
            shutil.copytree(older, made, dirs_exist_ok=True)

        keep_folder(folder.vocabulary, copy)
    else:
        build_task(recipe.task).extend(recipe, older, folder.vocabulary)


def fill_from_run(model: Model[Any], recipe: Recipe, processors: Processors) -> None:
    """Give a model the final weights of the run that training goes on from; rows of new tokens begin as `grown` says.

    The model's processors are the run's own, or these with further tokens.

    Raises:
        UserError: weights of another shape, or a run that has none yet.
    """
    run = recipe.training.from_
    assert run is not None
    opened = open_run(run)
    weights = opened.weights()
    new_parts = [  # for each side, and each token that is new there, the old tokens that its text was cut into
        old_parts(old.vocabulary, new.vocabulary)
        if isinstance(old, TextProcessor) and isinstance(new, TextProcessor) and new.size > old.size
        else []
        for old, new in zip(opened.processors, processors, strict=True)
    ]
    tensors = model_weights(model)
    for name, tensor in tensors.items():
        if name in weights:
            of_side = new_parts[0 if name.startswith("source_") else 1]
            weights[name] = grown(weights[name], of_side, tensor.shape)
        if name not in weights or weights[name].shape != tensor.shape:
            has = f"{tuple(weights[name].shape)}" if name in weights else "nothing"
            raise UserError(
                "the run of training.from has a model of another shape", where="training.from",
                received=f"{name}: {has} there, {tuple(tensor.shape)} here",
                allowed="the run's own model section, which need not be given; dropout may change",
            )  # fmt: skip
    load_weights(model, weights, str(opened.folder.weights))


def grown(weight: Tensor, parts: Sequence[Sequence[int]], shape: torch.Size) -> Tensor:
    """A tensor with a row a token, (V, ...), with rows for new tokens (V', ...); any other as it is.

    A new row is the mean of the rows of the old tokens that the new one's text was cut into (Gee et al. 2022), or the
    mean of all rows but the specials' where none of these is known.
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
        manifest = open_run(recipe.training.from_).manifest
        return {"from": {"run": str(recipe.training.from_), "model_sha256": manifest.get("model_sha256")}}
    return {} if recipe.model.from_ is None else {"from": {"model": recipe.model.from_}}


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


def check_recipe(recipe: Recipe, *, begun: bool = False) -> None:
    """Find what cannot work before any work is done. Raises UserError.

    Args:
        recipe: what is to be trained.
        begun: whether a run goes on, whose languages may have codes that older versions took.
    """
    task = build_task(recipe.task)
    if not begun:
        check_languages(recipe.text)
    _check_corpora(recipe, task)
    task.check(recipe)
    if recipe.training.subword_sampling is not None and not task.mixes_corpora:
        what = f"a model for {task.name} reads the pieces of words as they are"
        raise UserError(what, where="training.subword_sampling", allowed="translation")
    if recipe.data.general is not None and not task.mixes_corpora:
        raise UserError(f"a model for {task.name} is evaluated on dev alone", where="data.general", allowed="data.dev")
    check_kind(dev_metrics(recipe), task.writes, "training.dev_metrics")
    new_schedule(recipe).rate(TrainingProgress(1))
    if recipe.data.dev is None and (recipe.training.patience or recipe.training.best_by):
        raise UserError("without data.dev nothing can be compared", where="training.patience or training.best_by")
    if recipe.data.dev is None and recipe.data.general is not None:
        raise UserError(
            "what is forgotten is compared with what dev gains", where="data.general", allowed="data.dev, too"
        )
    if recipe.training.most_forgotten is not None and recipe.data.general is None:
        what, allowed = "what is forgotten is seen on a general dev set", "data.general, a corpus"
        raise UserError(what, where="training.most_forgotten", received=recipe.training.most_forgotten, allowed=allowed)


def _check_corpora(recipe: Recipe, task: Task) -> None:
    """Raise UserError for weights and tags of corpora where these mean nothing."""
    for name, corpus in recipe.data.corpora().items():
        several = parts(corpus, name)
        for key, part in several:
            for option_name in ("weight", "tag"):
                received = getattr(part, option_name)
                if received is not None and not task.mixes_corpora:
                    what = f"a model for {task.name} has no {option_name}s of corpora"
                    raise UserError(what, where=f"{key}.{option_name}", received=received)
            if part.weight is not None and name != "data.train":
                raise UserError("only what is trained on is sampled", where=f"{key}.weight", received=part.weight)
        unweighted = [key for key, part in several if part.weight is None]
        if 0 < len(unweighted) < len(several):
            what, allowed = "all corpora of a list have a weight, or none", "a number above 0"
            raise UserError(what, where=f"{unweighted[0]}.weight", received="nothing", allowed=allowed)


def check_compiler(device: torch.device) -> None:
    """Compile something for `device`. Raises UserError where that fails, as it does without a compiler."""
    try:
        torch.compile(lambda values: values + 1)(torch.zeros(1, device=device))
    except Exception as error:  # whatever the compiler's own parts raise
        what = f"nothing can be compiled for {device.type} here ({type(error).__name__}: {error})"
        raise UserError(what, where="training.compile", received=True, allowed="false") from error


def new_schedule(recipe: Recipe) -> Schedule:
    """The recipe's learning rate as a function of the progress. Raises UserError where it lacks something."""
    dim, updates, evaluated = recipe.model.width(), recipe.training.updates, recipe.data.dev is not None
    return build_schedule(recipe.optimizer, dim=dim, updates=updates, evaluated=evaluated)


def prepare(recipe: Recipe, folder: RunFolder) -> Corpora:
    """The corpora and what makes the model, saying what was read. Raises UserError where that is at fault."""
    take_processors(recipe, folder)
    task, manifest = build_task(recipe.task), folder.read_manifest()
    corpora = task.corpora(recipe, folder.vocabulary)
    if not len(corpora.train):
        raise UserError("no example is left to train on", where="data.train", allowed="some with text on both sides")
    for where, held_out in (("data.dev", corpora.dev), ("data.general", corpora.general)):
        if held_out is not None and not len(held_out.corpus):
            raise UserError("no example is left to evaluate on", where=where, allowed="some with text on both sides")
    written = task.written(recipe)
    # A run that began to score references as they are goes on so: all of its scores are compared.
    if written is None or (written.normalise and "data" in manifest and not manifest.get("references")):
        return corpora
    corpora = corpora.as_written(written)
    if corpora.references and corpora.dev is not None:
        say(f"data.dev: references are normalised before they are scored, as outputs are ({corpora.references})")
    return corpora


def new_model(recipe: Recipe, corpora: Corpora, *, initial: bool = True) -> Model[Any]:
    """The recipe's model: with initial weights, which depend on the seed and on what it begins from, or for others."""
    torch.manual_seed(recipe.training.seed)
    origin = recipe.training.from_ if initial else None
    model = build_task(recipe.task).model(recipe, corpora.processors, initial=initial and origin is None)
    if origin is not None:
        fill_from_run(model, recipe, corpora.processors)
    add_low_rank(model, recipe)
    return model


def data_hashes(corpora: Corpora) -> dict[str, str]:
    """The fingerprints that recognise changed data on resumption."""
    held_out = {"dev": corpora.dev, "general": corpora.general}
    known = {name: dev.corpus.fingerprint for name, dev in held_out.items() if dev is not None}
    return {"train": corpora.train.fingerprint} | known


def run_folder(path: Path, resume: bool) -> RunFolder:
    """The run folder at `path`: new, or an earlier run's with `resume`. Raises UserError where these do not agree."""
    folder, where = RunFolder(path), f"{option('output')} {path}"
    if folder.recipe_file.exists() and not resume and folder.has_begun():
        allowed = f"{option('resume')} to go on with it, or another folder"
        raise UserError("there is a run here already", where=where, allowed=allowed)
    try:
        folder.checkpoints.mkdir(parents=True, exist_ok=True)
        for made in (path, path.absolute().parent):
            sync(made)
    except OSError as error:
        raise UserError(f"the run folder cannot be made ({error.strerror})", where=where) from error
    for written in (folder.checkpoints, path / "tensorboard", *list_checkpoints(folder.checkpoints)):
        if written.is_symlink():
            what = "training would write to the place that this link names, and remove files there"
            raise UserError(what, where=str(written), allowed="a link to the whole run folder")
    return folder
