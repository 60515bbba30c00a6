"""Training from Python: a recipe as a file, as a dict or checked, and what it leaves."""

from pathlib import Path
from typing import Any

import pytest
import yaml

import headway
from headway.core.errors import UserError
from tests.conftest import REVERSAL, write_reversal


@pytest.fixture
def tree(tmp_path: Path) -> dict[str, Any]:
    write_reversal(tmp_path)
    data = {"train": {"tsv": "train.tsv"}, "dev": {"tsv": "dev.tsv"}}
    training = {"updates": 9, "batch_tokens": 64, "checkpoint_every": 2, "dev_metrics": ["exact_match"]}
    return REVERSAL | {"data": data, "training": training}


def test_a_file_a_dict_and_a_recipe_give_the_same_run(
    tree: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("recipe.yaml").write_text(yaml.safe_dump(tree), encoding="utf-8")
    few = ["training.updates=2"]
    runs = [
        headway.train("recipe.yaml", "file", few, report=False),
        headway.train(tree, "dict", few, report=False),
        headway.train(headway.load_recipe(Path("recipe.yaml"), few), Path("checked"), report=False),
    ]
    first, *others = [(trained.run / "model.safetensors").read_bytes() for trained in runs]
    assert all(weights == first for weights in others)
    assert tree["training"]["updates"] == 9, "overrides change no dict of the caller's"


def test_what_training_leaves(tree: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    trained = headway.train(tree, "run", ["training.updates=2"])
    assert trained.complete
    assert trained.report == Path("run/report.html")
    assert set(trained.scores) == {"exact_match"}
    assert trained.history[-1]["update"] == 2
    assert repr(trained).startswith("<Trained run: complete, exact_match ")
    assert len(trained.load().predict(["abc", "cab"])) == 2


def test_mistakes_are_those_of_a_recipe(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="trainin"):
        headway.train({"trainin": {}}, tmp_path / "run")
    with pytest.raises(UserError, match="cannot read the recipe"):
        headway.train("missing.yaml", tmp_path / "run")


def test_public_names_are_listed() -> None:
    assert {"train", "load", "load_recipe", "build_mixer"} <= set(dir(headway))
    assert all(getattr(headway, name) is not None for name in dir(headway))
