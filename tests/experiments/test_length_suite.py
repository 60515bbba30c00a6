"""Variants on a length task: trained, decoded, scored by length, drawn; nothing is done twice."""

import csv
import json
from pathlib import Path

import pytest
import yaml

from headway.experiments import length_suite
from headway.experiments.length_suite import LengthScore, compare_lengths, read_test, score_lengths, summary
from headway.recipe import load_recipe
from headway.runs.load import load
from headway.runs.run_folder import RunFolder
from headway.runs.training.preparation import check_recipe
from tests.conftest import Command

RECIPES = Path(__file__).parents[2] / "recipes" / "lengths"
BASE = {
    "data": {"train": {"tsv": "train.tsv"}, "dev": {"tsv": "dev.tsv"}, "max_length": 6},
    "vocabulary": {"kind": "whitespace", "shared": True},
    "model": {
        "kind": "decoder_only", "dim": 16, "feed_forward": 16, "heads": 2, "dropout": 0.0, "norm": "pre",
        "position": "learned", "max_position": 16, "decoder": {"layers": 1},
    },
    "objective": {"label_smoothing": 0.0},
    "optimizer": {"learning_rate": 2.0e-2, "schedule": "linear", "warmup": 5},
    "training": {"updates": 20, "batch_tokens": 256, "checkpoint_every": 20, "dev_metrics": []},
    "decoding": {"beam": 1},
}  # fmt: skip
NGRAM = {
    "base": "learned.yaml",
    "model": {"position": "none", "max_position": 64, "decoder": {"mixer": {"kind": "ngram", "n": 3}}},
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two recipes."""
    folder = tmp_path_factory.mktemp("lengths")
    for name, tree in (("learned", BASE), ("ngram", NGRAM)):
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(tree))
    return folder


def command(place: Path, *overrides: str) -> list[str | Path]:
    variants = [place / "learned.yaml", place / "ngram.yaml"]
    return ["lengths", *variants, *overrides, "--data", place / "data", "--output", place / "runs"]


def test_from_data_to_figure(place: Path, run_headway: Command) -> None:
    sizes = ["--train-size", "400", "--test-size", "5", "--train-length", "4", "--test-length", "16"]
    assert run_headway("data", "lengths", "parity", *sizes, "--output", place / "data").code == 0
    ended = run_headway(*command(place))
    assert ended.code == 0, ended.err
    rows = list(csv.DictReader((place / "runs" / "accuracy.csv").read_text().splitlines()))
    lengths = [int(length) for length in dict.fromkeys((place / "data" / "test.lengths").read_text().split())]
    assert [(row["variant"], int(row["length"])) for row in rows] == [
        (name, length) for name in ("learned", "ngram") for length in lengths
    ]
    for row in rows:
        assert 0 <= float(row["low"]) <= float(row["exact_match"]) <= float(row["high"]) <= 100
        # Sixteen positions hold a source of fourteen pieces and two marks.
        refused = row["variant"] == "learned" and int(row["length"]) > 14
        assert int(row["refused"]) == (int(row["segments"]) if refused else 0)
        assert float(row["exact_match"]) == 0 or not refused
    assert {path.name for path in (place / "runs").iterdir()} == {
        "learned", "ngram", "accuracy.csv", "accuracy.png", "accuracy.svg",
    }  # fmt: skip
    assert "unseen lengths" in ended.err
    first, second = (RunFolder(place / "runs" / name) for name in ("learned", "ngram"))
    assert first.read_recipe().training.precision == second.read_recipe().training.precision == "float32"


def test_what_is_done_is_not_done_again(place: Path, run_headway: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (place / "runs" / "accuracy.csv").read_text()
    weights = (place / "runs" / "ngram" / "model.safetensors").read_bytes()
    monkeypatch.setattr("headway.experiments.length_suite.score_lengths", lambda *given: pytest.fail("decoded again"))
    monkeypatch.setattr("headway.runs.training.loop.compute_gradients", lambda *given: pytest.fail("trained again"))
    assert run_headway(*command(place)).code == 0
    assert (place / "runs" / "accuracy.csv").read_text() == before
    assert (place / "runs" / "ngram" / "model.safetensors").read_bytes() == weights
    ended = run_headway(*command(place, "optimizer.learning_rate=0.1"))
    assert ended.code == 2
    assert "a run goes on with its own recipe, and this one has changed (optimizer.learning_rate" in ended.err


def test_a_run_of_another_recipe_is_named_before_any_training(
    place: Path, run_headway: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.experiments.length_suite.train", lambda *given, **options: pytest.fail("trained"))
    first = place / "first.yaml"
    first.write_text((place / "learned.yaml").read_text())
    folders = ("--output", place / "runs", "--data", place / "data")
    ended = run_headway("lengths", first, place / "ngram.yaml", *folders, "optimizer.warmup=4")
    assert (ended.code, "(optimizer.warmup: 5 -> 4)" in ended.err) == (2, True)


def test_several_tasks_are_drawn_beside_each_other(
    place: Path, run_headway: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = ["--train-size", "60", "--test-size", "3", "--train-length", "3", "--test-length", "4"]
    for name, *task in (("copies", "copy", "--variant", "repeated"), ("reversals", "reverse", "--variant", "twice")):
        assert run_headway("data", "lengths", *task, *sizes, "--output", place / name).code == 0
    drawn = {}
    monkeypatch.setattr(length_suite, "panel_chart", lambda panels, path: drawn.update({path: panels}))
    folders = ("--data", place / "copies", place / "reversals", "--output", place / "both")
    changes = ("training.updates=1", "training.checkpoint_every=1", "data.max_length=20", "model.max_position=64")
    ended = run_headway("lengths", place / "learned.yaml", *changes, *folders)
    assert ended.code == 0, ended.err
    panels = drawn[place / "both" / "accuracy.svg"]
    assert [panel.title for panel in panels] == ["copy repeated", "reverse twice"]
    assert [panel.title for panel in drawn[place / "both" / "copies" / "accuracy.svg"]] == ["copy repeated"]
    rows = list(csv.DictReader((place / "both" / "reversals" / "accuracy.csv").read_text().splitlines()))
    points = [(float(row["length"]), float(row["exact_match"])) for row in rows]
    for point, expected in zip(panels[1].lines["learned"], points, strict=True):
        assert point == pytest.approx(expected)
    again = run_headway(
        "lengths", place / "learned.yaml", "--data", place / "copies", place / "copies", "--output", place
    )
    assert (again.code, "so these must differ" in again.err) == (2, True)


def test_scores_are_those_of_the_outputs(place: Path) -> None:
    test, predictor = read_test(place / "data"), load(place / "runs" / "ngram", device="cpu")
    scores = score_lengths("ngram", predictor, test)
    said = [each.text for each in predictor.predict(test.prompts)]
    for score in scores:
        rows = [row for row, length in enumerate(test.lengths) if int(length) == score.length]
        assert score.exact_match == pytest.approx(100 * sum(said[row] == test.answers[row] for row in rows) / len(rows))
        assert score.segments == len(rows)


def test_another_test_is_decoded_anew(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = []
    monkeypatch.setattr(
        "headway.experiments.length_suite.score_lengths", lambda name, *rest: decoded.append(name) or []
    )
    monkeypatch.setattr("headway.experiments.length_suite.write_table", lambda *given: None)
    monkeypatch.setattr("headway.experiments.length_suite.panel_of", lambda *given: None)
    monkeypatch.setattr("headway.experiments.length_suite.draw", lambda *given: None)
    prompts = place / "data" / "test.tsv"
    text = prompts.read_text()
    prompts.write_text(text.replace("even", "odd"))
    try:
        assert compare_lengths([place / "ngram.yaml"], [place / "data"], place / "runs") == 0
    finally:
        prompts.write_text(text)
    assert decoded == ["ngram"]


def test_mistakes_are_named(place: Path, run_headway: Command, tmp_path: Path) -> None:
    recipe = place / "ngram.yaml"
    ended = run_headway("lengths", recipe, "--data", tmp_path, "--output", tmp_path / "runs")
    assert (ended.code, "--data: this is no folder of `headway data lengths`" in ended.err) == (2, True)
    ended = run_headway("lengths", recipe, recipe, "--data", place / "data", "--output", tmp_path / "runs")
    assert (ended.code, "named after its recipe" in ended.err) == (2, True)


def test_summary_means_over_lengths() -> None:
    scores = [
        LengthScore("none", length, 10 * length, value, 0, 0, 0)
        for length, value in ((1, 100), (2, 50), (3, 0), (4, 20))
    ]
    _, line = summary(scores, 2).splitlines()
    assert line.split() == ["none", "75.0", "10.0"]


VARIANTS = sorted((RECIPES / "variants").glob("*.yaml"))


@pytest.mark.parametrize("path", VARIANTS, ids=lambda path: path.stem)
def test_recipes_of_all_variants_are_sound(path: Path) -> None:
    check_recipe(load_recipe(path))


def test_recipes_differ_in_how_information_moves_alone() -> None:
    recipes = {path.stem: load_recipe(path).model_dump(mode="json") for path in VARIANTS}
    names = {"alibi", "learned", "local", "ngram", "none", "rotary", "sinusoidal", "t5"}
    assert set(recipes) == names
    for recipe in recipes.values():
        for section, key in (
            ("model", "position"),
            ("model", "decoder"),
            ("model", "max_position"),
            ("data", "max_length"),
        ):
            recipe[section].pop(key)
    assert len({json.dumps(recipe) for recipe in recipes.values()}) == 1
