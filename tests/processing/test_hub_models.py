"""Weights of model folders are found, whatever their form, and nothing in them is run."""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from headway.core.errors import UserError
from headway.processing.hub_models import read_weights

FIRST, SECOND = {"a": torch.arange(3.0)}, {"b": torch.ones(2, 2, dtype=torch.float16)}
CALLED: list[str] = []


class Calls:
    """An object that calls a function where it is unpickled."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return CALLED.append, ("called",)


def write(folder: Path, name: str, weights: dict[str, Tensor]) -> None:
    if name.endswith(".bin"):
        torch.save(weights, folder / name)
    else:
        save_file(weights, folder / name, metadata={"format": "pt"})


@pytest.mark.parametrize("ending", ["safetensors", "bin"])
@pytest.mark.parametrize("sharded", [False, True])
def test_weights_are_read(tmp_path: Path, ending: str, sharded: bool) -> None:
    name = "model.safetensors" if ending == "safetensors" else "pytorch_model.bin"
    if sharded:
        files = {"a": f"one.{ending}", "b": f"two.{ending}"}
        for file, weights in zip(files.values(), (FIRST, SECOND), strict=True):
            write(tmp_path, file, weights)
        (tmp_path / f"{name}.index.json").write_text(json.dumps({"weight_map": files}), encoding="utf-8")
    else:
        write(tmp_path, name, FIRST | SECOND)
    weights = read_weights(tmp_path, "places")
    assert weights.keys() == {"a", "b"}
    assert torch.equal(weights["a"], FIRST["a"])
    assert weights["b"].dtype == torch.float16


def test_safetensors_go_before_what_is_pickled(tmp_path: Path) -> None:
    write(tmp_path, "model.safetensors", FIRST)
    (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps(Calls()))
    assert read_weights(tmp_path, "places").keys() == {"a"}


def refused(folder: Path, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_weights(folder, "places")


@pytest.mark.parametrize("content", [Calls(), {"a": Calls()}])
def test_code_is_never_run(tmp_path: Path, content: Any) -> None:
    torch.save(content, tmp_path / "pytorch_model.bin")
    refused(tmp_path, "pytorch_model.bin: this file wants to run code, or holds more than tensors")
    assert CALLED == []


@pytest.mark.parametrize("content", [[1, 2], {"a": 1.0}])
def test_more_than_tensors(tmp_path: Path, content: Any) -> None:
    torch.save(content, tmp_path / "pytorch_model.bin")
    refused(tmp_path, "holds more than tensors")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04no archive", b"\x80\x02}q", b"text"])
def test_a_damaged_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(content)
    refused(tmp_path, "pytorch_model.bin: (these weights cannot be read|this file wants to run code)")


@pytest.mark.parametrize("ending", ["safetensors", "bin"])
def test_several_files(tmp_path: Path, ending: str) -> None:
    for name in ("first", "second"):
        write(tmp_path, f"{name}.{ending}", FIRST)
    refused(tmp_path, f"several files may be the weights of this model; received 'first.{ending}, second.{ending}'")


@pytest.mark.parametrize("shard", ["../model.bin", "absent.safetensors"])
def test_an_index_that_leads_elsewhere(tmp_path: Path, shard: str) -> None:
    index = {"weight_map": {"a": shard}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    refused(tmp_path, "names a file that is not there")
