"""A general dev set beside dev: what is forgotten is said, ends training, and is the same in a run that goes on."""

import json
from pathlib import Path
from typing import Any

import pytest

import headway
from headway.core.errors import UserError
from headway.runs.metrics import read_metrics
from headway.runs.run_folder import list_checkpoints
from tests.conftest import Reversal


def recipe(reversal: Reversal, folder: Path, **training: Any) -> dict[str, Any]:
    """Words of a's and b's are copied from now on, and no longer written backwards as all others are."""
    copied = "".join(f"{word}\t{word}\n" for word in reversal.words if set(word) <= set("ab"))
    (folder / "train.tsv").write_text(copied, encoding="utf-8")
    (folder / "general.tsv").write_text("".join(f"{w}\t{w[::-1]}\n" for w in reversal.words[:12]), encoding="utf-8")
    settings = {"updates": 30, "checkpoint_every": 3, "dev_metrics": ["exact_match"], "batch_tokens": 128}
    return {
        "data": {name: {"tsv": str(folder / file)} for name, file in
                 (("train", "train.tsv"), ("dev", "train.tsv"), ("general", "general.tsv"))},
        "optimizer": {"learning_rate": 4e-4, "schedule": "constant", "warmup": 0},
        "training": {"from": str(reversal.run)} | settings | training,
    }  # fmt: skip


def evaluations(run: Path) -> list[dict[str, Any]]:
    lines = [line for line in read_metrics(run / "metrics.jsonl") if "dev" in line]
    return [{name: line[name] for name in ("update", "dev", "general")} for line in lines]


def test_forgetting_is_told_and_ends_training(reversal: Reversal, tmp_path: Path, caplog: Any) -> None:
    caplog.set_level("INFO", logger="headway")
    headway.train(recipe(reversal, tmp_path, most_forgotten=20.0), tmp_path / "run")
    lines = evaluations(tmp_path / "run")
    assert lines[0]["update"] == 0
    assert lines[0]["general"]["exact_match"] == 100
    assert lines[-1]["update"] < 30
    assert lines[-1]["general"]["exact_match"] < 80
    assert all(line["general"]["exact_match"] >= 80 for line in lines[:-1])
    assert "forgotten on data.general" in caplog.text
    assert "exact_match before the first update 100.00; forgotten: " in caplog.text
    best = json.loads((tmp_path / "run" / "manifest.json").read_text(encoding="utf-8"))["averaged_updates"]
    assert best[0] in [line["update"] for line in lines[1:-1]]


def test_a_run_that_goes_on_knows_the_beginning(reversal: Reversal, tmp_path: Path) -> None:
    tree = recipe(reversal, tmp_path, updates=6)
    headway.train(tree, tmp_path / "whole")
    headway.train(recipe(reversal, tmp_path, updates=3), tmp_path / "run")
    assert len(list_checkpoints(tmp_path / "run" / "checkpoints")) == 1
    headway.train(tree, tmp_path / "run", resume=True)
    assert evaluations(tmp_path / "run") == evaluations(tmp_path / "whole")
    files = [tmp_path / name / "checkpoints" / "update-00000006" / "model.safetensors" for name in ("run", "whole")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_what_cannot_be_compared_is_refused(reversal: Reversal, tmp_path: Path) -> None:
    tree = recipe(reversal, tmp_path, most_forgotten=1.0)
    del tree["data"]["general"]
    with pytest.raises(UserError, match=r"training.most_forgotten: .*general dev set; allowed: data.general"):
        headway.train(tree, tmp_path / "run")
    tree = recipe(reversal, tmp_path)
    del tree["data"]["dev"]
    with pytest.raises(UserError, match=r"data.general: what is forgotten is compared with what dev gains"):
        headway.train(tree, tmp_path / "run")
