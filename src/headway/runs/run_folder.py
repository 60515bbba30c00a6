"""The run folder: all that an experiment leaves, and all that using its model needs. Nothing in it is pickled.

A checkpoint is a folder: checkpoints/update-00001000/ has model.safetensors, optimizer.safetensors and state.json, with
the SHA-256 of the other two. Only folders whose names are `update-` and eight digits are checkpoints. Whatever else a
user keeps beside them is never read, renamed or removed.
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


# Names that headway gives in a run folder, before `.tmp` while they are written.
CARD = "README.md"
LEFTOVERS = "|".join(
    map(re.escape, ("recipe.yaml", "vocabulary", WEIGHTS, "metrics.jsonl", "manifest.json", "report.html", CARD))
)

LARGEST_HEADER = 1 << 22  # bytes, in a file of weights; of some forty thousand tensors


class ImportedFile(BaseModel):
    """A file that a run was imported from."""

    model_config = ConfigDict(strict=True)

    name: str
    sha256: str


class ImportedEntry(BaseModel):
    """The origin of a run that others have trained: the format, and the files."""

    model_config = ConfigDict(strict=True)

    format: str
    files: list[ImportedFile]
    licence: str | None = None


class ManifestEntries(BaseModel):
    """The types of a manifest's entries, each of which may be missing; others may be there."""

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
    """How a run multiplied float32, as `headway.tensors.precision` has it; None where it has computed nothing yet.

    Runs from before there was a choice left it to torch.
    """
    if "machine" not in manifest:
        return None
    on_cuda = str(manifest["machine"].get("accelerator")).startswith("cuda")
    return manifest.get("float32") or ("cudnn" if on_cuda else "exact")


def precision_of(manifest: Mapping[str, Any]) -> str:
    """The precision of training in words: `bf16`, `float32`, `float32 as TF32`, or nothing where it is not known."""
    precision: str = manifest.get("precision", "")
    return f"{precision} as TF32" if precision == "float32" and manifest.get("float32") == "tf32" else precision


class RunFolder:
    """Paths of a run folder, and its parts read or written one by one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.recipe_file = path / "recipe.yaml"  # the resolved recipe
        self.vocabulary = path / "vocabulary"  # the folder of the processors
        self.weights = path / WEIGHTS  # the final ones, or, while training goes on, the best so far
        self.checkpoints = path / "checkpoints"  # the folder with one folder a checkpoint
        self.metrics = path / "metrics.jsonl"  # a JSON object a line: training progress and dev scores
        self.manifest_file = path / "manifest.json"  # versions, seeds, hashes of data and weights, machine
        self.card = path / CARD
        self.report = path / "report.html"

    def has_begun(self) -> bool:
        """Whether training has begun here: before, a recipe may be here, whose data could not be prepared."""
        return "status" in self.read_manifest() or bool(list_checkpoints(self.checkpoints)) or self.weights.is_file()

    def read_recipe(self) -> Recipe:
        """The recipe of this run. Raises UserError where it is no run, or names code that nobody allowed."""
        check_run(self.path)
        trained, tree = self.read_manifest().get("trained"), read_tree(self.recipe_file, alone=True)
        if trained is not None:  # older runs do not note what their weights are of
            now = trained_keys(tree)
            for key in sorted(key for key in now | trained if now.get(key) != trained.get(key)):
                what = "this recipe was edited after training; the weights are not of this model"
                where, allowed = f"{self.recipe_file}: {key}", repr(trained.get(key))
                raise UserError(what, where=where, received=now.get(key), allowed=allowed)
        with names_of_a_run():
            return parse_recipe(tree)

    def write_recipe(self, recipe: Recipe) -> None:
        """Store the resolved recipe, and in the manifest what the weights depend on.

        The manifest of an older run names the hash beforehand, so that whenever the process dies the format is known.
        """
        content = dump_recipe(recipe)
        if self.read_manifest().get("format", FORMAT) < FORMAT:
            self.write_manifest({"next_recipe_sha256": sha256_of(content.encode()).hexdigest()})
        write_text(self.recipe_file, content)
        trained = trained_keys(read_tree(self.recipe_file, alone=True))
        self.write_manifest({"format": FORMAT, "next_recipe_sha256": None, "trained": trained})

    def read_manifest(self) -> dict[str, Any]:
        """The manifest, empty before there is one. Raises UserError where it is damaged or of a newer format."""
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
        """Add `changes` to the manifest; an entry that is None goes."""
        manifest = {"format": FORMAT} | self.read_manifest() | changes
        write_json(self.manifest_file, {key: value for key, value in manifest.items() if value is not None})

    def write_weights(self, weights: dict[str, Tensor], changes: dict[str, Any]) -> None:
        """Store the weights, and their hash with `changes` in the manifest.

        The manifest names the hash beforehand, so that whenever the process dies the weights are known.
        """
        content = save(weights)
        digest = sha256_of(content).hexdigest()
        self.write_manifest({"next_model_sha256": digest})
        write_bytes(self.weights, content)
        self.write_manifest({"model_sha256": digest, "next_model_sha256": None} | changes)

    def vocabulary_hashes(self) -> dict[str, str]:
        """The hashes of the processors' files, by their names in the folder."""
        return file_hashes(self.vocabulary)

    def check_vocabulary(self) -> None:
        """Raise UserError without processors, or where a file of them is not the one that training used.

        Older runs do not note which these were.
        """
        if not self.vocabulary.is_dir():
            raise UserError("this run has no vocabulary yet: training has not begun", where=str(self.path))
        now = self.vocabulary_hashes()
        for name, known in self.read_manifest().get("vocabulary", {}).items():
            if now.get(name) != known:
                what = "this file is missing" if name not in now else "this file is not the one that training used"
                raise UserError(what, where=str(self.vocabulary / name))

    def check_has_weights(self) -> None:
        """Raise UserError where the weights are missing: training has not written them yet, or they are lost."""
        if self.weights.is_file():
            return
        if "model_sha256" in self.read_manifest():
            raise UserError("the weights of this run are missing", where=str(self.weights))
        what = "this run has no model yet: training has not reached its first checkpoint"
        raise UserError(what, where=str(self.path))

    def read_weights(self) -> dict[str, Tensor]:
        """The weights, which are those that training wrote.

        Raises:
            UserError: they are missing, damaged, or not those that the manifest knows.
        """
        self.check_has_weights()
        with _reading(self.weights):
            before, after = None, _identity(self.weights)
            while after != before:  # until no run that goes on has replaced them meanwhile
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
    """The weight files of the last `count` regular checkpoints. Raises UserError where one is missing or damaged."""
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
    """The keys of a recipe's raw tree that say what its weights are of, with values as JSON has them."""
    keys = flatten({name: tree[name] for name in ("task", "model") if name in tree})
    values: dict[str, Any] = json.loads(json.dumps(keys, default=str))
    return values


