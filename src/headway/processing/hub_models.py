"""Folders of encoder-decoder models in the layout of Hugging Face, local or downloaded, and their weights.

Weights are model.safetensors, or model.safetensors.index.json with its shards; otherwise pytorch_model.bin, or its
index with its shards.
"""

from __future__ import annotations

import os
import pickle
import struct
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import torch
from pydantic import BaseModel, TypeAdapter
from safetensors import SafetensorError, safe_open
from torch import Tensor

from headway.core.archives import opened_zip
from headway.core.documents import read_json, shaped
from headway.core.errors import UserError
from headway.core.files import exists
from headway.processing.hub import check_on_hub, files_of_bounded_size
from headway.processing.pretrained import transformers_quiet

FILES = ["*.json", "merges.txt", "*.model", "*.spm", "model*.safetensors"]  # all files except pickled weights
KINDS = ("model.safetensors", "pytorch_model.bin")  # in order of preference


def hub_folder(
    name: str, where: str, files: Sequence[str] = FILES, pickled: Sequence[str] = ("pytorch_model*.bin",)
) -> Path:
    """The folder of a model: `name` itself if it is a folder, otherwise the downloaded repository `OWNER/NAME`.

    Args:
        name: a folder, or a repository.
        where: the option that names the model, for messages.
        files: patterns of the files to download.
        pickled: patterns of further files to download if `files` contains no weights.

    Raises:
        UserError: there is no such model.
        RunError: the hub does not answer.
    """
    if name and exists(Path(name), "folder"):
        return Path(name)
    with transformers_quiet(where):
        from huggingface_hub import snapshot_download

        check_on_hub(name, where)
        endpoint = os.environ.get("HF_ENDPOINT") or None
        try:
            with files_of_bounded_size():
                folder = Path(snapshot_download(name, allow_patterns=list(files), endpoint=endpoint))
                if pickled and not any(folder.rglob("*.safetensors")):
                    snapshot_download(name, allow_patterns=list(pickled), endpoint=endpoint)
                return folder
        except Exception as error:  # the library and its dependencies can raise anything
            what = f"there is no such folder, nor can it be downloaded ({(str(error) or 'no reason').splitlines()[0]})"
            raise UserError(what, where=where, received=name) from error


def read_hub_config(folder: Path) -> dict[str, Any]:
    """Read the configuration of a model folder.

    Raises UserError if it is unreadable, or the folder is a headway run.
    """
    file = folder / "config.json"
    if (folder / "recipe.yaml").is_file() and not file.is_file():
        what = "this is a run of headway, not a model to import"
        raise UserError(what, where=str(folder), allowed="the folder itself in the place of RUN, without hf:")
    config: dict[str, Any] = read_json(file, what="configuration of a Hugging Face model")
    return config


class Index(BaseModel):
    """The index of a model's shards: the file that contains each tensor."""

    weight_map: dict[str, str]


def weight_files(folder: Path, where: str, kinds: Sequence[str] = KINDS) -> list[Path]:
    """The files with the weights of a model folder, in the first of the formats `kinds` that is present.

    Raises:
        UserError: there are no weights, there are several candidates, or the index names files elsewhere.
    """
    for name in kinds:
        file = folder / name
        if file.is_file():
            return [file]
        index = file.with_name(f"{file.name}.index.json")
        if index.is_file():
            shards = shaped(read_json(index), TypeAdapter(Index), str(index)).weight_map.values()
            if elsewhere := [
                shard for shard in shards if Path(shard).name != shard or not file.with_name(shard).is_file()
            ]:
                what = "the index of the weights names a file that is not there"
                raise UserError(what, where=str(index), received=elsewhere[0])
            return [file.with_name(shard) for shard in sorted(set(shards))]
        files = sorted(found for found in file.parent.glob(f"*{file.suffix}") if found.is_file())
        if len(files) > 1:
            what, received = "several files may be the weights of this model", ", ".join(file.name for file in files)
            raise UserError(what, where=where, received=received, allowed=f"one of them, as {name}")
        if files:
            return files
    raise UserError("this model has no weights", where=where, received=str(folder), allowed=" or ".join(kinds))


def read_weights(folder: Path, where: str, kinds: Sequence[str] = KINDS) -> dict[str, Tensor]:
    """Read all tensors of a model folder, without running any code in its files.

    Raises:
        UserError: as `weight_files`; a file is damaged, or contains more than tensors.
    """
    weights: dict[str, Tensor] = {}
    for file in weight_files(folder, where, kinds):
        try:
            if file.suffix in (".bin", ".ckpt"):
                weights |= _pickled(file)
            else:
                with safe_open(file, "pt") as tensors:
                    weights |= {name: tensors.get_tensor(name) for name in tensors.keys()}  # noqa: SIM118
        except (SafetensorError, OSError, EOFError, RuntimeError, ValueError, struct.error) as error:
            first = next(iter(str(error).splitlines()), type(error).__name__)
            raise UserError(f"these weights cannot be read ({first})", where=str(file)) from error
    return weights


def _pickled(file: Path) -> dict[str, Tensor]:
    """Read pickled tensors (of a checkpoint, its `state_dict`). Raises UserError if the file contains other objects."""
    what = "this file wants to run code, or holds more than tensors; it is not read"
    allowed = "model.safetensors, or a file of tensors alone"
    try:
        with warnings.catch_warnings(), opened_zip(file, "file of weights") if is_zipfile(file) else nullcontext():
            warnings.simplefilter("ignore")  # torch warns about formats that it has not written itself
            loaded = torch.load(file, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, AttributeError, ImportError, TypeError, KeyError, IndexError) as error:
        raise UserError(what, where=str(file), allowed=allowed) from error
    loaded = loaded.get("state_dict", loaded) if isinstance(loaded, dict) else loaded
    if not isinstance(loaded, dict) or not all(isinstance(tensor, Tensor) for tensor in loaded.values()):
        raise UserError(what, where=str(file), received=type(loaded).__name__, allowed=allowed)
    return loaded
