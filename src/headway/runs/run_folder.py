"""The run folder: all that an experiment leaves, and all that using its model needs. Nothing in it is pickled."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from headway.device import keep_freed_memory
from headway.errors import UserError
from headway.files import sha256, write_bytes, write_json, write_text
from headway.models import ModelConfig, Seq2Seq, build_model
from headway.processing.audio.audio_processor import FILE as AUDIO
from headway.processing.audio.audio_processor import AudioSide
from headway.processing.text.text_processor import Side, Words, load_side, load_sides
from headway.processing.text.truncation import Truncation
from headway.processing.text.vocabulary import Vocabulary
from headway.recipe import Recipe, dump_recipe, parse_recipe, read_tree

FORMAT = 1


@dataclass(frozen=True)
class RunFolder:
    """Paths of a run folder, and its parts read or written one by one."""

    path: Path

    @property
    def recipe_file(self) -> Path:
        """The resolved recipe."""
        return self.path / "recipe.yaml"

    @property
    def vocabulary(self) -> Path:
        """The folder of both sides' text preparation and vocabularies."""
        return self.path / "vocabulary"

    @property
    def weights(self) -> Path:
        """The final weights, or, while training goes on, the best so far."""
        return self.path / "model.safetensors"

    @property
    def checkpoints(self) -> Path:
        """The folder with one folder a checkpoint."""
        return self.path / "checkpoints"

    @property
    def metrics(self) -> Path:
        """One JSON object a line: training progress and dev scores."""
        return self.path / "metrics.jsonl"

    @property
    def manifest_file(self) -> Path:
        """Versions, seeds, hashes of data and weights, machine."""
        return self.path / "manifest.json"

    @property
    def report(self) -> Path:
        """The report page."""
        return self.path / "report.html"

    def read_sides(self) -> tuple["SourceSide", Side]:
        """How sources become what the model reads, and targets ids. Raises UserError where it is missing or damaged."""
        if (self.vocabulary / AUDIO).is_file():
            return AudioSide.load(self.vocabulary), load_side(self.vocabulary / "target")
        return load_sides(self.vocabulary)

    def keep_sides(self, save: Callable[[Path], None]) -> None:
        """Store what prepares sources and targets, which `save` writes into a folder, whole or not at all."""
        unfinished = self.path / ".vocabulary.tmp"  # renamed when it is whole: a run may be killed here, too
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        save(unfinished)
        unfinished.rename(self.vocabulary)

    def read_recipe(self) -> Recipe:
        """The recipe of this run. Raises UserError where the folder is no run."""
        if not self.recipe_file.is_file():
            raise UserError("this is not a run folder: it has no recipe.yaml", where=str(self.path))
        self.read_manifest()
        return parse_recipe(read_tree(self.recipe_file))

    def write_recipe(self, recipe: Recipe) -> None:
        """Store the resolved recipe."""
        write_text(self.recipe_file, dump_recipe(recipe))

    def read_manifest(self) -> dict[str, Any]:
        """The manifest, empty before there is one. Raises UserError where it is damaged or of a newer format."""
        if not self.manifest_file.is_file():
            return {}
        try:
            manifest: dict[str, Any] = json.loads(self.manifest_file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UserError(f"this manifest cannot be read ({error})", where=str(self.manifest_file)) from error
        if manifest.get("format", 0) > FORMAT:
            raise UserError(
                "this run was written by a newer version of headway",
                where=str(self.manifest_file),
                received=f"format {manifest['format']}",
                allowed=f"formats up to {FORMAT}",
            )
        return manifest

    def write_manifest(self, changes: dict[str, Any]) -> None:
        """Add `changes` to the manifest."""
        write_json(self.manifest_file, self.read_manifest() | {"format": FORMAT} | changes)

    def write_weights(self, weights: dict[str, Tensor], changes: dict[str, Any]) -> None:
        """Store the weights, and their hash with `changes` in the manifest."""
        write_bytes(self.weights, save(weights))
        self.write_manifest({"model_sha256": sha256(self.weights)} | changes)


class SourceSide(Protocol):
    """What prediction knows of sources: of lines of text (`Side`) or of recordings (`AudioSide`)."""

    @property
    def vocabulary(self) -> Vocabulary | None:
        """The pieces; None where a source has none."""

    @property
    def size(self) -> int:
        """How many pieces there are, or how many numbers a frame has."""

    def name(self, source: Any) -> str:
        """What a raw source is called."""

    def encode(self, source: Any) -> Any:
        """A raw source as batches hold it: ids without marks, or frames. Raises UserError where it cannot be read."""

    def read(self, source: Any, truncation: Truncation | None) -> tuple[Any, bool]:
        """`encode` of as much of a raw source as `truncation` says, and whether it has more."""

    def tokens(self, encoded: Any) -> list[str]:
        """The pieces of an encoded source."""

    def words(self, encoded: Any) -> Words:
        """The words that these pieces make."""

    def seconds(self, frames: NDArray[np.integer]) -> list[str]:
        """Of speech, the seconds at which these frames begin, each for one position of a memory; nothing of text."""

    def same(self, other: Any) -> bool:
        """Whether a model of the other side can read what this one encodes."""


@dataclass(frozen=True)
class LoadedRun:
    """A trained model with what prepares its sources and targets."""

    recipe: Recipe
    source: SourceSide
    target: Side
    model: Seq2Seq


def load_run(path: Path, device: torch.device, average: int | None = None) -> LoadedRun:
    """Load a run's model, ready to decode.

    Args:
        path: the run folder.
        device: where the model goes.
        average: use the mean of the last so many checkpoints instead of the final weights.

    Raises:
        UserError: no run folder, no weights yet, or weights that do not match their recipe or are damaged.
    """
    keep_freed_memory()
    folder = RunFolder(path)
    recipe = folder.read_recipe()
    if not folder.vocabulary.is_dir():
        raise UserError("this run has no vocabulary yet: training has not begun", where=str(path))
    source, target = folder.read_sides()
    shared = source.vocabulary is target.vocabulary
    model = build_model(recipe.model_as(ModelConfig), source.size, target.size, shared)
    load_weights(model, trained_weights(folder, average), str(folder.weights))
    return LoadedRun(recipe, source, target, model.to(device).eval())


def trained_weights(folder: RunFolder, average: int | None) -> dict[str, Tensor]:
    """A run's final weights, or the mean of its last `average` checkpoints. Raises UserError where there are none."""
    if average is not None:
        return average_weights(checkpoint_weights(folder, average))
    if not folder.weights.is_file():
        where = str(folder.path)
        raise UserError("this run has no model yet: training has not reached its first checkpoint", where=where)
    return read_weights(folder.weights)


def checkpoint_weights(folder: RunFolder, count: int) -> list[Path]:
    """The weight files of the last `count` checkpoints. Raises UserError where there are fewer."""
    files = sorted(folder.checkpoints.glob("update-*/model.safetensors"))
    if len(files) < count:
        raise UserError(
            "this run has not kept so many checkpoints",
            where="--average",
            received=count,
            allowed=f"up to {len(files)}",
        )
    return files[-count:]


def read_weights(file: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file. Raises UserError where it is damaged."""
    try:
        return load_file(file)
    except (SafetensorError, OSError) as error:
        raise UserError(f"these weights cannot be read ({error})", where=str(file)) from error


def average_weights(files: list[Path]) -> dict[str, Tensor]:
    """The mean of the weights in `files`, summed in float64 in the order given."""
    total = {name: tensor.double() for name, tensor in read_weights(files[0]).items()}
    for file in files[1:]:
        for name, tensor in read_weights(file).items():
            total[name] += tensor
    return {name: (tensor / len(files)).float() for name, tensor in total.items()}


def model_weights(model: nn.Module) -> dict[str, Tensor]:
    """All that a model has learned, by name: its parameters, each shared one once, and its persistent buffers."""
    persistent = model.state_dict().keys()
    buffers = {name: buffer for name, buffer in model.named_buffers() if name in persistent}
    return dict(model.named_parameters()) | buffers


def load_weights(model: nn.Module, weights: dict[str, Tensor], where: str) -> None:
    """Put `weights` into `model`. Raises UserError unless names and shapes match."""
    tensors = model_weights(model)
    wrong = sorted(tensors.keys() ^ weights.keys()) or [
        name for name, tensor in tensors.items() if tensor.shape != weights[name].shape
    ]
    if wrong:
        raise UserError(f"these weights are not of this model (first difference: {wrong[0]})", where=where)
    with torch.no_grad():
        for name, tensor in tensors.items():
            tensor.copy_(weights[name])
