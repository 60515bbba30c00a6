"""Opening a training run, new or resumed."""

import json
import os
import shutil
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from torch import nn

import headway
from headway.device import instruction_set, keep_freed_memory, machine, threads_set
from headway.documents import parse_json
from headway.errors import UserError, option
from headway.files import remove_leftovers, take_lock
from headway.log import say, silenced, warn
from headway.losses import Objective
from headway.metrics import Metric
from headway.mixers.trial import try_own_mixers
from headway.optimizers.optimizers import build_optimizer
from headway.optimizers.schedules import TrainingProgress
from headway.recipe import Recipe
from headway.registry import foreign_code, import_paths
from headway.runs.checkpoint_files import LEFTOVERS as CHECKPOINT_LEFTOVERS
from headway.runs.checkpoint_files import list_checkpoints, update_of
from headway.runs.metrics import keep_lines
from headway.runs.own_code import changed_code, code_hashes, code_versions
from headway.runs.run_folder import LEFTOVERS, RunFolder, load_weights
from headway.runs.training.checkpoints import TrainingState, load_latest, restore_optimizer
from headway.runs.training.evaluation import baseline_scores
from headway.runs.training.parallel import Parallel, joined
from headway.runs.training.preparation import (
    Corpora,
    check_compiler,
    check_origin,
    check_recipe,
    data_hashes,
    new_model,
    new_schedule,
    prepare,
    provenance,
    run_folder,
)
from headway.runs.training.records import Records, is_before
from headway.runs.training.run_arithmetic import Arithmetic, Changes, choose_arithmetic, compared_with_run
from headway.runs.training.session import Session
from headway.runs.training.updates import TrainingStep
from headway.tasks import dev_metrics
from headway.tensors.checkpointing import recompute_activations
from headway.tensors.linear import use_backend
from headway.tensors.low_rank import CHANGE
from headway.tensors.precision import compared

LOCK = ".lock"  # a file in the run folder that stays there; no link, whose file would be emptied
LOOKED_AT = 1000  # updates whose learning rates are compared
# Keys that may change when a run goes on: they say when it ends and what it reports, not what an update computes.
FREE_TO_CHANGE = (
    "training.updates", "training.epochs", "training.minutes", "training.patience", "training.log_every",
    "training.most_forgotten",
    "training.keep_last", "training.tensorboard", "training.max_bad_updates", "training.wait_minutes", "data.lead",
    "decoding.batch_tokens",
)  # fmt: skip


@contextmanager
def open_session(recipe: Recipe, output: Path, resume: bool) -> Iterator[Session]:
    """Prepare a run, new or resumed, and end its process group afterwards. Raises as `train` does."""
    keep_freed_memory()
    trusted = foreign_code(bool(import_paths(recipe.model_dump(mode="json"))))  # and with it, its own run
    with joined(recipe.training) as parallel, trusted, ExitStack() as held:
        if not parallel.first:
            held.enter_context(silenced())
        folder = RunFolder(output)
        parallel.from_first(partial(check_recipe, recipe, begun=folder.has_begun()))
        if not folder.has_begun():
            parallel.from_first(partial(check_origin, recipe))
        arithmetic = parallel.from_first(partial(_claim, recipe, output, resume, parallel, held))
        parallel = replace(parallel, precision=arithmetic.precision)
        with threads_set(arithmetic.threads.number):
            corpora = parallel.on_first(partial(prepare, recipe, folder))
            session = _session(recipe, folder, corpora or prepare(recipe, folder), parallel, arithmetic)
            with closing(session.records):
                yield session


