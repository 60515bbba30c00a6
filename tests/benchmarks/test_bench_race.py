"""The race: curves by processor time, and the time to a goal."""

import json
import shutil
from pathlib import Path

import pytest
from bench import race
from bench_race import Racer, run_bench_race

from headway.core.errors import UserError
from headway.core.tables import Spread
from tests.conftest import Reversal

SLOW = [(500, 600.0, 20.0), (1000, 1200.0, 37.7), (1500, 1800.0, 40.0)]
SLOWER = [(500, 600.0, 20.0), (1500, 1800.0, 39.0)]
FAST = [(400, 300.0, 38.0), (800, 700.0, 36.0)]
NEVER = [(400, 60.0, 1.0)]
DIMS = {"slow": 32, "fast": 64, "never": 96}


def write_run(folder: Path, points: list[tuple[int, float, float]], metric: str = "exact_match") -> Path:
    folder.mkdir()
    lines = [{"update": 1, "loss": 2.0, "cpu_seconds": 1.0}]
    lines += [{"update": n, "dev_loss": 1.0, "dev": {metric: score}, "cpu_seconds": cpu} for n, cpu, score in points]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return folder


@pytest.fixture
def racers(tmp_path: Path, reversal: Reversal) -> list[Racer]:
    runs = [
        Racer("slow", 1, write_run(tmp_path / "slow-1", SLOW)),
        Racer("slow", 2, write_run(tmp_path / "slow-2", SLOWER)),
        Racer("fast", 1, write_run(tmp_path / "fast", FAST)),
        Racer("never", 1, write_run(tmp_path / "never", NEVER)),
    ]
    recipe = (reversal.run / "recipe.yaml").read_text(encoding="utf-8")
    for system, seed, run in runs:
        changed = recipe.replace("\n  seed: 1\n", f"\n  seed: {seed}\n")
        changed = changed.replace("\n  dim: 32\n", f"\n  dim: {DIMS[system]}\n")
        (run / "recipe.yaml").write_text(changed, encoding="utf-8")
    return runs


def test_the_way_of_each_run(racers: list[Racer], tmp_path: Path) -> None:
    curve, way, _ = run_bench_race(racers, None, 37.7, tmp_path / "race.json")
    assert way.rows == (
        ("slow, seed 1", 1500, 30.0, 40.0, 40.0, 1000, 20.0),
        ("slow, seed 2", 1500, 30.0, 39.0, 39.0, 1500, 30.0),
        ("fast, seed 1", 800, 700 / 60, 36.0, 38.0, 400, 5.0),
        ("never, seed 1", 400, 1.0, 1.0, 1.0, None, None),
    )
    assert [row[0] for row in curve.rows] == [1.0, 5.0, 10.0, 10.0, pytest.approx(700 / 60), 20.0, 30.0, 30.0]
    assert len(json.loads((tmp_path / "race.json").read_text(encoding="utf-8"))) == 3


def test_the_time_of_each_system(racers: list[Racer]) -> None:
    slow, *others = run_bench_race(racers, "exact_match", 37.7)[-1].rows
    assert slow[:3] == ("slow", 2, 2)
    assert slow[3] == pytest.approx(Spread(25.0, 50**0.5))
    assert slow[4] == 1.0
    assert slow[5] == pytest.approx(Spread(39.5, 0.5**0.5))
    assert others == [("fast", 1, 1, 5.0, 0.2, 38.0), ("never", 1, 0, None, None, 1.0)]


def test_a_system_with_a_seed_that_falls_short_has_no_time(racers: list[Racer]) -> None:
    systems = run_bench_race(racers, None, 39.5)[-1]
    assert systems.rows[0][1:5] == (2, 1, None, None)
    assert [row[4] for row in systems.rows] == [None, None, None]


def test_error_rates_reach_a_goal_from_above(tmp_path: Path, reversal: Reversal) -> None:
    run = write_run(tmp_path / "speech", [(100, 60.0, 40.0), (200, 120.0, 9.0), (300, 180.0, 12.0)], "wer")
    recipe = (reversal.run / "recipe.yaml").read_text(encoding="utf-8")
    (run / "recipe.yaml").write_text(recipe.replace("exact_match", "wer"), encoding="utf-8")
    way = run_bench_race([Racer("speech", 1, run)], None, 10.0)[1]
    assert way.rows == (("speech, seed 1", 300, 3.0, 12.0, 9.0, 200, 2.0),)


def test_the_command_puts_seeds_together(racers: list[Racer], capsys: pytest.CaptureFixture[str]) -> None:
    race([str(racer.run) for racer in racers], goal=37.7)
    assert "25.0 ± 7.1" in capsys.readouterr().out
    race([f"small={racers[2].run}"], goal=37.7)
    assert "small, seed 1" in capsys.readouterr().out


def test_mistakes(racers: list[Racer], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="allowed: exact_match"):
        run_bench_race(racers, "ter", None)
    shutil.copytree(racers[0].run, tmp_path / "empty")
    (tmp_path / "empty/metrics.jsonl").write_text("", encoding="utf-8")
    with pytest.raises(UserError, match="no scores on dev"):
        run_bench_race([Racer("empty", 1, tmp_path / "empty")], None, None)
    with pytest.raises(UserError, match="there are no metrics"):
        run_bench_race([Racer("none", 1, tmp_path)], None, None)
    with pytest.raises(UserError, match=r"runs: two runs of one name; received \['slow, seed 1'\]"):
        run_bench_race([*racers, racers[0]], None, None)
