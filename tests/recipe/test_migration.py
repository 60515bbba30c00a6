"""Recipes of older run folders mean what they meant when they were written."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from headway.core.files import write_text
from headway.recipe import load_recipe
from headway.recipe.migration import FORMAT, todays_recipe
from headway.runs.run_folder import RunFolder
from tests.runs.old_runs import copied

UNCLEAN = {"text": {"source": {"clean": False}, "target": {"clean": False}}}


def test_heads_and_layers_of_format_1_counted_from_0() -> None:
    old = {
        "objective": {
            "dependency": {"layer": 1, "heads": [0, 2]},
            "synchronous": {"layer": 2, "heads": None, "cross_layer": 5, "cross_head": 0},
            "losses": [{"kind": "dependency", "heads": [1]}, {"kind": "synchronous"}, {"kind": "m:C", "heads": [0]}],
        },
        "training": {"lora": {"linears": ["*.*", "encoder.0.*", "decoder.[0-2].mixer.*", "decoder.*.outer", "*.11.*"]}},
    }
    new = todays_recipe(json.loads(json.dumps(old)), 1)
    assert new["objective"] == {
        "dependency": {"layer": 1, "heads": [1, 3]},
        "synchronous": {"layer": 2, "heads": None, "cross_layer": 5, "cross_head": 1},
        "losses": [{"kind": "dependency", "heads": [2]}, {"kind": "synchronous"}, {"kind": "m:C", "heads": [0]}],
    }
    linears = ["*.*", "encoder.1.*", "decoder.[1-3].mixer.*", "decoder.*.outer", "*.12.*"]
    assert new["training"]["lora"]["linears"] == linears
    assert todays_recipe(json.loads(json.dumps(new)), FORMAT) == new
    board: dict[str, Any] = {"training": {"tensorboard": True}}
    assert todays_recipe(board, 2) == {"training": {"loggers": [{"kind": "tensorboard"}]}} | UNCLEAN
    assert todays_recipe({"training": {"tensorboard": False}}, 1) == {"training": {}} | UNCLEAN
    without: dict[str, Any] = {"objective": {"dependency": None}, "training": {"lora": None}}
    assert todays_recipe(dict(without), 1) == without | UNCLEAN


def test_older_runs_read_all_spaces_and_signs_of_a_text() -> None:
    text = {"source": {"language": "fr", "clean": False}, "target": {"clean": False}}
    assert todays_recipe({"text": {"source": {"language": "fr"}}}, 3) == {"text": text}
    assert todays_recipe({"text": {}}, FORMAT) == {"text": {}}


def test_a_recipe_that_is_written_anew_keeps_its_heads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunFolder(copied("translation-dependency", tmp_path / "case").run)
    tree = yaml.safe_load(folder.recipe_file.read_text())
    tree["objective"]["dependency"]["heads"] = [1]
    folder.recipe_file.write_text(yaml.safe_dump(tree))
    recipe = folder.read_recipe()
    assert recipe.objective.dependency is not None
    assert recipe.objective.dependency.heads == (2,)
    assert load_recipe(folder.recipe_file).objective == recipe.objective
    written: list[str] = []

    def write(path: Path, text: str) -> None:
        write_text(path, text)
        written.append(path.name)
        assert folder.read_recipe() == recipe, "a process may be killed at any moment"

    monkeypatch.setattr("headway.runs.run_folder.write_text", write)
    folder.write_recipe(recipe)
    assert written == ["recipe.yaml"]
    assert folder.read_manifest()["format"] == FORMAT
    assert folder.read_recipe() == recipe
