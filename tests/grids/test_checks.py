"""Checks of tuned values: which neighbour is trained in full, what it gains, and what becomes of verdicts."""

from pathlib import Path
from typing import Any

import pytest

from headway.comparison.cells import CellOutput, CellResult, EvaluationSet
from headway.comparison.comparison import ORDER
from headway.comparison.options import GridOptions
from headway.grids.checks import Check, gains_of, neighbour_of
from headway.grids.compare import comparison_of, plan_of
from headway.grids.grid import CellJob, load_grid
from headway.grids.grid_run import GridResult, GridRun
from headway.grids.run import _make
from headway.metrics import build_metric
from headway.runs.load import load
from tests.comparison.toys import cells_of
from tests.grids.grids import write_grid
from tests.grids.test_grid_run import BY_SEED, REFERENCES, SMALL, grown

TEST = EvaluationSet("tuning", (REFERENCES,))
RATE = "optimizer.learning_rate"


def output(right: int) -> CellOutput:
    """An output that has so many of 100 segments right."""
    return CellOutput(TEST, (*REFERENCES[:right], *["none"] * (100 - right)))


@pytest.mark.parametrize(
    ("key", "tried", "value", "better", "neighbour"),
    [
        (RATE, (1, 2, 4), 2, 4, 1),  # the lower one, whatever the short runs say
        (RATE, (1, 2, 4, 0.5), 1, 2, 0.5),
        ("model.dropout", (0.1, 0.2, 0.4), 0.2, 0.4, 0.4),
        ("model.norm", ("pre", "post", "none"), "post", "none", "none"),
    ],
)
def test_the_neighbour_of_a_value(key: str, tried: tuple[Any, ...], value: Any, better: Any, neighbour: Any) -> None:
    assert neighbour_of(key, tried, value, lambda each: float(each == better)) == neighbour


def test_a_gain_has_the_error_of_segments_or_of_seeds() -> None:
    metric = build_metric("exact_match")
    alone = Check("a", 1.0, 2, 1, 1, (output(60), output(40)))
    (gain,) = gains_of([alone], metric)
    assert (gain.value, gain.error) == (pytest.approx(20), pytest.approx(4.2, abs=0.3))
    varying = Check("a", 1.0, 2, 1, 1, alone.outputs, (output(30), output(50)))
    (gain,) = gains_of([varying], metric)
    assert gain.error == pytest.approx((2 * 200) ** 0.5)  # the variance of 30 and 50 is 200
    (worse,) = gains_of([alone], build_metric("wer"))
    assert worse.value == pytest.approx(20)


def test_each_chosen_value_is_checked_once_and_after_its_cell(tmp_path: Path) -> None:
    grid = load_grid(write_grid(tmp_path, tune=BY_SEED, metrics=["exact_match"], seeds=[1, 2, 3]))
    run = GridRun(grid, tmp_path / "out", threads=1)
    grown(run, lambda seed: 0.02 if seed < 3 else 0.32)  # seed 3 ends at the highest value
    assert run.still_checks() == 3
    run._plan_checks()
    assert not any(state.check for state in run.groups)
    for state in run.groups:
        state.cells[0].status = "finished"
    run._plan_checks()
    checks = [state.check for state in run.groups if state.check is not None]
    assert [check.job.planned.name for check in checks] == ["attention-0.01-1", "local-0.01-1", "ngram-0.01-1"]
    assert checks[0].job.beside == (tmp_path / "out" / "cells" / "attention-1").absolute()
    cell = run.groups[0].cells[0].job.planned.recipe
    assert checks[0].job.planned.recipe.optimizer.learning_rate == 0.01
    assert checks[0].job.planned.recipe.training == cell.training, "as long as a cell, with its seed"
    assert run.ready()[-1].job.kind == "checks"
    checks[0].status, checks[0].result = "finished", CellResult("attention", 1, (output(60), output(40)))
    (found,) = run.result().checks
    assert (found.variant, found.share, found.value, found.neighbour) == ("attention", 2 / 3, 0.02, 0.01)
    assert [each.hypotheses.count("none") for each in found.short] == [50, 50, 90]
    off = GridRun(load_grid(tmp_path / "grid.yaml", ["tune.check=false"]), tmp_path / "off", threads=1)
    assert off.still_checks() == 0


def test_a_check_decodes_the_cell_beside_it(tmp_path: Path) -> None:
    grid = load_grid(write_grid(tmp_path, tune=BY_SEED, **SMALL))
    (group, *_), out, tests = grid.groups_of(grid.variants[0]), tmp_path / "out", (grid.tuning_set,)
    (cell,) = grid.cells(group, 0.02)
    _make(CellJob(cell, "cells", out, grid.tests, {}, 1))
    job = CellJob(grid.check(group, 0.01), "checks", out, tests, {}, 1, out / "cells" / cell.name)
    _make(job)
    found = job.result()
    assert found is not None
    for run, made in zip((job.run, job.beside), found.outputs, strict=True):
        predicted = load(run, device="cpu").predict(made.test.sources)
        assert made.hypotheses == tuple(each.text for each in predicted)
    assert load(job.run, device="cpu").recipe.optimizer.learning_rate == 0.01


@pytest.mark.parametrize(
    ("gains", "words"),
    [
        ({"attention": (40, 60), "ngram": (40, 60)}, "better"),
        ({"attention": (60, 40), "ngram": (40, 60)}, "rate?"),
        ({"attention": (40, 60), "ngram": (90, 40)}, "better"),  # even better with another rate
        ({"attention": (40, 60)}, f"better, {ORDER}"),
        ({}, f"better, {ORDER}"),
    ],
)
def test_a_verdict_that_a_neighbour_may_explain_is_in_doubt(
    tmp_path: Path, gains: dict[str, tuple[int, int]], words: str
) -> None:
    tune = {**BY_SEED, "check": bool(gains)}
    grid = load_grid(
        write_grid(tmp_path, tune=tune, metrics=["exact_match"], seeds=[1, 2, 3], variants=SMALL["variants"])
    )
    checks = tuple(
        Check(name, 1.0, 0.02, 0.01, 1, (output(better), output(chosen))) for name, (better, chosen) in gains.items()
    )
    compared = comparison_of(grid, GridResult(tuple(cells_of(attention=0.8, ngram=0.9)), (), checks=checks))
    assert compared is not None
    (pair,) = compared.pairs
    assert pair.words == words
    assert len(compared.to_json()["tuning"].get("checks", ())) == len(checks)
    if words == "rate?":
        assert pair.doubt.startswith(f"{RATE} 0.01 may suit attention better than 0.02 (+20.00 ± ")


def test_the_plan_has_the_checks(tmp_path: Path) -> None:
    grid = load_grid(write_grid(tmp_path, tune=BY_SEED, **SMALL))
    plan = plan_of(grid, tmp_path / "out", GridOptions(workers=1))
    assert "A neighbour of each chosen value is trained with one seed: up to 4 more cells: " in plan.notes[-1]
