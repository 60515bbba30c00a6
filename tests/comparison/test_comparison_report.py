"""The report as files, and its parts: curves, counts of training words, the segments that are shown."""

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

import headway
from headway.comparison.cells import Costs, CurvePoint
from headway.comparison.comparison import Comparison
from headway.comparison.differences import banded_curves
from headway.comparison.report import SENTENCES, report_of, training_words, write_tables
from headway.errors import UserError
from headway.metrics import build_metric
from tests.comparison.toys import cell, evaluation_set
from tests.conftest import Reversal

TEST = evaluation_set(80)


def compared(curves: bool = True) -> Comparison:
    cells = []
    for variant, kept, speed in (("slow", 0.7, 2.0), ("quick", 0.9, 1.0)):
        for seed in (1, 2):
            points = tuple(
                CurvePoint(update, speed * update, {"bleu": update / 10 + seed * kept, "loss": 5 - update / 100})
                for update in (100, 200, 300)
            )
            one = replace(cell(variant, seed, kept, TEST), costs=Costs(parameters=7, cpu_seconds=speed))
            cells.append(replace(one, curve=points) if curves else one)
    return headway.compare(cells, [build_metric("bleu")], {"bleu": 2})


def test_files(tmp_path: Path) -> None:
    comparison = compared()
    write_tables(report_of(comparison, {"the": 3}), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        "compare.md", "compare.tex", "compare.csv", "differences.csv", "compare.json",
    }  # fmt: skip
    assert json.loads((tmp_path / "compare.json").read_text()) == comparison.to_json()
    text = (tmp_path / "compare.md").read_text()
    assert "- quick is better than slow: +" in text
    assert "**BLEU by length of the source in words**" in text
    assert "**F1 of words by times that a word was seen in training**" in text
    assert "n-gram" in text
    assert (tmp_path / "compare.tex").read_text().count(r"\toprule") == 2
    with (tmp_path / "compare.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert float(rows[0]["BLEU"]) == comparison.variants[0].scores["bleu"].mean
    assert float(rows[0]["BLEU ±"]) == comparison.variants[0].scores["bleu"].sd
    with (tmp_path / "differences.csv").open(newline="") as file:
        assert [row["b is"] for row in csv.DictReader(file)] == ["better"]


def test_curves_have_a_band_over_seeds() -> None:
    bleu, loss = banded_curves(compared())
    assert (bleu.metric, loss.metric) == ("bleu", "loss")
    point = bleu.lines["slow"][1]
    assert (point.update, point.seconds) == (200, 400)
    assert (point.low, point.mean, point.high) == pytest.approx((20.7, 21.05, 21.4))
    assert loss.best("quick").update == 300
    reached = [(row[0], row[4], row[5]) for row in bleu.table().rows]
    assert reached == [("slow", 300, 600), ("quick", 300, 300)]
    assert banded_curves(compared(curves=False)) == []


def test_curves_need_the_same_updates_of_all_seeds() -> None:
    comparison = compared()
    cells = [one for row in comparison.cells.values() for one in row]
    cells[0] = replace(cells[0], curve=cells[0].curve[:2])
    (bleu, _) = banded_curves(headway.compare(cells, [build_metric("bleu")]))
    assert [point.update for point in bleu.lines["slow"]] == [100, 200]
    assert len(bleu.lines["quick"]) == 3


def test_an_evaluation_without_a_score_is_left_out_for_that_metric_alone() -> None:
    cells = [one for row in compared().cells.values() for one in row]
    first, *others = cells[0].curve
    cells[0] = replace(cells[0], curve=(replace(first, scores={"loss": 4.0}), *others))
    bleu, loss = banded_curves(headway.compare(cells, [build_metric("bleu")]))
    assert [point.update for point in bleu.lines["slow"]] == [200, 300]
    assert [point.update for point in loss.lines["slow"]] == [100, 200, 300]


def test_errors_that_only_dev_was_measured_by_are_better_when_lower() -> None:
    cells = [
        replace(one, curve=tuple(replace(point, scores={"cer": 90 - point.update / 10}) for point in one.curve))
        for row in compared().cells.values()
        for one in row
    ]
    (errors,) = banded_curves(headway.compare(cells, [build_metric("bleu")]))
    assert not errors.higher_is_better
    assert errors.best("slow").mean == 60


def test_of_equal_scores_on_dev_the_one_with_the_lowest_loss_is_the_best() -> None:
    cells = [
        replace(one, curve=tuple(replace(point, scores=point.scores | {"bleu": 0.0}) for point in one.curve))
        for row in compared().cells.values()
        for one in row
    ]
    bleu, _ = banded_curves(headway.compare(cells, [build_metric("bleu")]))
    assert bleu.best("slow").update == 300


def test_one_evaluation_shows_nobody_to_be_sooner() -> None:
    cells = [replace(one, curve=one.curve[:1]) for row in compared().cells.values() for one in row]
    assert [curves.are_long for curves in banded_curves(headway.compare(cells, [build_metric("bleu")]))] == [False] * 2
    assert all(curves.are_long for curves in banded_curves(compared()))


def test_the_sentences_that_are_shown_differ() -> None:
    report = report_of(compared())
    shown = report.shown["slow", "quick", 0]
    assert 0 < len(shown) <= 2 * SENTENCES
    assert all(report.sentences[0][index]["slow"] != report.sentences[0][index]["quick"] for index in shown)


def test_words_of_training(tmp_path: Path) -> None:
    path = tmp_path / "train.txt"
    path.write_text("The cat, the dog\n")
    assert training_words(compared(), path) == {"the": 2, "cat": 1, ",": 1, "dog": 1}
    assert training_words(compared(), None) is None
    with pytest.raises(UserError, match="nowhere"):
        training_words(compared(), tmp_path / "nowhere")


def test_data_of_training_that_moved_away_are_a_warning(
    reversal: Reversal, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """All has been decoded by then, and shall not be lost."""
    for name in ("one", "other"):
        run = shutil.copytree(reversal.run, tmp_path / name)
        recipe = yaml.safe_load((run / "recipe.yaml").read_text(encoding="utf-8"))
        recipe["data"]["train"] = {"tsv": "moved.tsv"}
        (run / "recipe.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
    names = {name: tmp_path / name for name in ("one", "other")}
    headway.compare(names, metrics="bleu", output=tmp_path / "out", device="cpu")
    assert "how often training has them are left out: its data cannot be read" in caplog.text
    assert (tmp_path / "out" / "compare.md").is_file()
