"""Runs that are started, killed and resumed as processes of their own, and their comparison."""

import json
import os
import subprocess
import time
from itertools import zip_longest
from pathlib import Path

import yaml

from tests.command_server import commands
from tests.conftest import REVERSAL, write_reversal

ROOT = Path(__file__).parents[2]
TIMINGS = ("seconds", "cpu_seconds", "target_tokens_per_second", "evaluation_seconds")
# Dropout, accumulation, evaluation, averages and a schedule that goes on: all that an update can depend on.
TRAINING = {
    "updates": 420, "batch_tokens": 128, "accumulate": 2, "checkpoint_every": 7, "evaluate_every": 42,
    "log_every": 3, "dev_metrics": ["exact_match"], "keep_last": 2, "average": {"of": "last", "count": 2},
    "precision": "float32",
}  # fmt: skip


def write_recipe(folder: Path, **training) -> Path:
    recipe, _ = write_reversal(folder)
    tree = REVERSAL | {"model": REVERSAL["model"] | {"dropout": 0.2}, "training": TRAINING | training}
    recipe.write_text(yaml.safe_dump(tree), encoding="utf-8")
    return recipe


def environment(cache: Path) -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1", "HEADWAY_CACHE": str(cache)}


def start(recipe: Path, output: Path, *more: str) -> subprocess.Popen:
    """The command line, or the one that goes on with a run, once it has logged an update of its own."""
    given = ["--resume", str(output)] if recipe == output else [str(recipe), "--output", str(output)]
    command = [commands() / "headway", "train", *given, *more]
    file = output / "metrics.jsonl"
    before = file.read_text() if file.exists() else ""
    process = subprocess.Popen(
        command, env=environment(recipe.parent / "cache"), stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    while not file.exists() or len(file.read_text()) <= len(before):
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.02)
    return process


def attempts(recipe: Path, output: Path, kills: int = 0, what: str = "moments", cache: str = "cache") -> int:
    ended = subprocess.run(
        [commands() / "python", "tests/training/attempts.py", recipe, output, str(kills), "5", what],
        cwd=ROOT, env=environment(recipe.parent / cache), capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert "damaged" not in ended.stderr  # what a kill leaves is no checkpoint, not a bad one
    return int(ended.stdout.splitlines()[-1])


def metrics(run: Path) -> list[dict]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key not in TIMINGS} for line in lines]


def assert_same(one: Path, other: Path) -> None:
    assert (one / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()
    for line, same in zip_longest(metrics(one), metrics(other)):
        assert line == same, f"{line} and {same}"
    tensors = ["checkpoints/*/model.safetensors", "checkpoints/*/optimizer.safetensors"]
    names = sorted(str(path.relative_to(one)) for pattern in tensors for path in one.glob(pattern))
    assert len(names) >= 4
    assert names == sorted(str(path.relative_to(other)) for pattern in tensors for path in other.glob(pattern))
    for name in names:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name
    for run in (one, other):
        assert not [path for path in run.rglob("*") if path.name.endswith(".tmp")]