def _claim(recipe: Recipe, output: Path, resume: bool, parallel: Parallel, held: ExitStack) -> Arithmetic:
    """Make the folder ours, hold its lock, see that a resumed run has this recipe; gives how the run computes."""
    resume = resume or parallel.claimed(output)
    folder = run_folder(output, resume)
    held.enter_context(training_lock(folder.path))
    run_folder(output, resume)  # a run may have begun there before this process had the lock
    parallel.claim(output)
    if folder.recipe_file.exists():
        compared_recipe, changes = compared_with_run(folder, recipe)
        if folder.has_begun():
            recipe = compared_recipe
            _check_changes(recipe, folder, changes)
        elif folder.vocabulary.is_dir():  # of an attempt that ended before training; its data may have changed
            shutil.rmtree(folder.vocabulary)
    remove_leftovers(folder.path, LEFTOVERS)
    remove_leftovers(folder.checkpoints, CHECKPOINT_LEFTOVERS)
    arithmetic = choose_arithmetic(recipe, folder.read_manifest(), parallel.device)
    folder.write_recipe(recipe)
    if arithmetic.precision == "bf16" and arithmetic.bf16_speed is not None and arithmetic.bf16_speed < 1:
        warn(f"training.precision: bf16 {compared(arithmetic.bf16_speed)} on this processor ({instruction_set()})")
    return arithmetic


def _check_changes(recipe: Recipe, folder: RunFolder, changes: Changes) -> None:
    """Name what has changed in the recipe of a run that goes on. Raises UserError where that may not change."""
    if not changes:
        return
    shown = "; ".join(f"{key}: {old!r} -> {new!r}" for key, (old, new) in changes.items())
    if any(key not in FREE_TO_CHANGE for key in changes):
        allowed = f"the run's own recipe, changes of {', '.join(FREE_TO_CHANGE)}, or another folder"
        what = f"a run goes on with its own recipe, and this one has changed ({shown})"
        raise UserError(what, where=str(folder.path), allowed=allowed)
    checkpoints = list_checkpoints(folder.checkpoints)
    _check_end(recipe, folder, made=update_of(checkpoints[-1]) if checkpoints else 0)
    warn(f"the recipe has changed: {shown}")


