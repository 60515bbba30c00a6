"""The run folder: all files that training writes, and that using the model needs. Nothing in it is pickled.

A checkpoint is a folder: checkpoints/update-00001000/ has model.safetensors, optimizer.safetensors and state.json, with
the SHA-256 of the other two. Only folders named `update-` and eight digits are checkpoints. Other files of the user
beside them are never read, renamed or removed.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256 as sha256_of
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from headway.core.documents import parse_json, read_json, shaped
from headway.core.errors import UserError, option
from headway.core.files import sha256, write_bytes, write_json, write_text
from headway.core.log import warn
from headway.core.registry import names_of_a_run
from headway.core.storage import file_hashes
from headway.predictors.predictor import WEIGHTS
from headway.processing.marian_files import PREFIX
from headway.recipe import Recipe, dump_recipe, flatten, parse_recipe, read_tree
from headway.recipe.migration import FORMAT
from headway.recipe.reading import check_run
from headway.tensors.low_rank import merged

OPTIMIZER, STATE = "optimizer.safetensors", "state.json"
NAME = re.compile(r"update-(\d{8})")
CHECKPOINT_LEFTOVERS = r"update-\d{8}(?:\.old)?"  # in the folder of checkpoints, before `.tmp`
FILE_LEFTOVERS = "|".join(map(re.escape, (WEIGHTS, OPTIMIZER, STATE)))  # in a checkpoint, before `.tmp`


def folder_of(checkpoints: Path, update: int) -> Path:
    return checkpoints / f"update-{update:08d}"


def update_of(folder: Path) -> int:
    return int(folder.name.removeprefix("update-"))


def list_checkpoints(checkpoints: Path) -> list[Path]:
    """The checkpoint folders, oldest first, including damaged ones."""
    return sorted(path for path in checkpoints.glob("update-*") if NAME.fullmatch(path.name) and path.is_dir())


def regular_updates(updates: Sequence[int], every: int, last: int | None) -> list[int]:
    """The updates after which an uninterrupted run has checkpoints: the multiples of `every`, and `last`."""
    return [update for update in updates if update % every == 0 or update == last]


def in_a_row(updates: Sequence[int], every: int) -> list[int]:
    """The newest regular updates without a gap. Older checkpoints may have been kept for their scores."""
    gaps = [later - earlier > every for earlier, later in pairwise(updates)]
    return list(updates[len(gaps) - gaps[::-1].index(True) :] if any(gaps) else updates)


def hashes_of(folder: Path) -> dict[str, str]:
    """The hashes of a checkpoint's tensors, by file."""
    return {name: sha256(folder / name) for name in (WEIGHTS, OPTIMIZER)}


def hash_of(content: Mapping[str, Any]) -> str:
    """The hash of the content of a checkpoint's state.json."""
    return sha256_of(json.dumps(content, sort_keys=True).encode()).hexdigest()


def read_state(folder: Path) -> dict[str, Any]:
    """The content of a checkpoint's state.json: the state, and the hashes of the tensors.

    Raises:
        OSError: the file cannot be read.
        UserError: the file was changed.
    """
    file = folder / STATE
    content: dict[str, Any] = parse_json(file.read_bytes().decode("utf-8", "replace"), str(file), dict)
    recorded = content.pop("own_sha256", None)
    if recorded != hash_of(content):
        raise UserError("this file was changed", where=str(file))
    return content


