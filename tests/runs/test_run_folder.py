"""The run folder: self-contained, nothing pickled, written whole."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from headway.errors import UserError
from headway.files import sha256
from headway.recipe import load_recipe, parse_recipe
from headway.runs.load import load_run
from headway.runs.migration import FORMAT
from headway.runs.run_folder import (
    RunFolder,
    average_weights,
    checkpoint_weights,
    load_weights,
    model_weights,
    read_weights,
)
from tests.conftest import Reversal

CPU = torch.device("cpu")


def test_what_a_run_leaves(reversal: Reversal) -> None:
    names = {path.name for path in reversal.run.iterdir()}
    assert names == {
        "recipe.yaml", "vocabulary", "model.safetensors", "checkpoints", "metrics.jsonl", "manifest.json", "report.html"
    }  # fmt: skip
    folder = RunFolder(reversal.run)
    manifest = folder.read_manifest()
    assert manifest["format"] == FORMAT
    assert manifest["model_sha256"] == sha256(folder.weights)
    assert (manifest["updates"], manifest["seed"], manifest["status"]) == (400, 1, "finished")
    assert {"headway", "machine", "data", "parameters", "seconds"} <= set(manifest)
    assert folder.read_recipe() == load_recipe(reversal.recipe)


def test_metrics_have_the_agreed_names(reversal: Reversal) -> None:
    lines = [json.loads(line) for line in RunFolder(reversal.run).metrics.read_text(encoding="utf-8").splitlines()]
    agreed = {
        "update",
        "loss",
        "target_tokens",
        "target_tokens_per_second",
        "learning_rate",
        "gradient_norm",
        "seconds",
    }
    training = [line for line in lines if "loss" in line]
    assert [line["update"] for line in training] == list(range(50, 401, 50))
    assert all(agreed <= set(line) for line in training)
    dev = [line for line in lines if "dev" in line]
    assert [line["update"] for line in dev] == [200, 400]
    assert dev[-1]["dev"]["exact_match"] > 80
    assert training[-1]["loss"] < 0.2 < training[0]["loss"]


def test_nothing_is_pickled(reversal: Reversal) -> None:
    suffixes = {path.suffix for path in reversal.run.rglob("*") if path.is_file()}
    assert suffixes == {".yaml", ".safetensors", ".json", ".jsonl", ".html", ".model"}  # .model is SentencePiece's
    for path in reversal.run.rglob("*"):
        if path.is_file():
            head = path.read_bytes()[:2]
            assert head[:1] != b"\x80", path  # how a pickle begins
            assert head != b"PK", path  # how torch.save begins


def test_a_loaded_run_is_ready_to_decode(reversal: Reversal) -> None:
    loaded = load_run(reversal.run, CPU)
    assert not loaded.model.training
    assert loaded.source.vocabulary is loaded.target.vocabulary
    stored = read_weights(reversal.run / "model.safetensors")
    assert set(stored) == set(model_weights(loaded.model))
    assert all(torch.equal(stored[name], tensor) for name, tensor in model_weights(loaded.model).items())


def test_averages_are_means(reversal: Reversal) -> None:
    files = checkpoint_weights(RunFolder(reversal.run), 2)
    assert [file.parent.name for file in files] == ["update-00000200", "update-00000400"]
    first, last = (read_weights(file) for file in files)
    mean = model_weights(load_run(reversal.run, CPU, average=2).model)
    for name, tensor in mean.items():
        torch.testing.assert_close(tensor, (first[name] + last[name]) / 2)
    alone = average_weights(files[-1:])
    assert all(torch.equal(alone[name], tensor) for name, tensor in last.items())


def test_the_manifest_grows(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert folder.read_manifest() == {}
    folder.write_manifest({"seed": 1, "status": "training"})
    folder.write_weights({"a": torch.arange(3.0)}, {"status": "finished"})
    assert folder.read_manifest() == {
        "format": FORMAT, "seed": 1, "status": "finished", "model_sha256": sha256(folder.weights)
    }  # fmt: skip
    assert torch.equal(read_weights(folder.weights)["a"], torch.arange(3.0))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"format": 2}', "written by a newer version"),
        ('{"form', r":1: the manifest is damaged: not JSON"),
        ("\x00", r":1: the manifest is damaged: not JSON"),
        ('{"format": 1,\n"format": 1}', r":2: the manifest is damaged: the key 'format' stands twice"),
        ("[]", "the manifest is damaged: it should hold an object"),
        ("null", "the manifest is damaged: it should hold an object"),
        ('{"format": "x"}', "the manifest is damaged: its format is no number"),
        ('{"format": null}', "the manifest is damaged: its format is no number"),
        ("[" * 10_000, "the manifest is damaged: it cannot be read as JSON"),
    ],
)
def test_a_manifest_that_cannot_be_read(tmp_path: Path, content: str, message: str) -> None:
    folder = RunFolder(tmp_path)
    folder.write_recipe(parse_recipe({"data": {"train": {"tsv": "x"}}, "training": {"updates": 1}}))
    folder.manifest_file.write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=message) as error:
        folder.read_recipe()
    assert str(error.value).startswith(str(folder.manifest_file))


def test_weights_must_match_by_name_and_shape() -> None:
    weights = model_weights(nn.Linear(2, 3))
    wrong = [
        ({"weight": weights["weight"]}, "first difference: bias"),
        (weights | {"more": torch.zeros(1)}, "first difference: more"),
        (weights | {"weight": torch.zeros(3, 3)}, "first difference: weight"),
    ]
    for given, message in wrong:
        with pytest.raises(UserError, match=f"^here: these weights are not of this model .{message}"):
            load_weights(nn.Linear(2, 3), given, "here")
    model = nn.Linear(2, 3)
    load_weights(model, weights, "here")
    assert torch.equal(model.weight, weights["weight"])


def test_shared_weights_are_stored_once() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight  # type: ignore[assignment]
    assert set(model_weights(model)) == {"0.weight", "0.bias", "1.bias"}


def test_weights_that_cannot_be_read(tmp_path: Path) -> None:
    whole = tmp_path / "whole.safetensors"
    save_file({"a": torch.zeros(100)}, whole)
    content = whole.read_bytes()
    for number, damaged in enumerate((b"", content[:20], content[:-8], b"\xff" * len(content))):
        path = tmp_path / f"{number}.safetensors"
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=rf"{number}\.safetensors: these weights cannot be read"):
            read_weights(path)
    with pytest.raises(UserError, match="cannot be read"):
        read_weights(tmp_path / "none.safetensors")
