"""The run folder: all that an experiment leaves, and all that using its model needs. Nothing in it is pickled."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from headway.documents import read_json
from headway.errors import UserError, option
from headway.files import sha256, write_bytes, write_json, write_text
from headway.predictors.run import WEIGHTS
from headway.recipe import Recipe, dump_recipe, parse_recipe, read_tree
from headway.registry import names_of_a_run
from headway.runs.migration import FORMAT, todays_recipe


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
        """The folder of the processors."""
        return self.path / "vocabulary"

    @property
    def weights(self) -> Path:
        """The final weights, or, while training goes on, the best so far."""
        return self.path / WEIGHTS

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

    def read_recipe(self) -> Recipe:
        """The recipe of this run. Raises UserError where it is no run, or names code that nobody allowed."""
        if not self.recipe_file.is_file():
            raise UserError("this is not a run folder: it has no recipe.yaml", where=str(self.path))
        version = self.read_manifest().get("format", FORMAT)
        with names_of_a_run():
            return parse_recipe(todays_recipe(read_tree(self.recipe_file, alone=True), version))

    def write_recipe(self, recipe: Recipe) -> None:
        """Store the resolved recipe."""
        write_text(self.recipe_file, dump_recipe(recipe))

    def read_manifest(self) -> dict[str, Any]:
        """The manifest, empty before there is one. Raises UserError where it is damaged or of a newer format."""
        if not self.manifest_file.is_file():
            return {}
        manifest: dict[str, Any] = read_json(self.manifest_file, what="manifest")
        if not isinstance(manifest.get("format", 0), int):
            raise UserError(
                "the manifest is damaged: its format is no number",
                where=str(self.manifest_file),
                received=manifest["format"],
            )
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
            where=option("average"),
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