def damage(folder: Path) -> str | None:
    """A description of a checkpoint's damage, or None if its checksums match.

    Raises:
        OSError: a file exists but cannot be read, which is not evidence of damage.
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


# The names of headway's files in a run folder. While they are written, they end in `.tmp`.
CARD = "README.md"
LEFTOVERS = "|".join(
    map(re.escape, ("recipe.yaml", "vocabulary", WEIGHTS, "metrics.jsonl", "manifest.json", "report.html", CARD))
)

LARGEST_HEADER = 1 << 22  # bytes in a file of weights, enough for about forty thousand tensors


class ImportedFile(BaseModel):
    """A file that a run was imported from."""

    model_config = ConfigDict(strict=True)

    name: str
    sha256: str


class ImportedEntry(BaseModel):
    """The origin of an imported run: the format, the files, and the factors of integers by the names of the format.

    The licences are those of the data and of the teacher that its files name.
    """

    model_config = ConfigDict(strict=True)

    format: str
    files: list[ImportedFile]
    licence: str | None = None
    factors: dict[str, float] | None = None
    licences: dict[str, str | None] | None = None


class ManifestEntries(BaseModel):
    """The types of a manifest's known entries, all optional. A manifest may have other entries."""

    model_config = ConfigDict(extra="allow", strict=True, protected_namespaces=())

    format: int = Field(FORMAT, ge=1)
    headway: str = ""
    status: str = ""
    seed: int = 0
    parameters: int = 0
    updates: int = 0
    seconds: float = 0.0
    data: dict[str, str] = {}
    examples: dict[str, int] = {}
    target_tokens: int = 0
    machine: dict[str, Any] = {}
    precision: str = ""
    bf16_speed: float | None = None
    float32: Literal["exact", "cudnn", "tf32"] = "exact"
    backend: str = ""
    references: str = ""
    averaged_updates: list[int] = []
    dev_language: str = ""
    trained: dict[str, Any] = {}
    imported: ImportedEntry | None = None
    vocabulary: dict[str, str] = {}
    model_sha256: str = ""
    next_model_sha256: str = ""
    code: dict[str, str] = {}
    processes: int = 1
    cpu_seconds: float = 0.0
    evaluation_seconds: float = 0.0
    next_recipe_sha256: str = ""


MANIFEST = TypeAdapter(ManifestEntries)


def float32_of(manifest: Mapping[str, Any]) -> str | None:
    """How a run multiplied float32, a name in `headway.tensors.precision`; None if it has not computed anything yet.

    Older runs, without this entry, used torch's default.
    """
    if "machine" not in manifest:
        return None
    on_cuda = str(manifest["machine"].get("accelerator")).startswith("cuda")
    return manifest.get("float32") or ("cudnn" if on_cuda else "exact")


def precision_of(manifest: Mapping[str, Any]) -> str:
    """The precision of training as text: `bf16`, `float32`, `float32 as TF32`, or empty if it is not known."""
    precision: str = manifest.get("precision", "")
    return f"{precision} as TF32" if precision == "float32" and manifest.get("float32") == "tf32" else precision


