"""The precision of runs that are compared: chosen by the first of them, for those that leave it open."""

from pathlib import Path

from headway.recipe import Recipe
from headway.runs.run_folder import RunFolder
from headway.runs.training.shared_precision import SharedPrecision
from tests.runs.training import toys


def written(folder: Path, precision: str) -> None:
    folder.mkdir()
    RunFolder(folder).write_manifest({"precision": precision})


def test_the_first_run_that_begins_chooses_for_those_that_leave_it_open(tmp_path: Path) -> None:
    auto, named = (toys.recipe(tmp_path, precision=precision) for precision in ("auto", "float32"))
    runs: list[tuple[Recipe, Path]] = [(named, tmp_path / "a"), (auto, tmp_path / "b"), (auto, tmp_path / "c")]
    shared = SharedPrecision(runs)
    assert (shared.chosen(), shared.given(auto)) == (None, auto)
    written(tmp_path / "a", "float32")
    assert shared.chosen() is None  # a precision that a recipe names is no choice for others
    written(tmp_path / "c", "bf16")
    assert shared.given(auto).training.precision == "bf16"
    assert shared.given(named) == named
    written(tmp_path / "b", "float32")
    assert shared.chosen() == "bf16"
