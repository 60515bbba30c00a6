"""Verdicts: their direction, one seed, the same outputs, and p over all pairs."""

from dataclasses import replace

import pytest

import headway
from headway.comparison.cells import CellOutput, CellResult, EvaluationSet
from headway.comparison.comparison import compare_cells
from headway.metrics import Metric, build_metric
from tests.comparison.toys import cell, cells_of, evaluation_set

BLEU = build_metric("bleu")
TEST = evaluation_set()


def test_the_direction_of_a_metric_counts() -> None:
    compared = headway.compare(cells_of(a=0.6, b=0.95), [build_metric("ter")])
    (pair,) = compared.pairs
    assert pair.difference < 0
    assert pair.verdict == "better"
    (back,) = headway.compare(cells_of(a=0.6, b=0.95), [build_metric("ter")], baseline="b").pairs
    assert (back.a, back.b, back.verdict) == ("b", "a", "worse")
    assert back.difference == -pair.difference


def test_one_seed_has_an_interval_and_no_verdict() -> None:
    compared = headway.compare([cell("a", 1, 0.5, TEST), cell("b", 2, 0.95, TEST)], [BLEU], {"bleu": 100})
    (pair,) = compared.to_json()["pairs"]
    assert 0 < pair["low"] < pair["high"]
    assert pair["verdict"] == "none"
    assert compared.to_json()["variants"]["a"]["bleu"]["sd"] is None
    assert "One seed says nothing" in compared.text()


@pytest.mark.parametrize(("margin", "found"), [(0.0, "none"), (3.0, "even")])
def test_the_same_outputs_are_even_within_what_so_many_segments_tell(margin: float, found: str) -> None:
    cells = [replace(cell("a", seed, 0.8, TEST), variant=variant) for variant in "ab" for seed in (1, 2)]
    (pair,) = headway.compare(cells, [BLEU], margin={"bleu": margin}).pairs
    low, high = pair.estimate.interval()
    assert (pair.difference, low, pair.verdict) == (0, -high, found)
    assert 2 < high < 3


def test_holm_counts_the_pairs_of_a_table() -> None:
    cells = cells_of(a=0.80, b=0.80, c=0.80, d=0.80)
    pairs = headway.compare(cells, [BLEU]).pairs
    assert len(pairs) == 6
    least = min(pairs, key=lambda pair: pair.p_value or 1)
    assert least.adjusted_p_value == pytest.approx(min(1, 6 * (least.p_value or 1)))
    assert len(headway.compare(cells, [BLEU], baseline="c").pairs) == 3


def test_there_is_no_verdict_by_a_metric_that_tells_nothing_apart() -> None:
    gold = tuple("我喜欢猫" if index % 2 else "他在家里了" for index in range(20))
    test = EvaluationSet("gold", (gold,))
    outputs = {"bad": ("他在家里了",) * 20, "good": gold}
    cells = [CellResult(name, seed, (CellOutput(test, lines),)) for name, lines in outputs.items() for seed in (1, 2)]

    def verdict(metric: Metric) -> tuple[str, str]:
        (pair,) = compare_cells(cells, [metric], {metric.name: 1.0}).pairs
        return pair.verdict, pair.words

    assert verdict(build_metric("bleu", language="zh")) == ("better", "better")
    nothing = "no verdict: the references have no spaces between words"
    assert verdict(build_metric("bleu")) == ("none", nothing)
    few = "no verdict: no reference has 4 words by the tokenizer 13a"
    assert verdict(build_metric("bleu", tokenize="13a")) == ("none", few)
