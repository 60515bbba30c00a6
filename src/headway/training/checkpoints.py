"""Checkpoints of training: written atomically, read back, and pruned."""

import json
import shutil
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from pydantic import ConfigDict, TypeAdapter, ValidationError
from safetensors.torch import save
from torch import Tensor, nn
from torch.optim import Optimizer

from headway.core.errors import RunError, UserError, in_one_line
from headway.core.files import remove, remove_leftovers, write_bytes, write_text
from headway.core.registry import is_own
from headway.core.storage import keep_folder
from headway.core.system import move
from headway.metrics.metric import rank
from headway.predictors.predictor import WEIGHTS
from headway.runs.run_folder import (
    FILE_LEFTOVERS,
    OPTIMIZER,
    STATE,
    damage,
    folder_of,
    hash_of,
    hashes_of,
    list_checkpoints,
    read_state,
    read_tensors,
    update_of,
)
from headway.training.parallel import like, whole

RAW = "#weight"  # suffix of weights whose moving averages the checkpoint has, too
NUMBER = "#number"  # suffix of entries that are Python numbers
GROUPS = "param_groups"  # instead of a parameter's name


@dataclass
class UpdateWindow:
    """Sums over the updates since the last line of metrics.jsonl."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    updates: int = 0  # without the skipped ones
    skipped: int = 0  # updates whose loss or gradients were not finite
    tokens: int = 0  # target tokens of `updates`
    loss: float = 0.0  # summed over these tokens
    unsmoothed: float = 0.0  # the cross-entropy without label smoothing, summed over `unsmoothed_tokens`
    unsmoothed_tokens: int = 0  # fewer than `tokens` after an older checkpoint
    parts: dict[str, float] = field(default_factory=dict)  # of the loss
    norm: float = 0.0  # the norm of the gradients, summed over updates
    began: float = 0.0  # seconds of training when the window began
    rate: float = 0.0  # the learning rate of the last update


class Ranked(NamedTuple):
    """One of the best evaluations of a run."""

    score: float  # lower is better; negated for a metric whose higher scores are better
    update: int
    loss: float | None = None  # on dev; None in checkpoints of older versions

    @property
    def place(self) -> tuple[float, float]:
        """The sort key: lower is better."""
        return rank(self.score, self.loss, higher_is_better=False)


@dataclass
class TrainingState:
    """The counters of a training run. Together with the weights and the optimizer's state, they determine the next
    update.

    Random numbers are a function of seed, update and rank, so no random state is stored. `best_at_end` is `best` with
    an evaluation at the end of training that was not due; it is cleared if training continues.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    update: int = 0
    epoch: int = 0
    batch: int = 0  # finished batches of the epoch
    bad_updates: int = 0
    evaluations_without_gain: int = 0
    best: list[Ranked] = field(default_factory=list)  # evaluations, best first
    best_at_end: list[Ranked] = field(default_factory=list)
    gains: list[bool] = field(default_factory=list)  # for each evaluation, whether it was better than all before
    target_tokens: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    stopped: str = ""
    evaluation_pending: bool = False  # the evaluation of this checkpoint is due, and not yet in `gains`
    window: UpdateWindow = field(default_factory=UpdateWindow)
    general: float | None = None  # the score of the general dev set before the first update
    forgotten: float = 0.0  # by how much that score has become worse


STATE_SHAPE = TypeAdapter(TrainingState)


def save_checkpoint(
    checkpoints: Path, state: TrainingState, weights: Mapping[str, Tensor], optimizer: Mapping[str, Tensor]
) -> Path:
    """Write a checkpoint atomically, and return its folder.

    Raises:
        RunError: the disk is full or not writable; earlier checkpoints are unchanged.
    """
    final = folder_of(checkpoints, state.update)

    def write(folder: Path) -> None:
        write_bytes(folder / WEIGHTS, save(dict(weights)))
        write_bytes(folder / OPTIMIZER, save(dict(optimizer)))
        _write_state(folder, state, hashes_of(folder))

    try:
        checkpoints.mkdir(parents=True, exist_ok=True)
        keep_folder(final, write)
    except OSError as error:
        last = list_checkpoints(checkpoints)
        kept = f"the last good checkpoint is {last[-1].name}" if last else "there is no earlier checkpoint"
        raise RunError(f"{final}: the checkpoint could not be written ({error}); {kept}") from error
    return final


def rewrite_state(checkpoints: Path, state: TrainingState) -> None:
    """Replace the state of the checkpoint after `state.update`, but not its tensors."""
    folder = folder_of(checkpoints, state.update)
    _write_state(folder, state, read_state(folder)["sha256"])


