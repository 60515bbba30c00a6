"""A run killed at any moment ends with the same weights as one that was left alone, bit for bit."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from tests.conftest import REVERSAL, write_reversal

ROOT = Path(__file__).parents[2]
TIMINGS = ("seconds", "target_tokens_per_second", "evaluation_seconds")
# Dropout, accumulation, evaluation, averages and a warm-up that goes on: all that an update can depend on.
CHANGES = {
    "model": REVERSAL["model"] | {"dropout": 0.2},
    "training": {
        "updates": 420, "batch_tokens": 128, "accumulate": 2, "checkpoint_every": 7, "evaluate_every": 42,
        "log_every": 3, "dev_metrics": ["exact_match"], "keep_last": 2, "average": {"of": "last", "count": 3},
    },
}  # fmt: skip


def environment(folder: Path) -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1", "HEADWAY_CACHE": str(folder / "cache")}


def write_recipe(folder: Path, **changes) -> Path:
    recipe, _ = write_reversal(folder)
    recipe.write_text(yaml.safe_dump(REVERSAL | CHANGES | changes), encoding="utf-8")
    return recipe


def metrics(run: Path) -> list[dict]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key not in TIMINGS} for line in lines]


def train_with_kills(recipe: Path, output: Path, kills: int, cache: Path) -> int:
    ended = subprocess.run(
        [sys.executable, "-m", "tests.training.attempts", str(recipe), str(output), str(kills), "5"],
        cwd=ROOT, env=environment(cache), capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-3000:]
    return int(ended.stdout.splitlines()[-1])


def test_twenty_kills_change_nothing(tmp_path):
    recipe = write_recipe(tmp_path)
    alone, killed = tmp_path / "alone", tmp_path / "killed"
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    assert train_with_kills(recipe, alone, 0, tmp_path / "one") == 0
    assert train_with_kills(recipe, killed, 22, tmp_path / "other") >= 20
    assert (killed / "model.safetensors").read_bytes() == (alone / "model.safetensors").read_bytes()
    assert metrics(killed) == metrics(alone)
    names = ["model.safetensors", "optimizer.safetensors"]
    for folder in sorted((alone / "checkpoints").iterdir()):
        for name in names:
            assert (killed / "checkpoints" / folder.name / name).read_bytes() == (folder / name).read_bytes()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signals_save_and_say_so(tmp_path, number, code):
    recipe = write_recipe(
        tmp_path, training=CHANGES["training"] | {"updates": 120, "checkpoint_every": 10_000, "evaluate_every": None}
    )
    run = tmp_path / "run"
    command = [sys.executable, "-m", "headway", "train", str(recipe), "--output", str(run)]
    process = subprocess.Popen(command, env=environment(tmp_path), stderr=subprocess.PIPE, text=True)
    while not (run / "metrics.jsonl").exists() or not (run / "metrics.jsonl").read_text():
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == code
    assert "go on with --resume" in said
    (stopped,) = (run / "checkpoints").glob("update-*")
    assert not (run / "model.safetensors").exists()
    assert train_with_kills(recipe, run, 0, tmp_path) == 0
    assert train_with_kills(recipe, tmp_path / "alone", 0, tmp_path) == 0
    assert (run / "model.safetensors").read_bytes() == (tmp_path / "alone" / "model.safetensors").read_bytes()
    assert 0 < int(stopped.name.removeprefix("update-")) < 120
