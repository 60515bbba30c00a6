"""Open a training run, new or resumed."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from headway.core.device import instruction_set, keep_freed_memory, machine, threads_set
from headway.core.errors import UserError, option
from headway.core.files import remove_leftovers
from headway.core.log import say, silenced, warn
from headway.core.registry import own_code
from headway.core.storage import keep_folder, locked
from headway.core.system import sync
from headway.core.version import VERSION
from headway.formats.corpus_config import parts
from headway.losses import Objective
from headway.metrics import check_kind
from headway.mixers.conformance import try_own_mixers
from headway.models import Model, ModelConfig, StackedConfig
from headway.optimizers.optimizers import build_optimizer, build_schedule
from headway.optimizers.schedules import Schedule, TrainingProgress
from headway.predictors.minimum_risk import utility_of
from headway.processing.processor import Processors
from headway.processing.text.extension import WHERE as EXTENSION
from headway.processing.text.extension import old_parts
from headway.processing.text.text_processor import TextProcessor, check_languages
from headway.recipe import Recipe, changed_keys
from headway.recipe.reading import check_run
from headway.runs.metrics import keep_lines
from headway.runs.packing import changed_code, code_hashes, code_versions
from headway.runs.run import open_run
from headway.runs.run_folder import (
    CHECKPOINT_LEFTOVERS,
    LEFTOVERS,
    RunFolder,
    list_checkpoints,
    load_weights,
    model_weights,
    update_of,
)
from headway.tasks import build_task, dev_metrics
from headway.tasks.task import Corpora, Task
from headway.tensors.batch import SPECIALS
from headway.tensors.checkpointing import recompute_activations
from headway.tensors.int8_rounding import RANGE
from headway.tensors.linear import round_to_int8, use_backend
from headway.tensors.low_rank import CHANGE, adapt
from headway.tensors.precision import compared, use_float32
from headway.training.arithmetic import Arithmetic, Changes, choose_arithmetic, compared_with_run
from headway.training.batch_size import batch_tokens, update_fits
from headway.training.capture import CapturedUpdate, check_capture
from headway.training.checkpoints import TrainingState, load_latest, restore_optimizer
from headway.training.fixed_rounding import FixedRounding, measure_ranges, moving_updates
from headway.training.loggers import LOGGERS, check_loggers
from headway.training.parallel import Parallel, joined
from headway.training.records import Records, is_before
from headway.training.session import Session, scores_of
from headway.training.updates import MovingAverage, TrainingStep

KEPT = ("task", "text.", "vocabulary.")  # sections that determine the processors of a run


def check_origin(recipe: Recipe) -> None:
    """Check, before anything is written, that training can start from the run or model that the recipe names.

    Raises:
        UserError: the run or model does not exist, its weights have another shape, or its vocabulary differs.
    """
    if recipe.training.from_ is None:
        beginning = build_task(recipe.task).check_origin(recipe)
        if beginning is not None:
            add_low_rank(beginning, recipe)
        elif recipe.training.lora is not None:
            what, allowed = "small changes are learned of trained weights", "training.from, or model.from"
            raise UserError(what, where="training.lora", received="a model that begins at random", allowed=allowed)
        return
    run, task = open_run(recipe.training.from_), build_task(recipe.task)
    changes = {name: values for name, values in changed_keys(run.recipe, recipe).items() if name.startswith(KEPT)}
    if changes:
        shown = "; ".join(f"{key}: {old!r} -> {new!r}" for key, (old, new) in changes.items())
        raise UserError(
            f"the run of training.from has another vocabulary ({shown})", where="training.from", received=str(run.path),
            allowed="the run's own text and vocabulary, which stand in its recipe and need not be given; "
            f"{EXTENSION}: NUMBER adds tokens of the new data; for another one train anew, without training.from",
        )  # fmt: skip
    processors = run.processors
    if recipe.training.extend_vocabulary is not None:
        task.check_extension(recipe, processors)
    model = task.model(recipe, processors, initial=False)
    fill_from_run(model, recipe, processors)
    add_low_rank(model, recipe)


def add_low_rank(model: Model[Any], recipe: Recipe) -> None:
    """Freeze a model and add the adapters of `training.lora`, if any. Raises UserError if nothing matches."""
    config = recipe.training.lora
    if config is None:
        return
    try:
        adapt(model, config.rank, config.alpha, config.dropout, config.linears)
    except ValueError as error:
        raise UserError(str(error), where="training.lora.linears", received=", ".join(config.linears)) from error


def fill_from_run(model: Model[Any], recipe: Recipe, processors: Processors) -> None:
    """Load the final weights of the run `training.from` into a model. Rows of new tokens are initialised by `grown`.

    The processors are those of the run, possibly with additional tokens.

    Raises:
        UserError: the weights have another shape, or the run has none yet.
    """
    run = recipe.training.from_
    assert run is not None
    opened = open_run(run)
    weights = {name: weight for name, weight in opened.weights().items() if f".{RANGE}." not in name}
    new_parts = [  # for each side and each new token, the old tokens that its text was split into
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
    """Add rows for new tokens to a tensor with one row per token: (V, ...) to (V', ...). Other tensors are unchanged.

    A new row is the mean of the rows of the old tokens that the new token's text was split into (Gee et al. 2022). If
    none of these is known, it is the mean of all rows but those of the special tokens.
    """
    if not parts or not shape or shape[0] != weight.shape[0] + len(parts) or shape[1:] != weight.shape[1:]:
        return weight
    exact = weight.double()
    others = exact[len(SPECIALS) :].mean(0)
    new = [exact[list(ids)].mean(0) if ids else others for ids in parts]
    return torch.cat([weight, torch.stack(new).to(weight.dtype)])


def provenance(recipe: Recipe) -> dict[str, Any]:
    """The manifest entry on the run or model that training started from. Empty for random initial weights."""
    if recipe.training.from_ is not None:
        manifest = open_run(recipe.training.from_).manifest
        return {"from": {"run": str(recipe.training.from_), "model_sha256": manifest.get("model_sha256")}}
    return {} if recipe.model.from_ is None else {"from": {"model": recipe.model.from_}}


def check_recipe(recipe: Recipe, *, begun: bool = False) -> None:
    """Check the whole recipe before any work is done. Raises UserError.

    Args:
        recipe: the recipe to train.
        begun: whether a run is resumed. Its language codes are not checked, since older versions allowed more.
    """
    task = build_task(recipe.task)
    if not begun:
        check_languages(recipe.text)
    _check_corpora(recipe, task)
    task.check(recipe)
    check_kind(dev_metrics(recipe), task.writes, "training.dev_metrics", of_texts=task.reads_text)
    if recipe.decoding.kind == "mbr":
        utility_of(recipe.decoding.utility, recipe.text.target.language, of_texts=task.reads_text)
    new_schedule(recipe).rate(TrainingProgress(1))
    training, data = recipe.training, recipe.data
    alone = data.dev is None
    for is_wrong, what, where, allowed in (
        (
            training.subword_sampling and not task.mixes_corpora,
            f"a model for {task.name} reads pieces of words as they are", "training.subword_sampling", "translation",
        ),
        (
            training.shapes == "few" and not isinstance(recipe.model, ModelConfig),
            "batches of pairs alone are padded to few shapes", "training.shapes", "any",
        ),
        (
            training.int8_rounding and not isinstance(recipe.model, StackedConfig),
            "products are rounded in Transformers alone", "training.int8_rounding", "false, or model.kind transformer",
        ),
        (
            data.context.most and not task.mixes_corpora,
            f"a model for {task.name} reads no sentences before another", "data.context", "translation",
        ),
        (
            data.general is not None and not task.mixes_corpora,
            f"a model for {task.name} is evaluated on dev alone", "data.general", "data.dev",
        ),
        (
            alone and (training.patience or training.best_by),
            "without data.dev nothing can be compared", "training.patience or training.best_by", "data.dev, too",
        ),
        (
            alone and data.general is not None,
            "what is forgotten is compared with what dev gains", "data.general", "data.dev, too",
        ),
        (
            training.most_forgotten is not None and data.general is None,
            "what is forgotten is seen on a general dev set", "training.most_forgotten", "data.general, a corpus",
        ),
    ):  # fmt: skip
        if is_wrong:
            raise UserError(what, where=where, allowed=allowed)


def _check_corpora(recipe: Recipe, task: Task) -> None:
    """Raise UserError for weights and tags of corpora that have no effect."""
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
    """Compile a test function for `device`. Raises UserError if that fails, for instance without a compiler."""
    try:
        torch.compile(lambda values: values + 1)(torch.zeros(1, device=device))
    except Exception as error:  # the compiler may raise anything
        what = f"nothing can be compiled for {device.type} here ({type(error).__name__}: {error})"
        raise UserError(what, where="training.compile", received=True, allowed="false") from error


def new_schedule(recipe: Recipe) -> Schedule:
    """The learning rate schedule of the recipe. Raises UserError if the schedule lacks a setting."""
    dim, updates, evaluated = recipe.model.width(), recipe.training.updates, recipe.data.dev is not None
    return build_schedule(recipe.optimizer, dim=dim, updates=updates, evaluated=evaluated)


def prepare(recipe: Recipe, folder: RunFolder) -> Corpora:
    """Read the corpora and the processors, and log what was read. Raises UserError if they are not usable."""
    task, manifest = build_task(recipe.task), folder.read_manifest()
    if recipe.training.from_ is not None and not folder.vocabulary.is_dir():
        older = open_run(recipe.training.from_).folder.vocabulary
        if recipe.training.extend_vocabulary is None:
            keep_folder(folder.vocabulary, partial(shutil.copytree, older, dirs_exist_ok=True))
        else:
            task.extend(recipe, older, folder.vocabulary)
    corpora = task.corpora(recipe, folder.vocabulary)
    if not len(corpora.train):
        raise UserError("no example is left to train on", where="data.train", allowed="some with text on both sides")
    for where, held_out in (("data.dev", corpora.dev), ("data.general", corpora.general)):
        if held_out is not None and not len(held_out.corpus):
            raise UserError("no example is left to evaluate on", where=where, allowed="some with text on both sides")
    written = task.written(recipe)
    # A run that began with unchanged references keeps them, because all of its scores are compared.
    if written is None or (written.normalise and "data" in manifest and not manifest.get("references")):
        return corpora
    corpora = corpora.as_written(written)
    if corpora.references and corpora.dev is not None:
        say(f"data.dev: references are normalised before they are scored, as outputs are ({corpora.references})")
    return corpora


def new_model(recipe: Recipe, corpora: Corpora, *, initial: bool = True) -> Model[Any]:
    """Build the recipe's model, with initial weights (random or from the run or model to start from) or for loading."""
    torch.manual_seed(recipe.training.seed)
    origin = recipe.training.from_ if initial else None
    model = build_task(recipe.task).model(recipe, corpora.processors, initial=initial and origin is None)
    if origin is not None:
        fill_from_run(model, recipe, corpora.processors)
    add_low_rank(model, recipe)
    if rounding := recipe.training.int8_rounding:
        round_to_int8(model, fixed=rounding == "fixed")
    return model


def data_hashes(corpora: Corpora) -> dict[str, str]:
    """The fingerprints of the corpora, which detect changed data when a run is resumed."""
    held_out = {"dev": corpora.dev, "general": corpora.general}
    known = {name: dev.corpus.fingerprint for name, dev in held_out.items() if dev is not None}
    return {"train": corpora.train.fingerprint} | known


def run_folder(path: Path, resume: bool) -> RunFolder:
    """The run folder at `path`, new or to resume. Raises UserError if `resume` does not fit its contents."""
    folder, where = RunFolder(path), f"{option('output')} {path}"
    if folder.recipe_file.exists():  # a recipe that training did not write would be overwritten
        check_run(path, option("output"))
    if folder.recipe_file.exists() and not resume and folder.has_begun():
        allowed = f"{option('resume')} to go on with it, or another folder"
        raise UserError("there is a run here already", where=where, allowed=allowed)
    if folder.weights.is_file() and not list_checkpoints(folder.checkpoints):
        what = "this run has a model, and no checkpoint to go on from"
        raise UserError(what, where=where, allowed="another folder, and training.from: RUN")
    try:
        folder.checkpoints.mkdir(parents=True, exist_ok=True)
        for made in (path, path.absolute().parent):
            sync(made)
    except OSError as error:
        raise UserError(f"the run folder cannot be made ({error.strerror})", where=where) from error
    for written in (folder.checkpoints, *(path / name for name in LOGGERS), *list_checkpoints(folder.checkpoints)):
        if written.is_symlink():
            what = "training would write to the place that this link names, and remove files there"
            raise UserError(what, where=str(written), allowed="a link to the whole run folder")
    return folder


DECAY = 0.999  # of the moving average of weights
LOCK = ".lock"  # a permanent file in the run folder; not a link, whose target would be emptied
LOOKED_AT = 1000  # number of updates whose learning rates are compared
# Keys that may change when a run is resumed: they determine its end and its logs, not what an update computes.
FREE_TO_CHANGE = (
    "training.updates", "training.epochs", "training.minutes", "training.patience", "training.log_every",
    "training.most_forgotten",
    "training.keep_last", "training.loggers", "training.max_bad_updates", "training.wait_minutes", "data.lead",
    "decoding.batch_tokens",
)  # fmt: skip


@contextmanager
def open_session(recipe: Recipe, output: Path, resume: bool) -> Iterator[Session]:
    """Open a run, new or resumed, and destroy its process group afterwards. Raises as `train` does."""
    keep_freed_memory()
    trusted = own_code(recipe.model_dump(mode="json"))  # allowed for its own run, too
    with joined(recipe.training) as parallel, trusted, ExitStack() as held:
        if not parallel.first:
            held.enter_context(silenced())
        folder = RunFolder(output)
        parallel.from_first(partial(check_recipe, recipe, begun=folder.has_begun()))
        parallel.from_first(partial(check_loggers, recipe.training.loggers))
        if recipe.training.capture:
            parallel.from_first(partial(check_capture, recipe, parallel.world_size))
        if not folder.has_begun():
            parallel.from_first(partial(check_origin, recipe))
        arithmetic = parallel.from_first(partial(_claim, recipe, output, resume, parallel, held))
        parallel = replace(parallel, precision=arithmetic.precision)
        use_float32(arithmetic.float32, parallel.device)
        with threads_set(arithmetic.threads.number):
            corpora = parallel.on_first(partial(prepare, recipe, folder))
            session = _session(recipe, folder, corpora or prepare(recipe, folder), parallel, arithmetic)
            with closing(session.records):
                yield session


def _claim(recipe: Recipe, output: Path, resume: bool, parallel: Parallel, held: ExitStack) -> Arithmetic:
    """Lock the run folder, check that a resumed run has this recipe, and choose how the run computes."""
    resume = resume or parallel.claimed(output)
    folder = run_folder(output, resume)
    try:
        held.enter_context(locked(folder.path / LOCK))
    except OSError as error:
        raise UserError(f"the run folder cannot be written ({error.strerror})", where=str(folder.path)) from error
    run_folder(output, resume)  # another run may have begun there before this process got the lock
    parallel.claim(output)
    if folder.recipe_file.exists():
        compared_recipe, changes = compared_with_run(folder, recipe)
        if folder.has_begun():
            recipe = compared_recipe
            _check_changes(recipe, folder, changes)
        elif folder.vocabulary.is_dir():  # of an attempt that ended before training; the data may have changed
            shutil.rmtree(folder.vocabulary)
    remove_leftovers(folder.path, LEFTOVERS)
    remove_leftovers(folder.checkpoints, CHECKPOINT_LEFTOVERS)
    arithmetic = choose_arithmetic(recipe, folder.read_manifest(), parallel.device, parallel.world_size)
    folder.write_recipe(recipe)
    if arithmetic.precision == "bf16" and arithmetic.bf16_speed is not None and arithmetic.bf16_speed < 1:
        warn(f"training.precision: bf16 {compared(arithmetic.bf16_speed)} on this processor ({instruction_set()})")
    return arithmetic


def _check_changes(recipe: Recipe, folder: RunFolder, changes: Changes) -> None:
    """Log the changes of the recipe of a resumed run. Raises UserError if a key must not change."""
    if not changes:
        return
    shown = "; ".join(f"{key}: {old!r} -> {new!r}" for key, (old, new) in changes.items())
    if any(key not in FREE_TO_CHANGE for key in changes):
        allowed = f"the run's own recipe, changes of {', '.join(FREE_TO_CHANGE)}, or another folder"
        what = f"a run goes on with its own recipe, and this one has changed ({shown})"
        raise UserError(what, where=str(folder.path), allowed=allowed)
    checkpoints = list_checkpoints(folder.checkpoints)
    made = update_of(checkpoints[-1]) if checkpoints else 0
    updates, earlier = recipe.training.updates, open_run(folder.path).recipe
    if updates is not None and updates < made:
        what, allowed = "this run has made more updates already", f"{made:,} or more"
        raise UserError(what, where="training.updates", received=updates, allowed=allowed)
    if recipe.training.int8_rounding == "fixed":
        moved = {min(made, moving_updates(each.training)) for each in (earlier, recipe)}
        if len(moved) > 1:
            what = f"{option('resume')} with another end would have moved the ranges of int8_rounding in other updates"
            allowed = f"{earlier.training.updates}, or a new run"
            raise UserError(what, where="training.updates", received=updates, allowed=allowed)
    before, now = new_schedule(earlier), new_schedule(recipe)
    looked_at = {*range(1, made + 1, max(1, made // LOOKED_AT)), *([made] if made else [])}
    if any(before(TrainingProgress(update)) != now(TrainingProgress(update)) for update in looked_at):
        what = f"{option('resume')} with another end would give the updates that were made other learning rates"
        what, allowed = f"{what}: this schedule ends with training.updates", f"{earlier.training.updates}, or a new run"
        raise UserError(what, where="training.updates", received=updates, allowed=allowed)
    warn(f"the recipe has changed: {shown}")


def _session(
    recipe: Recipe, folder: RunFolder, corpora: Corpora, parallel: Parallel, arithmetic: Arithmetic
) -> Session:
    parallel.from_first(partial(_check_same_data, folder, data_hashes(corpora)))
    checkpoint = parallel.on_first(partial(load_latest, folder.checkpoints, warn))
    if not parallel.first:  # the first process has removed damaged ones by now
        checkpoint = load_latest(folder.checkpoints, warn)
    state = checkpoint.state if checkpoint else TrainingState()
    model = new_model(recipe, corpora, initial=checkpoint is None)
    if checkpoint:
        load_weights(model, checkpoint.weights | checkpoint.raw, str(folder.checkpoints))
    use_backend(model, arithmetic.backend)
    if recipe.training.activation_checkpointing:
        if not (blocks := model.blocks()):
            what, where = "this kind of model has no blocks to compute again", "training.activation_checkpointing"
            raise UserError(what, where=where, received=True, allowed="false")
        for block in blocks:
            recompute_activations(block)
    model.to(parallel.device)
    with parallel.autocast():
        try_own_mixers(model, recipe.model.width())
    step = TrainingStep(model, Objective(recipe.objective))
    fits = update_fits(recipe, corpora.train, model, step, replace(parallel, rank=0, world_size=1))
    tokens = parallel.from_first(partial(batch_tokens, recipe, folder.read_manifest(), parallel, fits))
    if tokens is not None:
        parallel = replace(parallel, config=parallel.config.model_copy(update={"batch_tokens": tokens}))
    fixed = None
    if recipe.training.int8_rounding == "fixed":
        if checkpoint is None:
            measure_ranges(model, corpora.train, parallel.device)
        fixed = FixedRounding(model, parallel, state.update)
    wrapped = parallel.wrap(step, model.layers())
    if recipe.training.compile:
        check_compiler(parallel.device)
        step.compile(dynamic=True)  # lengths differ from batch to batch
    optimizer = build_optimizer(recipe.optimizer, step, model.blocks())
    if checkpoint:
        restore_optimizer(step, optimizer, checkpoint.optimizer, str(folder.checkpoints))
    averaging, average = recipe.training.average, None
    if averaging.kind == "ema":
        average = MovingAverage(model, averaging.decay or DECAY, checkpoint.weights if checkpoint else {})
    captured = None
    if recipe.training.capture:
        if parallel.device.type != "cuda":
            say(f"training.capture: nothing is recorded on {parallel.device.type}; steps run as they do without")
        captured = CapturedUpdate(step, optimizer, parallel)

    def other_model() -> Model[Any]:
        other = new_model(recipe, corpora, initial=False)
        use_backend(other, arithmetic.backend)
        return other

    by_language = not state.update or "dev_language" in folder.read_manifest()
    metrics = dev_metrics(recipe, by_language=by_language)
    if checkpoint is None and corpora.dev is not None and parallel.first:
        missing = (metric.missing(corpora.dev.references) for metric in metrics)
        for what in filter(None, dict.fromkeys(missing)):  # without these, scores are always 0
            warn(f"data.dev: {what}")
    dev, given = corpora.dev, corpora.baselines if metrics else {}
    baselines = parallel.on_first(  # the scores of the baselines
        lambda: {name: scores_of(metrics, texts, dev) for name, texts in given.items() if dev is not None}
    )
    parallel.on_first(partial(_start_records, folder, recipe, model, corpora, state, arithmetic, parallel))
    records = Records(folder, write=parallel.first, loggers=recipe.training.loggers)
    return Session(
        recipe,
        folder,
        corpora,
        model,
        wrapped,
        optimizer,
        new_schedule(recipe),
        state,
        parallel,
        metrics,
        baselines or {},
        records,
        other_model,
        average,
        captured,
        fixed,
        complete=bool(state.stopped),
    )


def _check_same_data(folder: RunFolder, hashes: dict[str, str]) -> None:
    folder.check_vocabulary()
    known = folder.read_manifest().get("data", hashes)
    if known != hashes:
        changed = ", ".join(f"data.{name}" for name in sorted(known | hashes) if known.get(name) != hashes.get(name))
        what = f"the data has changed since this run began: {changed}"
        raise UserError(what, where=str(folder.path), allowed="the data of its beginning, or a new run")


def _start_records(
    folder: RunFolder, recipe: Recipe, model: nn.Module, corpora: Corpora, state: TrainingState,
    arithmetic: Arithmetic, parallel: Parallel,
) -> None:  # fmt: skip
    """Write the manifest, and remove the lines of metrics.jsonl that are newer than the checkpoint."""
    parameters = sum(parameter.numel() for name, parameter in model.named_parameters() if CHANGE not in name)
    learning = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    parts = {"train": corpora.train, "dev": corpora.dev and corpora.dev.corpus}
    processes, asked = parallel.world_size, recipe.training.batch_tokens
    tree = recipe.model_dump(mode="json")
    manifest, now, code, versions = folder.read_manifest(), machine(), code_hashes(tree), code_versions(tree)
    if state.update:
        before = manifest.get("machine", {})
        changed = [name for name in ("threads", "torch", "processor", "accelerator") if before.get(name) != now[name]]
        if before and changed:
            shown = ", ".join(f"{name}: {before.get(name)} -> {now[name]}" for name in changed)
            risk = "weights may differ from an uninterrupted run's in their last bits"
            warn(f"the machine has changed ({shown}): {risk}")
        for name in changed_code(manifest.get("code", {}), code):
            warn(f"{name} has changed since this run began: its updates may be other ones than an uninterrupted run's")
        if (count := manifest.get("processes", processes)) != processes:
            warn(f"there were {count} processes, and now {processes}: random draws, as in dropout, are other ones")
    origin = {"from": manifest["from"]} if state.update and "from" in manifest else provenance(recipe)
    folder.write_manifest(
        {
            "headway": VERSION,
            "status": "training",
            "seed": recipe.training.seed,
            "parameters": parameters,
            "data": data_hashes(corpora),
            "examples": {name: len(part) for name, part in parts.items() if part is not None},
            "vocabulary": folder.vocabulary_hashes(),
            **origin,
            **({"code": code} if code else {}),
            **({} if state.update else {"dev_language": recipe.text.target.language}),
            **({"code_versions": versions} if versions else {}),
            "machine": now,
            "processes": processes,
            **({"batch_tokens": parallel.config.batch_tokens} if asked == "auto" else {}),
            "precision": arithmetic.precision,
            "bf16_speed": arithmetic.bf16_speed,
            "float32": arithmetic.float32,
            "backend": arithmetic.backend,
            "references": corpora.references or None,
        }
    )
    keep_lines(folder.metrics, lambda line: is_before(line, state, recipe.training.evaluation_interval))
    begun = f"going on after update {state.update}" if state.update else "starting"
    size = f"{parameters:,} parameters" + (f" ({learning:,} learn)" if learning != parameters else "")
    say(f"{begun}: {size}, {arithmetic.text()}, {folder.path}")
    if not state.update:
        warn_of_warmup(recipe)


def warn_of_warmup(recipe: Recipe) -> None:
    """Warn if training ends during the warm-up, so that the learning rate is never lowered."""
    updates, warmup = recipe.training.updates, recipe.optimizer.warmup
    if updates is not None and updates <= warmup:
        warn(f"training.updates {updates:,} are within optimizer.warmup {warmup:,}: the learning rate rises to the end")
