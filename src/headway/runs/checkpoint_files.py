"""Checkpoints on disk: their names, their hashes, and how a damaged one is recognised.

checkpoints/update-00001000/  model.safetensors  optimizer.safetensors  state.json (with the SHA-256 of the other two)

Only folders whose names are `update-` and eight digits are checkpoints. Whatever else a user keeps beside them is never
read, renamed or removed.
"""

import json
import re
from collections.abc import Mapping, Sequence
from hashlib import sha256 as sha256_of
from itertools import pairwise
from pathlib import Path
from typing import Any

from headway.documents import parse_json
from headway.errors import UserError
from headway.files import sha256
from headway.predictors.predictor import WEIGHTS

OPTIMIZER, STATE = "optimizer.safetensors", "state.json"
NAME = re.compile(r"update-(\d{8})")
LEFTOVERS = r"update-\d{8}(?:\.old)?"  # in the folder of checkpoints, before `.tmp`
FILE_LEFTOVERS = "|".join(map(re.escape, (WEIGHTS, OPTIMIZER, STATE)))  # in a checkpoint, before `.tmp`


def folder_of(checkpoints: Path, update: int) -> Path:
    """The folder of the checkpoint after `update`."""
    return checkpoints / f"update-{update:08d}"


def update_of(folder: Path) -> int:
    """The update that a checkpoint folder was written after."""
    return int(folder.name.removeprefix("update-"))


def list_checkpoints(checkpoints: Path) -> list[Path]:
    """The checkpoint folders, oldest first, whether damaged or not."""
    return sorted(path for path in checkpoints.glob("update-*") if NAME.fullmatch(path.name) and path.is_dir())


def regular_updates(updates: Sequence[int], every: int, last: int | None) -> list[int]:
    """Those of the updates after which a run that nothing interrupts has checkpoints: every so many, and the last."""
    return [update for update in updates if update % every == 0 or update == last]


def in_a_row(updates: Sequence[int], every: int) -> list[int]:
    """The newest of regular updates without a gap; older ones may have been kept for their scores."""
    gaps = [later - earlier > every for earlier, later in pairwise(updates)]
    return list(updates[len(gaps) - gaps[::-1].index(True) :] if any(gaps) else updates)


def hashes_of(folder: Path) -> dict[str, str]:
    """The hashes of a checkpoint's tensors, by file."""
    return {name: sha256(folder / name) for name in (WEIGHTS, OPTIMIZER)}


def hash_of(content: Mapping[str, Any]) -> str:
    """The hash of what a checkpoint's state says."""
    return sha256_of(json.dumps(content, sort_keys=True).encode()).hexdigest()


def read_state(folder: Path) -> dict[str, Any]:
    """The content of a checkpoint's state.json: the state, and the hashes of the tensors.

    Raises:
        OSError: the file cannot be read.
        UserError: the file is no longer what was written.
    """
    file = folder / STATE
    content: dict[str, Any] = parse_json(file.read_bytes().decode("utf-8", "replace"), str(file), dict)
    recorded = content.pop("own_sha256", None)
    if recorded != hash_of(content):
        raise UserError("this file was changed", where=str(file))
    return content


def damage(folder: Path) -> str | None:
    """The damage of a checkpoint in words, or None if its checksums hold.

    Raises:
        OSError: a file is there and cannot be read, which says nothing about its content.
    """
    missing = [name for name in (STATE, WEIGHTS, OPTIMIZER) if not (folder / name).is_file()]
    if missing:
        return f"{missing[0]} is missing"
    try:
        known = read_state(folder).get("sha256")
    except UserError as error:
        return error.what
    changed = [
        name for name, value in hashes_of(folder).items() if not isinstance(known, dict) or known.get(name) != value
    ]
    return f"{changed[0]} was cut short or changed" if changed else None
