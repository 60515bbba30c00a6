"""The cells of a grid on a Ray cluster of two local workers."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.grids.grids import write_grid

pytestmark = pytest.mark.slow


def compare(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headway", "compare", *map(str, arguments)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=800)


def test_two_workers_of_ray_make_a_grid(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    variants = {"attention": {}, "ngram": "ngram.yaml", "diverging": {"optimizer.learning_rate": 1e30}}
    grid = write_grid(tmp_path, variants=variants, overrides={"training.max_bad_updates": 1}, seeds=[1])
    ended = compare(grid, "--output", tmp_path / "out", "--ray", "local", "--workers", "2", "--json")
    assert ended.returncode == 1, ended.stderr
    assert "diverging, seed 1: failed (exit code 1)" in ended.stderr
    assert set(json.loads(ended.stdout)["variants"]) == {"attention", "ngram"}
    processes = set()
    for name in ("attention-1", "ngram-1"):
        assert (tmp_path / "out" / "cells" / name / "cell.json").is_file()
        said = re.search(r"process (\d+), 1 threads", (tmp_path / "out" / "logs" / f"cells-{name}.txt").read_text())
        assert said is not None
        processes.add(said[1])
    assert len(processes) == 2, "each cell has a process of its own"


def test_a_cluster_that_is_not_there_is_named(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    ended = compare(write_grid(tmp_path), "--output", tmp_path / "out", "--ray", "127.0.0.1:1")
    assert ended.returncode == 2
    assert "--ray: there is no such cluster" in ended.stderr
