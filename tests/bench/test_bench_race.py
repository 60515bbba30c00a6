"""The race: curves by processor time, and the time to a goal."""

import json
from pathlib import Path

import pytest

from headway.bench.bench_race import run_bench_race
from headway.errors import UserError
from tests.conftest import Command


def write_run(folder: Path, points: list[tuple[int, float, float]]) -> Path:
    folder.mkdir()
    lines = [{"update": 1, "loss": 2.0, "cpu_seconds": 1.0}]
    lines += [{"update": n, "dev_loss": 1.0, "dev": {"bleu": bleu}, "cpu_seconds": cpu} for n, cpu, bleu in points]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return folder


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    slow = write_run(tmp_path / "slow", [(500, 600.0, 20.0), (1000, 1200.0, 37.7), (1500, 1800.0, 40.0)])
    fast = write_run(tmp_path / "fast", [(400, 300.0, 38.0), (800, 700.0, 36.0)])
    never = write_run(tmp_path / "never", [(400, 60.0, 1.0)])
    return [slow, fast, never]


def test_the_time_to_the_goal(runs: list[Path], tmp_path: Path) -> None:
    curve, goal = run_bench_race(runs, None, 37.7, tmp_path / "race.json")
    assert [row[1:] for row in goal.rows] == [(20.0, 1.0, 40.0), (5.0, 0.25, 38.0), (None, None, 1.0)]
    assert [row[0] for row in curve.rows] == [1.0, 5.0, 10.0, pytest.approx(700 / 60), 20.0, 30.0]
    assert len(json.loads((tmp_path / "race.json").read_text(encoding="utf-8"))) == 2


def test_the_command(run_headway: Command, runs: list[Path]) -> None:
    ended = run_headway("bench", "race", *runs, "--goal", "37.7")
    assert ended.code == 0
    assert "Time to 37.7 bleu on dev" in ended.out
    assert "20.0" in ended.out


def test_mistakes(runs: list[Path], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="allowed: bleu"):
        run_bench_race(runs, "ter", None, None)
    with pytest.raises(UserError, match="no scores on dev"):
        run_bench_race([write_run(tmp_path / "empty", [])], None, None, None)
    with pytest.raises(UserError, match="there are no metrics"):
        run_bench_race([tmp_path], None, None, None)
