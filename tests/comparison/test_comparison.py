"""Comparisons: means, notes, several test sets, and their JSON."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import headway
from headway.comparison.cells import CellResult, Costs, CurvePoint
from headway.errors import UserError
from headway.metrics import build_metric
from tests.comparison.toys import cell, cells_of, evaluation_set

BLEU = build_metric("bleu")
TEST = evaluation_set()


def test_a_comparison() -> None:
    cells = [replace(each, costs=Costs(parameters=10, cpu_seconds=each.seed)) for each in cells_of(a=0.7, b=0.9, c=0.9)]
    compared = headway.compare(cells, [BLEU, build_metric("ter")], margin={"bleu": 12.0, "ter": 100})
    values = json.loads(json.dumps(compared.to_json()))
    assert list(values["variants"]) == ["a", "b", "c"]
    bleu = values["variants"]["b"]["bleu"]
    assert bleu["seeds"] == [BLEU.score(c.outputs[0].hypotheses, TEST.references).value for c in cells[3:6]]
    assert bleu["mean"] == pytest.approx(sum(bleu["seeds"]) / 3)
    assert values["variants"]["a"]["parameters"] == 10
    assert values["variants"]["a"]["cpu_seconds"] == 2
    pairs = {(pair["a"], pair["b"], pair["metric"]): pair for pair in values["pairs"]}
    assert list(pairs) == [(a, b, m) for m in ("bleu", "ter") for a, b in (("a", "b"), ("a", "c"), ("b", "c"))]
    first = pairs["a", "b", "bleu"]
    assert set(first) == {"a", "b", "metric", "difference", "low", "high", "verdict"}
    assert first["difference"] == pytest.approx(bleu["mean"] - values["variants"]["a"]["bleu"]["mean"])
    assert first["low"] < first["difference"] < first["high"]
    assert [pair["verdict"] for pair in values["pairs"]] == ["better", "better", "even", "even", "even", "even"]
    assert repr(compared) == (
        "Comparison(3 variants, seeds: 3; b is better than a by bleu; c is better than a by bleu; "
        "c and b are even by bleu; 3 more)"
    )
    assert compared.table().cells()[0][-2:] == ["10", "2"]
    assert "<table>" in compared._repr_html_()


def test_several_test_sets() -> None:
    other = evaluation_set(40, "other")
    cells = [
        replace(each, outputs=(*each.outputs, *cell(each.variant, each.seed + 9, 0.8, other).outputs))
        for each in cells_of(a=0.7, b=0.9)
    ]
    compared = headway.compare(cells, [BLEU])
    assert list(compared.to_json()["variants"]["a"]) == ["bleu on test", "bleu on other"]
    assert [pair.metric for pair in compared.pairs] == ["bleu on test", "bleu on other"]
    assert compared.measure("bleu on other").test == 1
    with pytest.raises(UserError, match="did you mean 'bleu on other'"):
        compared.measure("bleu on others")


def test_runs_that_differ_in_precision_are_named() -> None:
    def notes(*precisions: str) -> list[str]:
        names = [("a", 1), ("a", 2), ("b", 1), ("b", 2)]
        cells = [replace(cell(*name, 0.8), precision=each) for name, each in zip(names, precisions, strict=True)]
        table = headway.compare(cells, [BLEU]).table()
        return [note for note in table.notes if note.startswith("Trained")]

    assert notes("bf16", "bf16", "bf16", "bf16") == ["Trained in bf16."]
    assert notes("bf16", "bf16", "", "") == notes("", "", "", "") == []
    different = "Trained in different precisions, with the number of seeds: "
    assert notes("bf16", "float32", "bf16", "bf16") == [f"{different}a bf16 (1), float32 (1); b bf16 (2)."]
    assert notes("bf16", "bf16", "float32", "") == [f"{different}a bf16 (2); b float32 (1), unknown (1)."]


def test_cells_survive_json() -> None:
    original = replace(
        cell("a", 1, 0.9, TEST), path=Path("runs/a"), costs=Costs(parameters=3, learning_rate=1e-3),
        curve=(CurvePoint(10, 1.5, {"bleu": 3.0}),),
    )  # fmt: skip
    assert CellResult.from_json(json.loads(json.dumps(original.to_json()))) == original
