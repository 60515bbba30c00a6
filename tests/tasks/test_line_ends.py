"""Targets with line ends: a model that learns from them writes one line for one."""

import json
from pathlib import Path

import yaml

from tests.conftest import Command


def test_one_line_in_one_line_out(tmp_path: Path, run_headway: Command) -> None:
    rows = [json.dumps({"s": "a b", "t": "x\ny"}), json.dumps({"s": "b\u2028a", "t": "y\r\nx"})] * 20
    (tmp_path / "train.jsonl").write_text("\n".join(rows), encoding="utf-8")
    recipe = {
        "data": {"train": {"jsonl": "train.jsonl", "columns": ["s", "t"]}},
        "vocabulary": {"kind": "char"},
        "model": {"dim": 16, "feed_forward": 16, "heads": 2, "encoder": {"layers": 1}, "decoder": {"layers": 1}},
        "optimizer": {"learning_rate": 1e-2, "warmup": 1},
        "training": {"updates": 30, "batch_tokens": 64},
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    trained = run_headway("train", tmp_path / "recipe.yaml", "--output", tmp_path / "run")
    assert trained.code == 0, trained.err
    assert "changed 40: characters that end a line are spaces now" in trained.err
    ended = run_headway("predict", tmp_path / "run", stdin="a b\na b\nb a\n")
    assert ended.code == 0
    assert ended.out.count("\n") == len(ended.out.splitlines()) == 3
