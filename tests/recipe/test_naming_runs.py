"""A folder that is no run is refused wherever a run is named, with the run that may be meant."""

from pathlib import Path

import pytest

from headway.recipe.reading import runs_near
from tests.conftest import Command, Reversal

NO_RUN = "this is not a run folder: it has no recipe.yaml that training wrote; there is "


@pytest.fixture
def data(reversal: Reversal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as `headway new` makes it, with a recipe that is no run's, and a run that was trained in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "recipe.yaml").write_text(reversal.recipe.read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "data" / "run").symlink_to(reversal.run)
    return tmp_path / "data"


@pytest.mark.parametrize(
    "command",
    [
        "train --resume data",
        "train data/recipe.yaml --output data",
        "train data/recipe.yaml --output data --resume",
        "train data/recipe.yaml training.from=data",
        "predict data",
        "predict data data",
        "inspect data",
        "inspect tables parameters data",
        "export onnx data --output exported",
        "pack data packed.zip",
        "serve data",
        "score data",
        "augment distill data --output distilled",
        "compare data data/run",
    ],
)
def test_the_run_in_the_folder_is_named(data: Path, run_headway: Command, command: str) -> None:
    recipe = (data / "recipe.yaml").read_bytes()
    code, out, err = run_headway(*command.split(), stdin="ab\n")
    assert (code, out) == (2, "")
    assert "data/run" in err.partition(NO_RUN)[2]
    assert (data / "recipe.yaml").read_bytes() == recipe
    assert sorted(path.name for path in data.iterdir()) == ["recipe.yaml", "run"]


@pytest.mark.parametrize(
    ("named", "meant"),
    [
        ("data", "data/run"),
        (".", "data/run"),
        ("run", "data/run"),
        ("data/runs", "data/run"),
        ("data/run/vocabulary", "data/run"),
        ("data/run/checkpoints/update-00000001", "data/run"),
        ("elsewhere", None),
        ("a" * 300, None),
        ("data/[", None),
    ],
)
def test_runs_are_looked_for_inside_around_deeper_and_beside(data: Path, named: str, meant: str | None) -> None:
    assert runs_near(Path(named)) == (f"; there is {meant}" if meant else "")


def test_a_run_that_is_not_there_is_not_read_as_a_recipe(data: Path, run_headway: Command) -> None:
    code, _, err = run_headway("train", "--resume", "data/runn")
    assert (code, err) == (
        2,
        "error: data/runn: this is not a run folder: it has no recipe.yaml that training wrote; there is data/run\n",
    )


def test_a_pack_a_model_of_others_and_a_run_after_resume_are_named_as_they_must_be(
    data: Path, run_headway: Command
) -> None:
    (data / "model").mkdir()
    for name in ("run.zip", "model/config.json", "model/model.safetensors"):
        (data / name).touch()
    origin = run_headway("train", "data/recipe.yaml", "training.from=data/run.zip")
    assert (origin.code, "; unzip this pack, and name its folder" in origin.err) == (2, True)
    predicted = run_headway("predict", "data/model", stdin="ab\n")
    assert (predicted.code, "; a model of Hugging Face is named hf:data/model" in predicted.err) == (2, True)
    resumed = run_headway("train", "data/recipe.yaml", "--resume", "data/run")
    assert (resumed.code, "allowed: --output data/run, for a run folder" in resumed.err) == (2, True)
