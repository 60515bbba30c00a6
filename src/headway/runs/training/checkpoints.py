"""Checkpoints: one folder each, written whole or not at all, recognised when damaged.

checkpoints/update-00001000/  model.safetensors  optimizer.safetensors  state.json (with the SHA-256 of the other two)
"""

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from hashlib import sha256 as sha256_of
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save
from torch import Tensor, nn
from torch.optim import Optimizer

from headway.errors import RunError
from headway.files import remove_leftovers, sha256, sync_folder, write_bytes, write_text
from headway.runs.training.parallel import like, whole


@dataclass
class TrainingState:
    """Where training stands; with the weights and the optimizer's tensors, all that the next update depends on.

    The random numbers of an update are a function of seed, update and rank, so there is no random state to keep.
    `batch` counts batches of the epoch that are done. `best` holds (score, update) of the best evaluations, best first.
    `evaluation_pending`: the checkpoint's own evaluation is due and not yet among them.
    """

    update: int = 0
    epoch: int = 0
    batch: int = 0
    bad_updates: int = 0
    evaluations_without_gain: int = 0
    best: list[tuple[float, int]] = field(default_factory=list)
    target_tokens: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    stopped: str = ""
    evaluation_pending: bool = False


def folder_of(checkpoints: Path, update: int) -> Path:
    """The folder of the checkpoint after `update`."""
    return checkpoints / f"update-{update:08d}"


def update_of(folder: Path) -> int:
    """The update that a checkpoint folder was written after."""
    return int(folder.name.removeprefix("update-"))


def save_checkpoint(
    checkpoints: Path, state: TrainingState, weights: Mapping[str, Tensor], optimizer: Mapping[str, Tensor]
) -> Path:
    """Write a checkpoint: into a temporary folder, synced, then renamed.

    Raises:
        RunError: the disk is full or not writable; what was written before is untouched.
    """
    final = folder_of(checkpoints, state.update)
    temporary = checkpoints / f".{final.name}.tmp"
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        write_bytes(temporary / "model.safetensors", save(dict(weights)))
        write_bytes(temporary / "optimizer.safetensors", save(dict(optimizer)))
        _write_state(temporary, state, _hashes(temporary))
        sync_folder(temporary)
        if final.exists():
            _remove(final)
        temporary.rename(final)
        sync_folder(checkpoints)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        last = list_checkpoints(checkpoints)
        kept = f"the last good checkpoint is {last[-1].name}" if last else "there is no earlier checkpoint"
        raise RunError(f"{final}: the checkpoint could not be written ({error}); {kept}") from error
    return final


def rewrite_state(checkpoints: Path, state: TrainingState) -> None:
    """Replace the state of the checkpoint after `state.update`, whose tensors stay as they are."""
    folder = folder_of(checkpoints, state.update)
    _write_state(folder, state, json.loads((folder / "state.json").read_text(encoding="utf-8"))["sha256"])


def _write_state(folder: Path, state: TrainingState, hashes: Mapping[str, str]) -> None:
    content = {"state": asdict(state), "sha256": hashes}
    write_text(folder / "state.json", json.dumps(content | {"own_sha256": _hash_of(content)}, indent=1))


def _hashes(folder: Path) -> dict[str, str]:
    return {name: sha256(folder / name) for name in ("model.safetensors", "optimizer.safetensors")}


def _hash_of(content: Mapping[str, Any]) -> str:
    return sha256_of(json.dumps(content, sort_keys=True).encode()).hexdigest()


def list_checkpoints(checkpoints: Path) -> list[Path]:
    """The checkpoint folders, oldest first, whether damaged or not."""
    return sorted(checkpoints.glob("update-*"))


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that was read and found whole."""

    state: TrainingState
    weights: dict[str, Tensor]
    optimizer: dict[str, Tensor]


def damage(folder: Path) -> str | None:
    """The damage of a checkpoint in words, or None if its checksums hold."""
    try:
        content = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        recorded = content.pop("own_sha256")
        if recorded != _hash_of(content):
            return "state.json was changed"
        for name, expected in content["sha256"].items():
            if sha256(folder / name) != expected:
                return f"{name} was cut short or changed"
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def load_latest(checkpoints: Path, warn: Callable[[str], None]) -> Checkpoint | None:
    """The newest checkpoint that is whole, or None.

    Damaged ones are named to `warn` and removed, also among the older: the final model may be a mean of those.
    """
    whole_ones = []
    for folder in list_checkpoints(checkpoints):
        remove_leftovers(folder)
        problem = damage(folder)
        if problem is None:
            whole_ones.append(folder)
        else:
            warn(f"checkpoint {folder.name} is damaged ({problem}) and will not be used")
            _remove(folder)
    if not whole_ones:
        return None
    newest, updates = whole_ones[-1], {update_of(folder) for folder in whole_ones}
    content = json.loads((newest / "state.json").read_text(encoding="utf-8"))["state"]
    content["best"] = [(score, update) for score, update in content["best"] if update in updates]
    return Checkpoint(
        TrainingState(**content),
        load_file(newest / "model.safetensors"),
        load_file(newest / "optimizer.safetensors"),
    )


def prune(checkpoints: Path, keep: set[int]) -> None:
    """Remove the checkpoints whose update is not in `keep`."""
    for folder in list_checkpoints(checkpoints):
        if update_of(folder) not in keep:
            _remove(folder)


def _remove(folder: Path) -> None:
    """Remove a checkpoint; one that a kill leaves half removed no longer looks like a checkpoint, or a damaged one."""
    doomed = folder.with_name(f".{folder.name}.old.tmp")
    shutil.rmtree(doomed, ignore_errors=True)
    folder.rename(doomed)
    shutil.rmtree(doomed)


def optimizer_tensors(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """The optimizer's state as whole tensors named `PARAMETER/ENTRY` (every process must call this)."""
    return {
        f"{name}/{entry}": whole(value)
        for name, parameter in model.named_parameters()
        for entry, value in optimizer.state.get(parameter, {}).items()
    }


def restore_optimizer(model: nn.Module, optimizer: Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put back what `optimizer_tensors` gave."""
    for name, parameter in model.named_parameters():
        entries = {key.rpartition("/")[2]: value for key, value in tensors.items() if key.rpartition("/")[0] == name}
        if entries:
            optimizer.state[parameter] = {entry: like(value, parameter) for entry, value in entries.items()}