class RunFolder:
    """The paths of a run folder, and methods that read or write each of its files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.recipe_file = path / "recipe.yaml"  # the resolved recipe
        self.vocabulary = path / "vocabulary"  # the folder of the processors
        self.weights = path / WEIGHTS  # the final weights or, during training, the best so far
        self.checkpoints = path / "checkpoints"  # has a folder per checkpoint
        self.metrics = path / "metrics.jsonl"  # a JSON object per line: training progress and dev scores
        self.manifest_file = path / "manifest.json"  # versions, seeds, hashes of data and weights, machine
        self.card = path / CARD
        self.report = path / "report.html"

    def has_begun(self) -> bool:
        """Whether training has begun. (A recipe alone may remain from a failed preparation of its data.)"""
        return "status" in self.read_manifest() or bool(list_checkpoints(self.checkpoints)) or self.weights.is_file()

    def read_recipe(self) -> Recipe:
        """Read the recipe. Raises UserError if this is not a run, or foreign code is not allowed."""
        check_run(self.path)
        trained, tree = self.read_manifest().get("trained"), read_tree(self.recipe_file, alone=True)
        if trained is not None:  # older manifests lack this entry
            now = trained_keys(tree)
            for key in sorted(key for key in now | trained if now.get(key) != trained.get(key)):
                what = "this recipe was edited after training; the weights are not of this model"
                where, allowed = f"{self.recipe_file}: {key}", repr(trained.get(key))
                raise UserError(what, where=where, received=now.get(key), allowed=allowed)
        with names_of_a_run():
            return parse_recipe(tree)

    def write_recipe(self, recipe: Recipe) -> None:
        """Write the resolved recipe, and record in the manifest the keys that the weights depend on.

        The manifest of an older run records the new hash first, so that its format is known if the process dies.
        """
        content = dump_recipe(recipe)
        if self.read_manifest().get("format", FORMAT) < FORMAT:
            self.write_manifest({"next_recipe_sha256": sha256_of(content.encode()).hexdigest()})
        write_text(self.recipe_file, content)
        trained = trained_keys(read_tree(self.recipe_file, alone=True))
        self.write_manifest({"format": FORMAT, "next_recipe_sha256": None, "trained": trained})

    def read_manifest(self) -> dict[str, Any]:
        """The manifest; empty if there is none. Raises UserError if it is damaged or of a newer format."""
        if not self.manifest_file.is_file():
            return {}
        manifest = shaped(
            read_json(self.manifest_file, what="manifest"), MANIFEST, str(self.manifest_file), "the manifest"
        ).model_dump(exclude_unset=True)
        if manifest.get("format", FORMAT) > FORMAT:
            what, received = "this run was written by a newer version of headway", f"format {manifest['format']}"
            where, allowed = str(self.manifest_file), f"formats up to {FORMAT}"
            raise UserError(what, where=where, received=received, allowed=allowed)
        return manifest

    def write_manifest(self, changes: dict[str, Any]) -> None:
        """Add `changes` to the manifest; an entry that is None is removed."""
        manifest = {"format": FORMAT} | self.read_manifest() | changes
        write_json(self.manifest_file, {key: value for key, value in manifest.items() if value is not None})

    def write_weights(self, weights: dict[str, Tensor], changes: dict[str, Any]) -> None:
        """Write the weights, and record their hash with `changes` in the manifest.

        The manifest records the new hash first, so that the weights are known if the process dies.
        """
        content = save(weights)
        digest = sha256_of(content).hexdigest()
        self.write_manifest({"next_model_sha256": digest})
        write_bytes(self.weights, content)
        self.write_manifest({"model_sha256": digest, "next_model_sha256": None} | changes)

    def vocabulary_hashes(self) -> dict[str, str]:
        """The hashes of the processors' files, by name."""
        return file_hashes(self.vocabulary)

    def check_vocabulary(self) -> None:
        """Raise UserError if the processors are missing, or their files are not those of training.

        Older runs do not record hashes.
        """
        if not self.vocabulary.is_dir():
            raise UserError("this run has no vocabulary yet: training has not begun", where=str(self.path))
        now = self.vocabulary_hashes()
        for name, known in self.read_manifest().get("vocabulary", {}).items():
            if now.get(name) != known:
                what = "this file is missing" if name not in now else "this file is not the one that training used"
                raise UserError(what, where=str(self.vocabulary / name))

    def check_has_weights(self) -> None:
        """Raise UserError if the weights are missing, before the first checkpoint or because they were lost."""
        if self.weights.is_file():
            return
        if "model_sha256" in self.read_manifest():
            raise UserError("the weights of this run are missing", where=str(self.weights))
        what = "this run has no model yet: training has not reached its first checkpoint"
        raise UserError(what, where=str(self.path))

    def read_weights(self) -> dict[str, Tensor]:
        """Read the weights, and check that training wrote them.

        Raises:
            UserError: they are missing, damaged, or have another hash than in the manifest.
        """
        self.check_has_weights()
        with _reading(self.weights):
            before, after = None, _identity(self.weights)
            while after != before:  # repeat if a running training replaced them meanwhile
                before = after
                weights, digest, manifest = _load(self.weights), sha256(self.weights), self.read_manifest()
                after = _identity(self.weights)
        known = {manifest[name] for name in ("model_sha256", "next_model_sha256") if name in manifest}
        if not known:
            warn(f"{self.weights}: the manifest has no hash of these weights, so that damage would not be noticed")
        elif digest not in known:
            raise UserError(
                "these weights are not those that training wrote: they are damaged, or were replaced",
                where=str(self.weights),
                received=f"SHA-256 {digest}",
                allowed=" or ".join(sorted(known)),
            )
        return weights


def checkpoint_weights(folder: RunFolder, count: int) -> list[Path]:
    """The weight files of the last `count` regular checkpoints. Raises UserError if one is missing or damaged."""
    if not isinstance(count, int) or count < 1:
        what = "the number of checkpoints is a whole one"
        raise UserError(what, where=option("average"), received=count, allowed="1 or more")
    every, last = folder.read_recipe().training.checkpoint_every, folder.read_manifest().get("updates")
    updates = regular_updates([update_of(path) for path in list_checkpoints(folder.checkpoints)], every, last)
    checkpoints = [folder_of(folder.checkpoints, update) for update in in_a_row(updates, every)]
    if len(checkpoints) < count:
        what, allowed = "this run has not kept so many checkpoints in a row", f"up to {len(checkpoints)}"
        raise UserError(what, where=option("average"), received=count, allowed=allowed)
    for checkpoint in checkpoints[-count:]:
        if problem := damage(checkpoint):
            raise UserError(f"this checkpoint is damaged ({problem})", where=str(checkpoint))
    return [checkpoint / WEIGHTS for checkpoint in checkpoints[-count:]]


