"""Comparisons: means, verdicts and their JSON, and what cannot be compared."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import headway
from headway.comparison.cell_results import CellOutput, CellResult, Costs, CurvePoint
from headway.errors import UserError
from headway.metrics import build_metric
from tests.comparison.toys import REFERENCES, cell, evaluation_set

BLEU = build_metric("bleu")
TEST = evaluation_set()


def table(**kept: float) -> list[CellResult]:
    return [cell(variant, seed, share, TEST) for variant, share in kept.items() for seed in (1, 2, 3)]


def test_a_comparison() -> None:
    cells = [replace(each, costs=Costs(parameters=10, cpu_seconds=each.seed)) for each in table(a=0.7, b=0.9, c=0.9)]
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


def test_the_direction_of_a_metric_counts() -> None:
    compared = headway.compare(table(a=0.6, b=0.95), [build_metric("ter")])
    (pair,) = compared.pairs
    assert pair.difference < 0
    assert pair.verdict == "better"
    (back,) = headway.compare(table(a=0.6, b=0.95), [build_metric("ter")], baseline="b").pairs
    assert (back.a, back.b, back.verdict) == ("b", "a", "worse")
    assert back.difference == -pair.difference


def test_one_seed_has_an_interval_and_no_verdict() -> None:
    compared = headway.compare([cell("a", 1, 0.5, TEST), cell("b", 2, 0.95, TEST)], [BLEU], {"bleu": 100})
    (pair,) = compared.to_json()["pairs"]
    assert 0 < pair["low"] < pair["high"]
    assert pair["verdict"] == "none"
    assert compared.to_json()["variants"]["a"]["bleu"]["sd"] is None
    assert "One seed says nothing" in compared.text()


def test_the_same_outputs_are_even() -> None:
    cells = [replace(cell("a", seed, 0.8, TEST), variant=variant) for variant in "ab" for seed in (1, 2)]
    (pair,) = headway.compare(cells, [BLEU]).pairs
    assert (pair.difference, pair.estimate.interval(), pair.verdict) == (0, (0, 0), "even")


def test_holm_counts_the_pairs_of_a_table() -> None:
    cells = table(a=0.80, b=0.80, c=0.80, d=0.80)
    pairs = headway.compare(cells, [BLEU]).pairs
    assert len(pairs) == 6
    least = min(pairs, key=lambda pair: pair.p_value or 1)
    assert least.raised_p_value == pytest.approx(min(1, 6 * (least.p_value or 1)))
    assert len(headway.compare(cells, [BLEU], baseline="c").pairs) == 3


def test_several_test_sets() -> None:
    other = evaluation_set(40, "other")
    cells = [
        replace(each, outputs=(*each.outputs, *cell(each.variant, each.seed + 9, 0.8, other).outputs))
        for each in table(a=0.7, b=0.9)
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


def with_lines(original: CellResult, lines: list[str]) -> CellResult:
    return replace(original, outputs=(CellOutput(original.outputs[0].test, tuple(lines)),))


def tokenised(original: CellResult, mark: str) -> CellResult:
    return with_lines(original, [f"{line.replace(' ,', mark)}{mark[:-1]}." for line in original.outputs[0].hypotheses])


A, B = cell("a", 1, 0.8, TEST), cell("b", 1, 0.9, TEST)


@pytest.mark.parametrize(
    ("cells", "options", "message"),
    [
        ([A], {}, "variants: a comparison needs two variants or more; received 'a'"),
        ([A, B, replace(A, path=Path("x"))], {}, "a, seed 1: two cells of one name; received 'x'"),
        ([A, B, cell("a", 2, 0.8, TEST)], {}, "b: seed 2 is missing; seeds are paired by their number; received '1'"),
        ([A, replace(B, outputs=())], {}, "b, seed 1: variants are compared on the same test sets"),
        ([A, cell("b", 1, 0.9, evaluation_set(159))], {}, "the references of test are not those of a, seed 1"),
        ([A, cell("b", 1, 0.9, evaluation_set(name="dev"))], {}, "received 'dev'; allowed: those of a, seed 1: test"),
        ([A, with_lines(B, ["one"])], {}, "b, seed 1, test: 1 hypotheses for 160 references"),
        ([A, B], {"baseline": "c"}, "baseline: no such variant; received 'c'; allowed: a, b"),
        ([A, B], {"margin": {"blue": 1}}, r"margin.blue: no such metric; did you mean 'bleu'\?"),
        ([A, B], {"margin": {"bleu": -1}}, "margin.bleu: a margin is not below 0"),
        ([A, B], {"metrics": []}, "metrics: a comparison needs at least one metric"),
        ([A, B], {"metrics": [BLEU, BLEU]}, "metrics: two metrics of one name"),
        ([tokenised(A, ", "), tokenised(B, " , ")], {}, r"b, seed 1: these hypotheses are tokenised \(punctuation"),
    ],
)  # fmt: skip
def test_what_cannot_be_compared(cells: list[CellResult], options: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        headway.compare(cells, **{"metrics": [BLEU]} | options)


def test_tokenisation_may_differ_by_leave() -> None:
    cells = [tokenised(A, ", "), tokenised(B, " , ")]
    assert headway.compare(cells, [BLEU], any_tokenization=True).pairs


@pytest.mark.parametrize(
    ("line", "message"),
    [("こ れ は 本 で す", "characters stand apart"), ("wh@@ at a thing", "pieces are not joined")],
)
def test_other_tokenisation(line: str, message: str) -> None:
    plain = "これは本です" if "本" in line else "what a thing"
    with pytest.raises(UserError, match=message):
        headway.compare([with_lines(A, [line] * 160), with_lines(B, [plain] * 160)], [BLEU])


def test_references_are_not_of_one_style() -> None:
    assert any("," in line for line in REFERENCES)  # so that the tokenisation above is seen at all
