"""`headway.compare` as Python calls it: cells, runs, files and grids."""

import json
from pathlib import Path

import pytest

import headway
from headway.comparison.options import is_grid
from headway.core.errors import UserError
from headway.metrics import build_metric
from tests.comparison.toys import cell, evaluation_set, hypotheses
from tests.conftest import Reversal
from tests.grids.grids import write_grid

TEST = evaluation_set(80)
CELLS = [cell(variant, seed, kept, TEST) for variant, kept in (("a", 0.7), ("b", 0.9)) for seed in (1, 2, 3)]


def test_cells_by_names_of_metrics() -> None:
    alike = ["bleu"], [build_metric("bleu")], "bleu", build_metric("bleu")
    first, *others = (headway.compare(CELLS, metrics).pairs for metrics in alike)
    assert others == [first] * 3
    with pytest.raises(UserError, match="cells are compared with cells, by metrics"):
        headway.compare(CELLS)


def test_files_and_a_report(tmp_path: Path) -> None:
    for name, kept in (("references", 1.0), ("ours", 0.9), ("theirs", 0.7)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in hypotheses(80, seed=1, kept=kept)))
    compared = headway.compare(
        hypotheses=[str(tmp_path / "theirs"), str(tmp_path / "ours")], references=tmp_path / "references",
        output=tmp_path / "out", margin={"chrf": 1.0}, figure=tmp_path / "scores.svg",
    )  # fmt: skip
    assert (tmp_path / "scores.svg").read_text(encoding="utf-8").startswith("<?xml")
    assert [variant.name for variant in compared.variants] == ["theirs", "ours"]
    assert [measure.key for measure in compared.measures] == ["bleu", "chrf"]
    written = json.loads((tmp_path / "out" / "compare.json").read_text())
    assert written == compared.to_json()
    assert written["metrics"]["chrf"]["margin"] == 1.0
    assert (tmp_path / "out" / "compare.html").read_text().startswith("<!DOCTYPE html>")


def test_runs_by_name(reversal: Reversal) -> None:
    compared = headway.compare({"one": reversal.run, "other": [str(reversal.run)]}, device="cpu")
    assert [(variant.name, variant.seeds) for variant in compared.variants] == [("one", (1,)), ("other", (1,))]
    assert compared.pairs[0].difference == 0


@pytest.mark.parametrize(
    ("systems", "options", "message"),
    [
        ((), {"references": "x", "hypothesis": ["y"]}, "hypothesis: unknown key; did you mean 'hypotheses'"),
        (("nowhere", "there"), {"output": "out"}, "systems: there is no such file or folder; received 'nowhere'"),
        ({"a": "nowhere"}, {}, r"systems\['a'\]: there is no such file or folder"),
        ("grid.yaml", {}, "output: the runs of a grid need a folder"),
        ("grid.yaml", {"metrics": ["bleu"]}, "metrics: a grid says this itself"),
        ("grid.yaml", {"output": "out", "dry_run": True}, "dry_run: only the command line lists the cells"),
        ("grid.yaml", {"output": "grid.yaml"}, "output: a folder is needed there, and there is a file"),
    ],
)
def test_mistakes(
    systems: object, options: dict, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_grid(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=message):
        headway.compare(systems, **options)  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()


def test_a_forest_plot() -> None:
    compared = headway.compare(CELLS, ["bleu", "ter"], margin={"bleu": 2})
    axes = compared.plot("ter")
    assert axes.get_xlabel() == "difference in TER, 95 % interval"
    assert [label.get_text() for label in axes.get_yticklabels()] == ["b against a: better"]
    low, high = compared.pairs[1].estimate.interval()
    assert list(axes.lines[1].get_xdata()) == [low, high]
    assert not axes.patches
    assert len(compared.plot().patches) == 1  # the margin
    with pytest.raises(UserError, match="no such measure"):
        compared.plot("wer")


def test_tables_for_pandas() -> None:
    compared = headway.compare(CELLS, ["bleu"])
    frames = compared.to_pandas()
    assert list(frames["variants"]["BLEU"]) == [variant.scores["bleu"].mean for variant in compared.variants]
    assert list(frames["variants"]["BLEU ±"]) == [variant.scores["bleu"].sd for variant in compared.variants]
    assert list(frames["pairs"]["b is"]) == ["better"]
    assert frames["cells"].groupby("variant")["score"].mean()["b"] == pytest.approx(
        compared.variants[1].scores["bleu"].mean
    )


def test_a_run_folder_may_be_named_as_a_grid_is(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").mkdir()
    assert not is_grid(str(tmp_path / "run.yaml"))
    assert is_grid(str(tmp_path / "grid.yml"))
    with pytest.raises(UserError, match=r"run\.yaml: this is not a run folder"):
        headway.compare([tmp_path / "run.yaml"])
