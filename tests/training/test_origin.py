"""Training goes on from a run: its vocabulary and weights, with other data and another schedule."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import headway
from headway.core.errors import UserError
from headway.training.start import grown
from tests.conftest import Reversal


@pytest.fixture
def tree(reversal: Reversal, tmp_path: Path) -> dict[str, Any]:
    """A recipe that goes on with words of a's and b's alone, and hardly changes a weight."""
    rows = "".join(f"{word}\t{word[::-1]}\n" for word in reversal.words if set(word) <= set("ab"))
    (tmp_path / "train.tsv").write_text(rows, encoding="utf-8")
    return {
        "data": {"train": {"tsv": str(tmp_path / "train.tsv")}},
        "optimizer": {"learning_rate": 1e-9, "schedule": "constant"},
        "training": {"from": str(reversal.run), "updates": 2, "checkpoint_every": 2},
    }


def test_what_is_left_out_is_the_runs(reversal: Reversal, tree: dict[str, Any], tmp_path: Path) -> None:
    headway.train(tree, tmp_path / "run")
    older, newer = (headway.load(path, device="cpu") for path in (reversal.run, tmp_path / "run"))
    words = [word for word in reversal.words if len(word) == 4][:8]
    outputs = [[each.text for each in predictor.predict(words, beam=1)] for predictor in (older, newer)]
    assert outputs[0] == outputs[1] == [word[::-1] for word in words]
    assert newer.recipe.model == older.recipe.model
    assert newer.recipe.vocabulary == older.recipe.vocabulary
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text(encoding="utf-8"))
    whole = json.loads((reversal.run / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["from"] == {"run": str(reversal.run), "model_sha256": whole["model_sha256"]}


def test_it_learns_the_new_data_and_resumes(reversal: Reversal, tree: dict[str, Any], tmp_path: Path) -> None:
    tree["optimizer"] = {"learning_rate": 1e-3, "schedule": "constant"}
    headway.train(tree, tmp_path / "run")
    first = (tmp_path / "run" / "model.safetensors").read_bytes()
    assert first != (reversal.run / "model.safetensors").read_bytes()
    tree["training"]["updates"] = 4
    manifest = tmp_path / "run" / "manifest.json"
    begun = json.loads(manifest.read_text(encoding="utf-8"))
    changed = begun | {"from": begun["from"] | {"model_sha256": "that from which it began"}}
    manifest.write_text(json.dumps(changed), encoding="utf-8")
    headway.train(tree, tmp_path / "run", resume=True)
    assert json.loads(manifest.read_text(encoding="utf-8"))["from"] == changed["from"], "whatever the origin is now"
    headway.train(tree, tmp_path / "whole")
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("run", "whole")]
    assert weights[0] == weights[1] != first


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"vocabulary": {"kind": "char", "shared": False}},
            "another vocabulary .*vocabulary.shared: True -> False.*anew",
        ),
        ({"text": {"source": {"language": "de"}}}, "another vocabulary .*text.source.language"),
        ({"model": {"dim": 16, "heads": 2}}, "a model of another shape.*there, .*here"),
    ],
)
def test_what_cannot_go_on_is_refused_before_anything_is_written(
    tree: dict[str, Any], tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        headway.train(tree | changes, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_options_that_change_no_weight_may_change(reversal: Reversal, tree: dict[str, Any], tmp_path: Path) -> None:
    older = headway.load_recipe(str(reversal.run / "recipe.yaml")).model_dump(mode="json")["model"]
    headway.train(tree | {"model": older | {"dropout": 0.2}}, tmp_path / "run")
    assert headway.load(tmp_path / "run", device="cpu").recipe.model.dropout == 0.2


def test_no_run(tree: dict[str, Any], tmp_path: Path) -> None:
    tree["training"]["from"] = str(tmp_path / "nowhere")
    with pytest.raises(
        UserError,
        match=r"training.from: this is not a run folder: it has no recipe.yaml that training wrote; received .*nowhere",
    ):
        headway.train(tree, tmp_path / "run")
    tree["training"]["from"] = "a" * 300  # which no file system can have
    with pytest.raises(
        UserError,
        match=r"training.from: this is not a run folder: it has no recipe.yaml that training wrote; received .*aaa",
    ):
        headway.train(tree, tmp_path / "run")


def test_a_run_without_weights(reversal: Reversal, tree: dict[str, Any], tmp_path: Path) -> None:
    shutil.copytree(reversal.run, tmp_path / "older", ignore=shutil.ignore_patterns("*.safetensors", "checkpoints"))
    tree["training"]["from"] = str(tmp_path / "older")
    with pytest.raises(UserError, match="the weights of this run are missing"):
        headway.train(tree, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_extended_vocabulary_has_the_old_rows_and_means_of_them(
    reversal: Reversal, tree: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "train.tsv").write_text("abe\teba\nfaec\tceaf\n" * 8, encoding="utf-8")
    tree["training"]["extend_vocabulary"] = 5
    headway.train(tree, tmp_path / "run")
    older, newer = (headway.load(path, device="cpu") for path in (reversal.run, tmp_path / "run"))
    size = older.source.size
    assert sorted(newer.source.tokens(range(size, newer.source.size))) == ["e", "f"]
    before, after = (load_file(path / "model.safetensors")["source_embedding.tokens.weight"] for path in
                     (reversal.run, tmp_path / "run"))  # fmt: skip
    assert torch.allclose(after[:size], before, atol=1e-5)
    assert torch.allclose(after[size:], before[4:].mean(0).expand(2, -1), atol=1e-5)
    words = [word for word in reversal.words if len(word) == 4][:8]
    outputs = [[each.text for each in predictor.predict(words, beam=1)] for predictor in (older, newer)]
    assert outputs[0] == outputs[1]
    tree["training"]["updates"] = 4
    headway.train(tree, tmp_path / "run", resume=True)


def test_a_row_is_the_mean_of_its_parts() -> None:
    weight = torch.arange(12.0).view(6, 2)
    rows = grown(weight, [[4, 5], [], [5]], torch.Size([9, 2]))
    assert torch.equal(rows[:6], weight)
    assert rows[6:].tolist() == [[9, 10], [9, 10], [10, 11]]
    assert grown(weight, [[4]], torch.Size([9, 2])) is weight
    scalar = torch.tensor(0.5)
    assert grown(scalar, [[4]], scalar.shape) is scalar


def test_a_vocabulary_of_nothing_is_not_extended(tree: dict[str, Any], tmp_path: Path) -> None:
    tree["training"] = {"updates": 1, "extend_vocabulary": 5}
    with pytest.raises(UserError, match=r"extend_vocabulary is of the run of .* which is not given"):
        headway.train(tree, tmp_path / "run")
