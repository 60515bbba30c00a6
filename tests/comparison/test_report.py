"""The report as files, and its parts: curves, counts of training words, the segments that are shown."""

import csv
import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest
import yaml

import headway
from headway.comparison import report
from headway.comparison.cells import CellOutput, CellResult, Costs, CurvePoint, EvaluationSet
from headway.comparison.comparison import Comparison, compare_cells
from headway.comparison.differences import banded_curves
from headway.comparison.options import CompareOptions
from headway.comparison.report import SENTENCES, payload, report_of, training_words, write_tables
from headway.core.errors import UserError
from headway.metrics import METRICS, build_metric
from tests.comparison.toys import LINES, REFERENCES, cell, cells_of, evaluation_set, hypotheses
from tests.conftest import Command, Reversal
from tests.metrics.made_comet import write_checkpoint

TEST = evaluation_set(80)
KEPT = {"attention": 0.6, "lowest-1": 0.9, "lowest-2": 0.8}
TREE, OTHER = "(TOP (S (NP (D the) (N cat)) (VP (V sat))))", "(TOP (S (NP (D the)) (VP (N cat) (V sat))))"
LABELS = (("i c c", "c c i"), ("c c c", "i c i"))
SEGMENTS = {
    "aer": (("0-0 1-1", "0-1"), ("0-0 1?1", "0-1 1-0")),
    "uas": (("2 0", "0 1"), ("2 0", "2 0")),
    "deviation": ((".2 .01", "0 .1"), ("0 0", "0 0")),
}


def compared(curves: bool = True, doubts: Mapping[str, str] = MappingProxyType({})) -> Comparison:
    cells = []
    for variant, kept, speed in (("slow", 0.7, 2.0), ("quick", 0.9, 1.0)):
        for seed in (1, 2):
            points = tuple(
                CurvePoint(update, speed * update, {"bleu": update / 10 + seed * kept, "loss": 5 - update / 100})
                for update in (100, 200, 300)
            )
            one = replace(cell(variant, seed, kept, TEST), costs=Costs(parameters=7, cpu_seconds=speed))
            cells.append(replace(one, curve=points) if curves else one)
    return compare_cells(cells, [build_metric("bleu")], {"bleu": 2}, doubts=doubts)


def test_a_doubted_verdict_is_one_everywhere(tmp_path: Path) -> None:
    report = report_of(compared(doubts={"slow": "tune slow with lower values"}), None)
    write_tables(report, tmp_path)
    page = payload(report, {})
    assert [(pair["verdict"], pair["words"]) for pair in page["pairs"]] == [("rate?", "rate?")]
    assert page["conclusions"][0].startswith("rate? for quick and slow: ")
    assert "rate?: tune slow with lower values." in page["tables"][1]["notes"]
    assert "quick is better" not in json.dumps(page)
    for name in ("compare.md", "differences.csv", "compare.json"):
        assert "rate?" in (tmp_path / name).read_text(), name
    assert "tune slow with lower values" in (tmp_path / "compare.md").read_text()


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
    assert [row[6] for row in bleu.table().rows] == [bleu.last_gain(name) for name in ("slow", "quick")]
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