def _write_state(folder: Path, state: TrainingState, hashes: Mapping[str, str]) -> None:
    content = {"state": asdict(state), "sha256": hashes}
    write_text(folder / STATE, json.dumps(content | {"own_sha256": hash_of(content)}, indent=1))


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint in memory. If `weights` are moving averages, `raw` are the weights that training continues with."""

    state: TrainingState
    weights: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    raw: dict[str, Tensor]


def load_latest(checkpoints: Path, warn: Callable[[str], None]) -> Checkpoint | None:
    """Load the newest undamaged checkpoint, or None if there is none.

    Damaged checkpoints, even older ones, are reported to `warn` and removed, as the final model may average old ones.
    """
    whole_ones = []
    for folder in list_checkpoints(checkpoints):
        remove_leftovers(folder, FILE_LEFTOVERS)
        problem = damage(folder)
        if problem is None:
            whole_ones.append(folder)
        else:
            warn(f"checkpoint {folder.name} is damaged ({problem}) and will not be used")
            _remove(folder)
    if not whole_ones:
        return None
    newest, updates = whole_ones[-1], {update_of(folder) for folder in whole_ones}
    state = _parsed_state(newest)
    state.best, state.best_at_end = (
        [one for one in ranked if one.update in updates] for ranked in (state.best, state.best_at_end)
    )
    tensors = read_tensors(newest / OPTIMIZER)
    raw = {name.removesuffix(RAW): tensors.pop(name) for name in list(tensors) if name.endswith(RAW)}
    return Checkpoint(state, read_tensors(newest / WEIGHTS), tensors, raw)


def _parsed_state(folder: Path) -> TrainingState:
    """The state of an undamaged checkpoint. Raises UserError if another version of headway wrote it."""
    content = read_state(folder)
    try:
        state = STATE_SHAPE.validate_python(content.get("state"))
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(
            f"another version of headway wrote this checkpoint, which this one cannot go on from"
            f" ({'.'.join(map(str, first['loc'])) or 'state'}: {first['msg']})",
            where=str(folder / STATE),
        ) from error
    if state.update != update_of(folder):
        raise UserError("this checkpoint has the name of another one", where=str(folder), received=state.update)
    return state


def prune(checkpoints: Path, keep: set[int]) -> None:
    for folder in list_checkpoints(checkpoints):
        if update_of(folder) not in keep:
            _remove(folder)


def _remove(folder: Path) -> None:
    """Remove a checkpoint. If a kill interrupts this, the remaining files do not look like a checkpoint."""
    doomed = folder.with_name(f".{folder.name}.old.tmp")
    shutil.rmtree(doomed, ignore_errors=True)
    move(folder, doomed)
    remove(doomed)


def optimizer_tensors(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """The optimizer's state as unsharded tensors named `PARAMETER/ENTRY` (every process must call this).

    Numbers, which third-party optimizers may have, are scalar tensors with names that end in `NUMBER`. Numbers of such
    an optimizer's parameter groups are called `GROUPS.INDEX/ENTRY`.

    Raises:
        UserError: the state has values of other types.
    """
    stored = [
        _stored(f"{name}/{entry}", value)
        for name, parameter in model.named_parameters()
        for entry, value in optimizer.state.get(parameter, {}).items()
    ]
    if not (is_own(optimizer) or type(optimizer).__module__.startswith("torch.optim.")):  # their numbers are options
        stored += [
            _stored(f"{GROUPS}.{index}/{entry}", value)
            for index, group in enumerate(optimizer.param_groups)
            for entry, value in group.items()
            if entry != "lr" and isinstance(value, bool | int | float)  # the schedule sets the learning rate
        ]
    return dict(stored)


def _stored(key: str, value: Any) -> tuple[str, Tensor]:
    if isinstance(value, Tensor):
        return key, whole(value)
    if isinstance(value, bool | int | float):
        return f"{key}{NUMBER}", torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else None)
    what, allowed = "the state of this optimizer cannot be stored", "tensors and numbers"
    raise UserError(what, where="optimizer.kind", received=f"{key}: {type(value).__name__}", allowed=allowed)


def restore_optimizer(model: nn.Module, optimizer: Optimizer, tensors: Mapping[str, Tensor], where: str) -> None:
    """Restore the state from `optimizer_tensors`. Raises UserError if it does not fit this optimizer and model."""
    parameters, states = dict(model.named_parameters()), defaultdict[str, dict[str, Tensor]](dict)
    for key, value in tensors.items():
        name, _, entry = key.rpartition("/")
        states[name][entry] = value
    groups = {f"{GROUPS}.{index}": group for index, group in enumerate(optimizer.param_groups)}
    for name in groups.keys() & states.keys():
        groups[name].update({entry.removesuffix(NUMBER): value.item() for entry, value in states.pop(name).items()})
    wrong = sorted(states.keys() - parameters.keys())
    if is_own(optimizer):  # third-party optimizers may store anything
        for group in optimizer.param_groups if not wrong else ():
            inside = set(map(id, group["params"]))
            of_group = {name: state for name, state in states.items() if id(parameters[name]) in inside}
            wrong += _wrong_entries(of_group, parameters)
    if wrong:
        what = f"this is no state of this optimizer (first difference: {in_one_line(wrong[0])})"
        raise UserError(what, where=where)
    for name, entries in states.items():
        parameter = parameters[name]
        optimizer.state[parameter] = {
            entry.removesuffix(NUMBER): value.item() if entry.endswith(NUMBER) else like(value, parameter)
            for entry, value in entries.items()
        }


def _wrong_entries(states: Mapping[str, Mapping[str, Tensor]], parameters: Mapping[str, nn.Parameter]) -> list[str]:
    """The entries whose shape or dtype does not fit their parameter, and entries that some parameters lack."""
    entries = {entry for state in states.values() for entry in state}
    wrong = [f"{name}/{entry}" for name, state in states.items() for entry in sorted(entries - state.keys())]
    for name, state in states.items():
        shapes = (parameters[name].shape, parameters[name].dtype), (torch.Size(), torch.float32)
        for entry, value in state.items():
            if (value.shape, value.dtype) != shapes[entry == "step"]:
                wrong.append(f"{name}/{entry}, {tuple(value.shape)} {value.dtype}")
    return wrong