def trained_keys(tree: dict[str, Any]) -> dict[str, Any]:
    """The keys of a recipe's raw tree that determine the model of the weights, with JSON values."""
    keys = flatten({name: tree[name] for name in ("task", "model") if name in tree})
    values: dict[str, Any] = json.loads(json.dumps(keys, default=str))
    return values


def _identity(file: Path) -> tuple[int, ...]:
    """A fingerprint of a file (device, inode, size, time) that changes when the file is replaced."""
    status = file.stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def read_tensors(file: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file. Raises UserError if it is damaged."""
    with _reading(file):
        return _load(file)


def _load(file: Path) -> dict[str, Tensor]:
    """Load a safetensors file. Raises UserError if its header is too large, because every tensor takes memory."""
    with file.open("rb") as opened:
        size = int.from_bytes(opened.read(8), "little")
    if size > LARGEST_HEADER:
        what = "these weights cannot be read (their list of tensors is longer than a model's)"
        raise UserError(what, where=str(file), received=size, allowed=f"up to {LARGEST_HEADER:,} bytes")
    return load_file(file)


@contextmanager
def _reading(file: Path) -> Iterator[None]:
    """Raise UserError if reading weights fails."""
    try:
        yield
    except (SafetensorError, OSError) as error:
        raise UserError(f"these weights cannot be read ({error})", where=str(file)) from error


def average_weights(files: list[Path]) -> dict[str, Tensor]:
    """The mean of the weights in `files`, summed in float64 in this order. Raises UserError if their shapes differ.

    Types are preserved. Tensors of integers, such as tables of indices, are those of the last file.
    """
    last = weights = merged(read_tensors(files[0]))
    total = {
        name: tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)
        for name, tensor in weights.items()
        if _has_fractions(tensor)
    }
    for file in files[1:]:
        weights = merged(read_tensors(file))
        shapes, others = ({name: tensor.shape for name, tensor in each.items()} for each in (weights, last))
        if shapes != others:
            raise UserError(f"these weights are of another model than those of {files[0]}", where=str(file))
        for name in total:
            total[name] += weights[name]
        last = weights
    return last | {name: (tensor / len(files)).to(last[name].dtype) for name, tensor in total.items()}


def _has_fractions(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def not_finite(weights: dict[str, Tensor], model: nn.Module) -> list[str]:
    """The names of weights with a value that is not finite. Buffers may be infinite, like masks, but not NaN."""
    learned = {name for name, _ in model.named_parameters()}

    def is_bad(name: str, tensor: Tensor) -> bool:
        return bool((~tensor.isfinite() if name in learned else tensor.isnan()).any())

    floats = [(name, tensor) for name, tensor in weights.items() if _has_fractions(tensor)]
    # A sum is only finite if all values are, and is much faster than checking each value.
    return [name for name, tensor in floats if not tensor.sum().isfinite() and is_bad(name, tensor)]


def model_weights(model: nn.Module) -> dict[str, Tensor]:
    """The weights of a model by name: its parameters (shared parameters once), and its persistent buffers."""
    persistent = model.state_dict().keys()
    buffers = {name: buffer for name, buffer in model.named_buffers() if name in persistent}
    return dict(model.named_parameters()) | buffers


def load_weights(model: nn.Module, weights: dict[str, Tensor], where: str) -> None:
    """Copy `weights` into `model`. Raises UserError unless names, shapes and types match, and all values are finite."""
    tensors = model_weights(model)
    wrong = sorted(tensors.keys() ^ weights.keys()) or [
        f"{name}, {tuple(weights[name].shape)} {weights[name].dtype} for {tuple(tensor.shape)} {tensor.dtype}"
        for name, tensor in tensors.items()
        if (tensor.shape, tensor.dtype) != (weights[name].shape, weights[name].dtype)
    ]
    if wrong:
        raise UserError(f"these weights are not of this model (first difference: {wrong[0]})", where=where)
    if bad := not_finite(weights, model):
        raise UserError(f"these weights are not finite (the first: {bad[0]}), as where training diverges", where=where)
    with torch.no_grad():
        for name, tensor in tensors.items():
            tensor.copy_(weights[name])


def portable(value: Any) -> Any:
    """Values of a recipe or a manifest, with absolute paths replaced by file names."""
    if isinstance(value, Mapping):
        return {key: portable(each) for key, each in value.items()}
    if isinstance(value, list):
        return list(map(portable, value))
    if isinstance(value, str) and value.removeprefix(PREFIX).startswith("/"):
        return value[: len(value) - len(value.removeprefix(PREFIX))] + value.rpartition("/")[2]
    return value