def test_points_are_means_and_bars_deviations(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cells = [cell(name, seed, kept) for name, kept in KEPT.items() for seed in (1, 2)]
    comparison = headway.compare(cells, [build_metric("bleu"), build_metric("ter")])
    drawn = []
    monkeypatch.setattr(report, "panel_chart", lambda panels, path: drawn.extend(panels))
    report.draw_scores(comparison, tmp_path / "figure.svg")
    assert [panel.y for panel in drawn] == [measure.label for measure in comparison.measures]
    for panel, measure in zip(drawn, ("bleu", "ter"), strict=True):
        scores = [variant.scores[measure] for variant in comparison.variants]
        assert list(panel.names) == list(KEPT)
        assert panel.lines["mean over seeds"] == [(index, each.mean) for index, each in enumerate(scores)]
        assert panel.bars["mean over seeds"] == [(each.mean - each.sd, each.mean + each.sd) for each in scores]
        assert panel.lines["attention"] == [(index, scores[0].mean) for index in range(3)]


def test_a_variant_may_be_called_as_the_line_of_scores(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    comparison = headway.compare([cell("score", 1, 0.9), cell("other", 1, 0.6)], [build_metric("bleu")])
    drawn = []
    monkeypatch.setattr(report, "panel_chart", lambda panels, path: drawn.extend(panels))
    report.draw_scores(comparison, tmp_path / "figure.svg")
    first, second = (variant.scores["bleu"].mean for variant in comparison.variants)
    assert drawn[0].lines == {"score": [(0, first), (1, second)], "score (baseline)": [(0, first), (1, first)]}
    assert drawn[0].baseline == "score (baseline)"


def test_differences_of_named_systems_are_a_forest_plot(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cells = [cell(name, seed, kept) for name, kept in KEPT.items() for seed in (1, 2)]
    comparison = headway.compare(cells, [build_metric("bleu"), build_metric("ter")])
    drawn = []
    monkeypatch.setattr(report, "save_figure", lambda figure, path: drawn.append(figure))
    report.draw_figures(comparison, report.CompareOptions(figure=tmp_path / "figure.svg"))
    panels = drawn[0].axes
    assert [panel.get_xlabel() for panel in panels] == [
        f"difference in {measure.label}, 95 % interval" for measure in comparison.measures
    ]
    for panel, measure in zip(panels, comparison.measures, strict=True):
        pairs = [pair for pair in comparison.pairs if pair.metric == measure.key]
        labels = [f"{pair.b} against {pair.a}: {pair.words}" for pair in pairs]
        assert [label.get_text() for label in panel.get_yticklabels()] == labels
    numbered = [cell(name, seed, kept) for name, kept in zip("123", KEPT.values(), strict=True) for seed in (1, 2)]
    monkeypatch.setattr(report, "panel_chart", lambda panels, path: drawn.extend(panels))
    comparison = headway.compare(numbered, [build_metric("bleu")])
    report.draw_figures(comparison, report.CompareOptions(figure=tmp_path / "figure.svg"))
    assert drawn[1].names == ["1", "2", "3"]


def test_the_command_draws_it(run_headway: Command, tmp_path: Path) -> None:
    (tmp_path / "references").write_text("".join(f"{line}\n" for line in REFERENCES), encoding="utf-8")
    files = []
    for number, (name, kept) in enumerate(KEPT.items()):
        lines = hypotheses(len(REFERENCES), seed=number, kept=kept)
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        files.append(f"{name}={tmp_path / name}")
    flags = ("--references", tmp_path / "references", "--metric", "chrf", "--figure", tmp_path / "figure.svg")
    assert run_headway("compare", "--hypotheses", *files, *flags).code == 0
    assert "<svg" in (tmp_path / "figure.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize("groups", [True, False])
def test_by_length(groups: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    test = evaluation_set()
    numbers = tuple(str(10 * (index % 3) + 5) for index in range(len(test.references[0])))
    test = replace(test, groups=numbers if groups else ())
    cells = [cell(name, seed, kept, test) for name, kept in KEPT.items() for seed in (1, 2)]
    bleu = build_metric("bleu")
    comparison = headway.compare(cells, [bleu])
    drawn = []
    monkeypatch.setattr(report, "panel_chart", lambda panels, path: drawn.extend(panels))
    report.draw_figures(comparison, CompareOptions(by_length=tmp_path / "figure.svg"))
    (panel,) = drawn
    assert list(panel.lines) == list(KEPT)
    assert sum(count for _, count in panel.counts) == len(numbers)
    for name in KEPT:
        assert all(low <= y <= high for (_, y), (low, high) in zip(panel.lines[name], panel.bars[name], strict=True))
    if groups:
        assert (panel.title, panel.x) == ("BLEU by length", "length")
        assert [x for x, _ in panel.lines["attention"]] == [5, 15, 25]
        first = [
            bleu.score(one.outputs[0].hypotheses[::3], [test.references[0][::3]]).value
            for one in comparison.cells["attention"]
        ]
        assert panel.lines["attention"][0][1] == pytest.approx(sum(first) / 2)
    else:
        words = [len(line.split()) for line in test.references[0]]
        weighted = sum(x * count for x, count in panel.counts)
        assert weighted == pytest.approx(sum(words))


def test_no_lengths_are_no_figure(run_headway: Command, tmp_path: Path) -> None:
    (tmp_path / "gold").write_text("a\tc\nb\ti\n\na\tc\nb\tc\n", encoding="utf-8")
    for name in ("one", "two"):
        (tmp_path / name).write_text("a\tc\nb\tc\n\na\tc\nb\tc\n", encoding="utf-8")
    flags = ("--references", tmp_path / "gold", "--metric", "f0.5", "--by-length", tmp_path / "figure.svg")
    done = run_headway("compare", "--hypotheses", tmp_path / "one", tmp_path / "two", *flags)
    assert done.code == 2
    assert "no test set has lengths" in done.err
    assert not (tmp_path / "figure.svg").exists()


def segments(name: str) -> tuple[list[str], list[str], list[str]]:
    """Outputs of two systems, and references."""
    module = METRICS.get(name).__module__
    if module.endswith("brackets"):
        return [TREE, OTHER] * 4, [OTHER, OTHER] * 4, [TREE] * 8
    if module.endswith("label_metrics"):
        return [*LABELS[0]] * 4, [*LABELS[1]] * 4, ["i c c", "c c i"] * 4
    if name in SEGMENTS:
        outputs, references = SEGMENTS[name]
        return [*outputs] * 4, [*outputs[::-1]] * 4, [*references] * 4
    return LINES, REFERENCES, REFERENCES


@pytest.mark.parametrize("name", METRICS)
def test_the_metric_takes_part(name: str, tmp_path: Path) -> None:
    own = {"model": str(write_checkpoint(tmp_path, "regression")), "device": "cpu"} if name == "comet" else {}
    first, second, references = segments(name)
    test = EvaluationSet("test", (tuple(references),), tuple(REFERENCES), ("1", "2") * 4)
    cells = [
        CellResult(variant, seed, (CellOutput(test, tuple(lines)),))
        for variant, lines in (("a", first), ("b", second))
        for seed in (1, 2)
    ]
    compared = headway.compare(cells, [build_metric(name, **own)])
    (pair,) = compared.pairs
    low, high = pair.estimate.interval()
    assert low <= pair.difference <= high
    scores = compared.variants[0].scores[name].scores
    assert scores[0] == build_metric(name, **own).score(first, [references], REFERENCES).value
    report = report_of(compared, {"the": 3})
    assert any(bucketing.axis == "group" for bucketing in report.buckets)
    json.dumps([compared.to_json(), payload(report, {})], allow_nan=False)


def test_columns_of_the_latex_table_are_chosen(tmp_path: Path) -> None:
    made = report_of(compare_cells(cells_of(a=0.8, b=0.7), [build_metric("bleu"), build_metric("chrf")]))
    write_tables(made, tmp_path, ["chrF2"])
    first, *_ = (tmp_path / "compare.tex").read_text(encoding="utf-8").split(r"\midrule")
    assert [name.strip() for name in first.splitlines()[-1].removesuffix(r"\\").split("&")] == ["variant", "chrF2"]
    with pytest.raises(UserError, match=r"no such column; did you mean 'chrF2'\?"):
        write_tables(made, tmp_path, ["chrF"])