def _identity(file: Path) -> tuple[int, ...]:
    """Numbers that tell a file from the one that replaces it."""
    status = file.stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def read_tensors(file: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file. Raises UserError where it is damaged."""
    with _reading(file):
        return _load(file)


def _load(file: Path) -> dict[str, Tensor]:
    """`load_file`, but for a file with more tensors than a model has: each takes memory, if it is empty. UserError."""
    with file.open("rb") as opened:
        size = int.from_bytes(opened.read(8), "little")
    if size > LARGEST_HEADER:
        what = "these weights cannot be read (their list of tensors is longer than a model's)"
        raise UserError(what, where=str(file), received=size, allowed=f"up to {LARGEST_HEADER:,} bytes")
    return load_file(file)


@contextmanager
def _reading(file: Path) -> Iterator[None]:
    """Raise UserError where reading weights fails."""
    try:
        yield
    except (SafetensorError, OSError) as error:
        raise UserError(f"these weights cannot be read ({error})", where=str(file)) from error


def average_weights(files: list[Path]) -> dict[str, Tensor]:
    """The mean of the weights in `files`, summed in float64 in the order given. Raises UserError where they differ.

    Types stay as they are. What holds no fractions, such as a table of indices, is that of the last file.
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
    """The names of weights that hold a number which is not finite; a buffer may be infinite, as masks are."""
    learned = {name for name, _ in model.named_parameters()}

    def is_bad(name: str, tensor: Tensor) -> bool:
        return bool((~tensor.isfinite() if name in learned else tensor.isnan()).any())

    floats = [(name, tensor) for name, tensor in weights.items() if _has_fractions(tensor)]
    # A sum is finite only where all numbers are, and much quicker than a look at each.
    return [name for name, tensor in floats if not tensor.sum().isfinite() and is_bad(name, tensor)]


def model_weights(model: nn.Module) -> dict[str, Tensor]:
    """All that a model has learned, by name: its parameters, each shared one once, and its persistent buffers."""
    persistent = model.state_dict().keys()
    buffers = {name: buffer for name, buffer in model.named_buffers() if name in persistent}
    return dict(model.named_parameters()) | buffers


def load_weights(model: nn.Module, weights: dict[str, Tensor], where: str) -> None:
    """Put `weights` into `model`. Raises UserError unless names, shapes and types match, and all numbers are finite."""
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
    """Values of a recipe or a manifest with the names of files in the place of absolute paths."""
    if isinstance(value, Mapping):
        return {key: portable(each) for key, each in value.items()}
    if isinstance(value, list):
        return list(map(portable, value))
    if isinstance(value, str) and value.removeprefix(PREFIX).startswith("/"):
        return value[: len(value) - len(value.removeprefix(PREFIX))] + value.rpartition("/")[2]
    return value
