"""The figure of scores has the means and deviations of the comparison, in the order of its variants."""

from pathlib import Path

import pytest

import headway
from headway.comparison import score_figure
from headway.metrics import build_metric
from tests.comparison.toys import REFERENCES, cell, hypotheses
from tests.conftest import Command

KEPT = {"attention": 0.6, "lowest-1": 0.9, "lowest-2": 0.8}


def test_points_are_means_and_bars_deviations(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cells = [cell(name, seed, kept) for name, kept in KEPT.items() for seed in (1, 2)]
    comparison = headway.compare(cells, [build_metric("bleu"), build_metric("ter")])
    drawn = []
    monkeypatch.setattr(score_figure, "panel_chart", lambda panels, path: drawn.extend(panels))
    score_figure.draw_scores(comparison, tmp_path / "figure.svg")
    assert [panel.y for panel in drawn] == [measure.label for measure in comparison.measures]
    for panel, measure in zip(drawn, ("bleu", "ter"), strict=True):
        scores = [variant.scores[measure] for variant in comparison.variants]
        assert list(panel.names) == list(KEPT)
        assert panel.lines["mean over seeds"] == [(index, each.mean) for index, each in enumerate(scores)]
        assert panel.bars["mean over seeds"] == [(each.mean - each.sd, each.mean + each.sd) for each in scores]
        assert panel.lines["attention"] == [(index, scores[0].mean) for index in range(3)]


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
