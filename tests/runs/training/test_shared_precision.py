"""The precision of runs that are compared: one for all that leave it open."""

from pathlib import Path

import pytest

from headway.recipe import Recipe
from headway.runs.run_folder import RunFolder
from headway.runs.training import run_arithmetic
from headway.runs.training.run_arithmetic import SharedPrecision
from headway.tensors.precision import Speed
from tests.runs.training import toys


def written(folder: Path, precision: str) -> None:
    folder.mkdir()
    RunFolder(folder).write_manifest({"precision": precision})


def test_runs_that_are_there_have_chosen_for_those_that_leave_it_open(tmp_path: Path) -> None:
    auto, named = (toys.recipe(tmp_path, precision=precision) for precision in ("auto", "float32"))
    runs: list[tuple[Recipe, Path]] = [(named, tmp_path / "a"), (auto, tmp_path / "b"), (auto, tmp_path / "c")]
    written(tmp_path / "a", "bf16")  # a precision that a recipe names is no choice for others
    assert SharedPrecision(runs).given(auto).training.precision == "float32"
    written(tmp_path / "c", "bf16")
    shared = SharedPrecision(runs)
    assert shared.given(auto).training.precision == "bf16"
    assert shared.given(named) == named


@pytest.mark.parametrize(("speeds", "chosen"), [((1.9, 1.9), "bf16"), ((1.9, 1.1), "float32")])
def test_bf16_has_to_suit_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, speeds, chosen: str) -> None:
    by_width, seen = dict(zip((32, 64), speeds, strict=True)), []

    def measured(recipe: Recipe, *given: object) -> Speed:
        seen.append(width := recipe.model.width())
        return Speed(by_width[width], by_width[width])

    monkeypatch.setattr(run_arithmetic, "measured_speed", measured)
    recipes = [toys.recipe(tmp_path, model={"dim": dim}, seed=seed) for dim in (32, 64) for seed in (1, 2)]
    shared = SharedPrecision([(recipe, tmp_path / str(index)) for index, recipe in enumerate(recipes)])
    assert {shared.given(recipe).training.precision for recipe in recipes} == {chosen}
    assert seen == [32, 64]