def _check_end(recipe: Recipe, folder: RunFolder, made: int) -> None:
    """Raise UserError where more updates were made than the recipe has, or would have had other learning rates."""
    updates, earlier = recipe.training.updates, folder.read_recipe()
    if updates is not None and updates < made:
        what, allowed = "this run has made more updates already", f"{made:,} or more"
        raise UserError(what, where="training.updates", received=updates, allowed=allowed)
    before, now = new_schedule(earlier), new_schedule(recipe)
    looked_at = {*range(1, made + 1, max(1, made // LOOKED_AT)), *([made] if made else [])}
    if any(before(TrainingProgress(update)) != now(TrainingProgress(update)) for update in looked_at):
        what = f"{option('resume')} with another end would give the updates that were made other learning rates"
        what, allowed = f"{what}: this schedule ends with training.updates", f"{earlier.training.updates}, or a new run"
        raise UserError(what, where="training.updates", received=updates, allowed=allowed)


def _session(
    recipe: Recipe, folder: RunFolder, corpora: Corpora, parallel: Parallel, arithmetic: Arithmetic
) -> Session:
    hashes = data_hashes(corpora)
    parallel.from_first(partial(_check_same_data, folder, hashes))
    checkpoint = parallel.on_first(partial(load_latest, folder.checkpoints, warn))
    if not parallel.first:  # which has removed damaged ones by now
        checkpoint = load_latest(folder.checkpoints, warn)
    state = checkpoint.state if checkpoint else TrainingState()
    model = new_model(recipe, corpora, initial=checkpoint is None)
    if checkpoint:
        load_weights(model, checkpoint.weights, str(folder.checkpoints))
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
    wrapped = parallel.wrap(step, model.layers())
    if recipe.training.compile:
        check_compiler(parallel.device)
        step.compile(dynamic=True)  # lengths differ from batch to batch
    optimizer = build_optimizer(recipe.optimizer, step)
    if checkpoint:
        restore_optimizer(step, optimizer, checkpoint.optimizer, str(folder.checkpoints))
    by_language = not state.update or "dev_language" in folder.read_manifest()
    metrics = dev_metrics(recipe, by_language=by_language)
    if checkpoint is None:
        parallel.on_first(partial(_warn_of_missing, corpora, metrics))
    baselines = parallel.on_first(partial(baseline_scores, corpora, metrics)) or {}
    parallel.on_first(partial(_start_records, folder, recipe, model, corpora, state, arithmetic, parallel.world_size))
    records = Records(folder, write=parallel.first, tensorboard=recipe.training.tensorboard)
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
        baselines,
        records,
        complete=bool(state.stopped),
    )


def _warn_of_missing(corpora: Corpora, metrics: Sequence[Metric]) -> None:
    """Say what metrics look for and dev does not have, with which its scores are 0 to the end."""
    if corpora.dev is not None:
        missing = (metric.missing(corpora.dev.references) for metric in metrics)
        for what in filter(None, dict.fromkeys(missing)):
            warn(f"data.dev: {what}")


def _check_same_data(folder: RunFolder, hashes: dict[str, str]) -> None:
    folder.check_vocabulary()
    known = folder.read_manifest().get("data", hashes)
    if known != hashes:
        changed = ", ".join(f"data.{name}" for name in sorted(known | hashes) if known.get(name) != hashes.get(name))
        what = f"the data has changed since this run began: {changed}"
        raise UserError(what, where=str(folder.path), allowed="the data of its beginning, or a new run")


def _start_records(
    folder: RunFolder, recipe: Recipe, model: nn.Module, corpora: Corpora, state: TrainingState,
    arithmetic: Arithmetic, processes: int,
) -> None:  # fmt: skip
    """Write the manifest, and metrics.jsonl without what came after the checkpoint that training goes on from."""
    parameters = sum(parameter.numel() for name, parameter in model.named_parameters() if CHANGE not in name)
    learning = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    parts = {"train": corpora.train, "dev": corpora.dev and corpora.dev.corpus}
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
            "headway": headway.__version__,
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
            "precision": arithmetic.precision,
            "bf16_speed": arithmetic.bf16_speed,
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
    """Say that training ends within the warm-up, so that no schedule lowers the learning rate."""
    updates, warmup = recipe.training.updates, recipe.optimizer.warmup
    if updates is not None and updates <= warmup:
        warn(f"training.updates {updates:,} are within optimizer.warmup {warmup:,}: the learning rate rises to the end")


@contextmanager
def training_lock(folder: Path) -> Iterator[None]:
    """Hold the lock of a run folder, which exists: one training at a time.

    The system lets go of the lock when its process ends, in whatever way, so that a killed run can be resumed at once.
    It holds between machines where the file system carries `flock` between them (NFS, CephFS, and Lustre and GPFS with
    their option for it); where it does not, the note in the file says what trained here last.

    Raises:
        UserError: another process trains there, or the folder cannot be written.
    """
    try:
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        raise UserError(f"the run folder cannot be written ({error.strerror})", where=str(folder)) from error
    try:
        _take(folder, descriptor)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps({"machine": socket.gethostname(), "process": os.getpid()}).encode(), 0)
        try:
            yield
        finally:
            os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def _take(folder: Path, descriptor: int) -> None:
    free = take_lock(descriptor)
    try:
        holder = parse_json(os.pread(descriptor, 1000, 0).decode(), str(folder / LOCK), dict)
    except (UserError, UnicodeDecodeError):  # the file names no process
        holder = {}
    named = f"process {holder.get('process')} of {holder.get('machine')}" if holder else ""
    if free is False:
        raise UserError("another process trains here", where=str(folder), received=named or None)
    if free is None:
        warn(f"{folder}: this file system has no locks; see that no other process trains here")
    elif holder and holder.get("machine") != socket.gethostname():
        warn(f"{folder}: {named} trained here and did not end by itself; see that it does not train any more")
