"""The run folder: self-contained, nothing pickled, written whole."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import save_file
from torch import Tensor, nn

from headway.core.errors import HeadwayError, UserError
from headway.core.files import sha256
from headway.recipe import load_recipe, parse_recipe
from headway.recipe.migration import FORMAT
from headway.runs import run_folder
from headway.runs.run import open_run
from headway.runs.run_folder import (
    RunFolder,
    average_weights,
    checkpoint_weights,
    in_a_row,
    load_weights,
    model_weights,
    read_tensors,
    regular_updates,
)
from tests.conftest import Command, Reversal
from tests.runs.old_runs import copied

CPU = torch.device("cpu")
KINDS = (torch.bool, torch.int64, torch.float64, torch.bfloat16, torch.float8_e4m3fn, torch.complex64)


def test_what_a_run_leaves(reversal: Reversal) -> None:
    names = {path.name for path in reversal.run.iterdir()}
    assert names == {
        "recipe.yaml", "vocabulary", "model.safetensors", "checkpoints", "metrics.jsonl", "manifest.json",
        "report.html", "README.md", ".lock",
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
    numbers = ("target_tokens", "target_tokens_per_second", "learning_rate", "gradient_norm", "seconds")
    training = [line for line in lines if "loss" in line]
    assert [line["update"] for line in training] == list(range(50, 401, 50))
    assert all({"update", "loss", *numbers} <= set(line) for line in training)
    dev = [line for line in lines if "dev" in line]
    assert [line["update"] for line in dev] == [200, 400]
    assert dev[-1]["dev"]["exact_match"] > 80
    assert training[-1]["loss"] < 0.2 < training[0]["loss"]


def test_nothing_is_pickled(reversal: Reversal) -> None:
    suffixes = {path.suffix for path in reversal.run.rglob("*") if path.is_file() and path.name != ".lock"}
    assert suffixes == {".yaml", ".safetensors", ".json", ".jsonl", ".html", ".md", ".model"}  # that of SentencePiece
    for path in reversal.run.rglob("*"):
        if path.is_file():
            head = path.read_bytes()[:2]
            assert head[:1] != b"\x80", path  # how a pickle begins
            assert head != b"PK", path  # how torch.save begins


def test_a_loaded_run_is_ready_to_decode(reversal: Reversal) -> None:
    loaded = open_run(reversal.run)
    assert not loaded.model.training
    assert loaded.source.vocabulary is loaded.target.vocabulary
    stored = read_tensors(reversal.run / "model.safetensors")
    assert set(stored) == set(model_weights(loaded.model))
    assert all(torch.equal(stored[name], tensor) for name, tensor in model_weights(loaded.model).items())


def test_averages_are_means(reversal: Reversal) -> None:
    files = checkpoint_weights(RunFolder(reversal.run), 2)
    assert [file.parent.name for file in files] == ["update-00000200", "update-00000400"]
    first, last = (read_tensors(file) for file in files)
    mean = model_weights(open_run(reversal.run, average=2).model)
    for name, tensor in mean.items():
        torch.testing.assert_close(tensor, (first[name] + last[name]) / 2)
    alone = average_weights(files[-1:])
    assert all(torch.equal(alone[name], tensor) for name, tensor in last.items())


@pytest.mark.parametrize("count", [0, -1, 2.5])
def test_an_average_is_of_a_whole_number(reversal: Reversal, count: Any) -> None:
    with pytest.raises(UserError, match="average: the number of checkpoints is a whole one; received"):
        open_run(reversal.run, average=count).loaded()


def test_averages_keep_types(tmp_path: Path) -> None:
    files = [tmp_path / f"{number}.safetensors" for number in (1, 2)]
    for number, file in enumerate(files, start=1):
        values = {"weight": torch.full((2,), float(number)), "mask": torch.tensor([0.0, -torch.inf])}
        tables = {"offsets": torch.arange(2) + number, "wide": torch.full((1,), number, dtype=torch.float64)}
        turns = {"turn": torch.full((1,), complex(number, -number), dtype=torch.complex64)}
        save_file(values | tables | turns, file)
    mean = average_weights(files)
    assert mean["weight"].tolist() == [1.5, 1.5]
    assert mean["mask"].tolist() == [0.0, -math.inf]
    assert mean["offsets"].tolist() == [2, 3], "those of the last"
    assert mean["wide"].tolist() == [1.5]
    assert mean["turn"].tolist() == [1.5 - 1.5j]
    assert mean["turn"].dtype == torch.complex64
    assert mean.keys() == read_tensors(files[0]).keys()
    assert [mean[name].dtype for name in ("weight", "offsets", "wide")] == [torch.float32, torch.int64, torch.float64]


def test_only_the_last_checkpoints_of_training_are_averaged(reversal: Reversal, tmp_path: Path) -> None:
    assert regular_updates([3, 4, 5, 6, 7], 2, None) == [4, 6]  # a signal came after 3, 5 and 7 updates
    assert regular_updates([3, 4, 5, 6, 7], 2, 7) == [4, 6, 7]
    assert in_a_row([2, 6, 8, 9], 2) == [6, 8, 9]  # 2 was kept for its score
    assert in_a_row([2], 2) == [2]
    assert in_a_row([], 2) == []
    shutil.copytree(reversal.run, tmp_path / "run")
    checkpoints = tmp_path / "run" / "checkpoints"
    (checkpoints / "update-00000200").rename(checkpoints / "update-00000150")
    with pytest.raises(UserError, match=r"average: .*in a row; received 2; allowed: up to 1"):
        open_run(tmp_path / "run", average=2).loaded()


def test_the_manifest_grows(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert folder.read_manifest() == {}
    folder.write_manifest({"seed": 1, "status": "training"})
    folder.write_weights({"a": torch.arange(3.0)}, {"status": "finished"})
    assert folder.read_manifest() == {
        "format": FORMAT, "seed": 1, "status": "finished", "model_sha256": sha256(folder.weights)
    }  # fmt: skip
    assert torch.equal(read_tensors(folder.weights)["a"], torch.arange(3.0))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"format": 5}', "written by a newer version of headway; received 'format 5'; allowed: formats up to 4"),
        ('{"form', "the manifest is damaged: "),
        ("[" * 100_000, "the manifest is damaged: "),
        ("[]", "the manifest is damaged"),
        ('{"format": "x"}', r"the manifest is damaged \(format: "),
        ('{"format": true}', r"the manifest is damaged \(format: "),
        ('{"data": {"train": 1}}', r"the manifest is damaged \(data\.train: "),
        ('{"code": {"a.py": 5}}', r"the manifest is damaged \(code\.a\.py: "),
        ('{"format": 1,\n"format": 1}', ": the manifest is damaged: the key 'format' stands twice"),
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
        *(
            (weights | {"bias": weights["bias"].to(kind)}, "first difference: bias, .* for .* torch.float32")
            for kind in KINDS
        ),
    ]
    for given, message in wrong:
        with pytest.raises(UserError, match=f"^here: these weights are not of this model .{message}"):
            load_weights(nn.Linear(2, 3), given, "here")
    model = nn.Linear(2, 3)
    load_weights(model, weights, "here")
    assert torch.equal(model.weight, weights["weight"])


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_weights_that_are_not_finite_are_refused(number: float) -> None:
    weights = {"weight": torch.ones(3, 2), "bias": torch.tensor([0.0, number, 0.0])}
    with pytest.raises(UserError, match=r"^here: these weights are not finite \(the first: bias\)"):
        load_weights(nn.Linear(2, 3), weights, "here")


def test_a_mask_may_be_infinite_and_not_no_number() -> None:
    model, weights = nn.Linear(1, 1), {"weight": torch.ones(1, 1), "bias": torch.zeros(1)}
    model.register_buffer("mask", torch.zeros(2))
    load_weights(model, weights | {"mask": torch.tensor([0.0, -torch.inf])}, "here")
    assert model.mask.tolist() == [0.0, -math.inf]
    with pytest.raises(UserError, match=r"^here: these weights are not finite \(the first: mask\)"):
        load_weights(model, weights | {"mask": torch.tensor([0.0, torch.nan])}, "here")


def test_large_finite_weights_are_loaded() -> None:
    weights = {"weight": torch.full((3, 2), 3e38), "bias": torch.zeros(3)}  # their sum is not finite
    model = nn.Linear(2, 3)
    load_weights(model, weights, "here")
    assert torch.equal(model.weight, weights["weight"])


def trained(tmp_path: Path) -> RunFolder:
    """A copy of a small run."""
    return RunFolder(copied("translation-transformer", tmp_path / "case").run)


def flip(file: Path, offset: int) -> None:
    content = bytearray(file.read_bytes())
    content[offset] ^= 1
    file.write_bytes(content)


def rewrite(folder: RunFolder, change: Callable[[Tensor], Tensor]) -> None:
    save_file({name: change(tensor) for name, tensor in read_tensors(folder.weights).items()}, folder.weights)


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: flip(folder.weights, -1),
        lambda folder: folder.weights.write_bytes(folder.weights.read_bytes()[:-4000] + bytes(4000)),
        lambda folder: rewrite(folder, lambda tensor: tensor.to(torch.int64)),
        lambda folder: rewrite(folder, lambda tensor: tensor * float("nan")),
    ],
)
def test_weights_that_training_did_not_write_are_refused(
    tmp_path: Path, damage: Callable[[RunFolder], None], run_headway: Command
) -> None:
    folder = trained(tmp_path)
    damage(folder)
    ended = run_headway("predict", folder.path, stdin="a\n")
    assert (ended.code, ended.out) == (2, "")
    assert "these weights are not those that training wrote" in ended.err


@pytest.mark.parametrize("missing", [False, True])
def test_a_vocabulary_that_training_did_not_use_is_refused(reversal: Reversal, tmp_path: Path, missing: bool) -> None:
    folder = RunFolder(Path(shutil.copytree(reversal.run, tmp_path / "run")))
    (folder.vocabulary / "more").write_text("a file of the user", encoding="utf-8")
    open_run(folder.path).loaded()
    file = folder.vocabulary / "shared" / "spm.model"
    if missing:
        file.unlink()
    else:
        flip(file, -1)
    what = "is missing" if missing else "is not the one that training used"
    with pytest.raises(UserError, match=rf"spm\.model: this file {what}"):
        open_run(folder.path).loaded()


def test_a_model_that_no_memory_holds_is_refused(tmp_path: Path) -> None:
    folder = trained(tmp_path)
    tree = yaml.safe_load(folder.recipe_file.read_text(encoding="utf-8"))
    tree["model"] |= {"dim": 2**24, "feed_forward": 2**24}
    folder.recipe_file.write_text(yaml.safe_dump(tree), encoding="utf-8")
    with pytest.raises(HeadwayError, match=r"memory ran out in making the model|model\.dim"):
        open_run(folder.path).loaded()


def test_a_damaged_checkpoint_is_not_averaged(tmp_path: Path) -> None:
    folder = trained(tmp_path)
    (checkpoint,) = folder.checkpoints.iterdir()
    open_run(folder.path, average=1).loaded()
    flip(checkpoint / "model.safetensors", -1)
    with pytest.raises(UserError, match=r"this checkpoint is damaged \(model.safetensors was cut short or changed\)"):
        open_run(folder.path, average=1).loaded()


def test_weights_without_a_known_hash_are_loaded_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = trained(tmp_path)
    folder.manifest_file.write_text('{"format": 1}', encoding="utf-8")
    open_run(folder.path).loaded()
    assert "the manifest has no hash of these weights" in caplog.text


@pytest.mark.parametrize("key", ["heads", "feed_forward"])
def test_a_recipe_edited_after_training_is_refused(reversal: Reversal, tmp_path: Path, key: str) -> None:
    folder = RunFolder(Path(shutil.copytree(reversal.run, tmp_path / "run")))
    tree = yaml.safe_load(folder.recipe_file.read_text(encoding="utf-8"))
    old, tree["model"][key] = tree["model"][key], 4
    folder.recipe_file.write_text(yaml.safe_dump(tree), encoding="utf-8")
    with pytest.raises(UserError, match=rf"model\.{key}: this recipe was edited .*received 4; allowed: {old}"):
        open_run(folder.path).loaded()
    tree["model"][key], tree["decoding"]["beam"] = old, 2  # what weights do not depend on may be edited
    folder.recipe_file.write_text(yaml.safe_dump(tree), encoding="utf-8")
    assert open_run(folder.path).recipe.decoding.beam == 2


@pytest.mark.parametrize("death", ["before the weights", "after the weights"])
def test_weights_are_known_whenever_their_writer_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, death: str
) -> None:
    folder = RunFolder(tmp_path)
    folder.write_weights({"a": torch.zeros(1)}, {})

    class Killed(BaseException):
        pass

    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        whole = run_folder.write_bytes
        after = lambda path, content: (whole(path, content), die())  # noqa: E731
        patch.setattr(run_folder, "write_bytes", die if death == "before the weights" else after)
        with pytest.raises(Killed):
            folder.write_weights({"a": torch.ones(1)}, {})
    assert folder.read_weights()["a"].item() == (death == "after the weights")


def test_weights_that_training_replaces_while_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, reads = RunFolder(tmp_path), []
    folder.write_weights({"a": torch.zeros(1)}, {})
    whole = run_folder.load_file

    def replaced(file: Path) -> dict[str, Tensor]:
        weights = whole(file)
        reads.append(weights["a"].item())
        if len(reads) == 1:
            folder.write_weights({"a": torch.ones(1)}, {})
        return weights

    monkeypatch.setattr(run_folder, "load_file", replaced)
    assert folder.read_weights()["a"].item() == 1
    assert reads == [0, 1]


def test_a_model_to_be_loaded_draws_no_initial_values(reversal: Reversal) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    open_run(reversal.run).loaded()
    assert torch.equal(torch.get_rng_state(), before)


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
            read_tensors(path)
    with pytest.raises(UserError, match="cannot be read"):
        read_tensors(tmp_path / "none.safetensors")


def test_more_tensors_than_a_model_has(tmp_path: Path) -> None:
    """Empty ones, which take no place in the file, take memory and time."""
    empty = {f"{number}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for number in range(100_000)}
    header = json.dumps(empty).encode()
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(UserError, match="their list of tensors is longer than a model's"):
        read_tensors(tmp_path / "model.safetensors")
    with pytest.raises(UserError, match="their list of tensors is longer than a model's"):
        RunFolder(tmp_path).read_weights()
