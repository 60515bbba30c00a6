"""The figures of scores have the means, deviations and intervals of the comparison."""

from dataclasses import replace
from pathlib import Path

import pytest

import headway
from headway.comparison import report
from headway.metrics import build_metric
from tests.comparison.toys import REFERENCES, cell, evaluation_set, hypotheses
from tests.conftest import Command

KEPT = {"attention": 0.6, "lowest-1": 0.9, "lowest-2": 0.8}


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
    report.draw_by_length(comparison, tmp_path / "figure.svg")
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
