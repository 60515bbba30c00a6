"""Comparisons: means, notes, several test sets, JSON, and verdicts: their direction, one seed, and p over all pairs."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import headway
from headway.comparison.cells import CellOutput, CellResult, Costs, CurvePoint, EvaluationSet, read_result, write_result
from headway.comparison.comparison import IN_GROUPS, UNLEARNED, compare_cells, in_groups
from headway.core.errors import UserError
from headway.metrics import Metric, build_metric
from headway.metrics.intervals import dunnett, holm
from tests.comparison.toys import REFERENCES, cell, cells_of, evaluation_set

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


@pytest.mark.parametrize(
    ("scores", "margin", "grouped"),
    [
        ((10.0, 10.5, 50.0, 50.5, 51.0), 0.5, True),
        ((10.0, 10.5, 50.0, 50.5), 0.5, True),
        ((10.0, 10.5, 15.0, 15.5), 0.5, True),
        ((10.0, 11.0, 15.0, 16.0), 0.5, False),  # four seeds have such gaps by chance
        ((10.0, 50.0, 50.1), 0.5, True),
        ((10.0, 50.0, 55.0), 0.5, False),  # so have three
        ((10.0, 50.0), 0.5, False),
        ((10.0, 20.0, 30.0, 40.0, 50.0), 0.5, False),
        ((50.0, 50.0, 50.1, 50.1, 53.0), 0.5, True),
        ((50.0, 50.0, 50.1, 50.1, 53.0), 0.0, False),  # less than five points
        ((50.0, 50.0, 50.1, 50.1, 53.0), 1.0, False),  # less than five margins
        ((0.0, 0.0, 100.0, 100.0, 100.0), 1.0, True),
        ((7.0,), 0.5, False),
    ],
)
def test_seeds_in_two_groups(scores: tuple[float, ...], margin: float, grouped: bool) -> None:
    assert (in_groups({"a": scores, "b": (0.0,) * len(scores)}, margin) is not None) == grouped


def test_seeds_in_two_groups_are_counted_and_their_means_not_compared() -> None:
    kept = {"a": (0.9,) * 5, "b": (0.9, 0.9, 0.9, 0.3, 0.3), "c": (0.3,) * 5}
    cells = [cell(name, seed, share) for name, row in kept.items() for seed, share in enumerate(row, 1)]
    compared = headway.compare(cells, [BLEU], margin={"bleu": 1.0})
    pairs = {(pair.a, pair.b): pair for pair in compared.pairs}
    assert [pair.verdict for pair in pairs.values()] == ["none", "worse", "none"]
    assert pairs["a", "b"].p_value == pytest.approx(stats.fisher_exact([[5, 0], [3, 2]]).pvalue)
    assert pairs["a", "b"].interval == (None, None)
    assert "interval" not in compared.conclusions()[0]
    assert pairs["a", "c"].why == ""
    above = re.fullmatch("the seeds of b fall in two groups, and above ([0-9.]+) are (.*)", pairs["a", "b"].why)
    assert above is not None
    assert above[2] == "5 of 5 of a and 3 of 5 of b"
    assert pairs["b", "c"].words.endswith("3 of 5 of b and 0 of 5 of c")
    low, high = (sorted(compared.variants[1].scores["bleu"].scores)[index] for index in (1, 2))
    assert low < float(above[1]) < high
    assert IN_GROUPS in compared.notes
    assert IN_GROUPS not in headway.compare(cells_of(a=0.9, b=0.3), [BLEU]).notes


def test_a_permutation_of_seeds_decides_what_is_plain() -> None:
    """No mean of two groups is needed where every seed of one variant is above every seed of the other."""
    kept = {"a": (0.1, 0.1, 0.2, 0.15, 0.15), "b": (0.9, 0.9, 0.9, 0.4, 0.4)}
    cells = [cell(name, seed, share) for name, row in kept.items() for seed, share in enumerate(row, 1)]
    (pair,) = headway.compare(cells, [build_metric("chrf")]).pairs
    assert (pair.verdict, pair.p_value) == ("better", 2 / 252)
    assert pair.words.startswith("better: the seeds of b fall in two groups, and above ")
    (three,) = headway.compare([one for one in cells if one.seed in (1, 2, 4)], [build_metric("chrf")]).pairs
    assert (three.verdict, three.p_value) == ("none", 2 / 20)


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


def test_cells_survive_json(tmp_path: Path) -> None:
    original = replace(
        cell("a", 1, 0.9, TEST), path=Path("runs/a"), costs=Costs(parameters=3, learning_rate=1e-3),
        curve=(CurvePoint(10, 1.5, {"bleu": 3.0}),),
    )  # fmt: skip
    write_result(tmp_path / "cell.json", original, {"weights": "x"})
    assert read_result(tmp_path / "cell.json", {"weights": "x"}) == original
    assert read_result(tmp_path / "cell.json", {"weights": "y"}) is None


def test_learning_rates_that_differ_between_seeds_are_listed() -> None:
    cells = [replace(each, costs=Costs(learning_rate=each.seed * 1e-3)) for each in cells_of(a=0.9, b=0.8)]
    compared = headway.compare(cells, [BLEU])
    assert compared.table().rows[0][-1] == "0.001, 0.002, 0.003"
    assert "0.001, 0.002, 0.003" in compared.table().latex()


def test_what_has_learned_nothing_is_not_ranked() -> None:
    test = EvaluationSet("test", (tuple(f"{line} {number}" for number in range(5) for line in REFERENCES),))

    def found(**distinct: int) -> list[tuple[str, str]]:
        cells = [
            CellResult(name, seed, (CellOutput(test, tuple(test.references[0][index % count] for index in range(40))),))
            for name, count in distinct.items() for seed in (1, 2, 3)
        ]  # fmt: skip
        return [(pair.verdict, pair.why) for pair in headway.compare(cells, [BLEU]).pairs]

    why = "has learned: one different output for 20 different references, or 1 % of the best score"
    assert found(a=1, b=2) == [("none", f"none {why}")]
    assert found(a=1, b=2, c=40) == [("none", f"neither {why}"), ("better", ""), ("better", "")]
    assert found(a=3, b=40) == [("better", "")]


def test_scores_near_the_worst_are_no_verdict() -> None:
    """Two systems that get nothing right are even within any margin, and neither has learned."""
    (pair,) = headway.compare(cells_of(a=0.3, b=0.3), [build_metric("exact_match")], margin={"exact_match": 5.0}).pairs
    assert (pair.verdict, pair.why) == ("none", f"none {UNLEARNED}")


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
    (tested,) = compared.to_json()["significance"]
    assert (tested["p"], tested["outputs"]) == (None, "better")
    assert tested["p_outputs"] == tested["p_outputs_holm"] == 1 / 10_001
    *_, p, outputs, words = compared.pair_table().rows[0]
    assert (p, outputs, words) == (1 / 10_001, "better", "no verdict")
    assert "p of these outputs < 0.0001" in compared.conclusions()[0]
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


def test_rate_stands_in_place_of_verdicts_that_a_better_rate_of_the_worse_may_change() -> None:
    cells, doubt = cells_of(a=0.6, b=0.9, c=0.6, d=0.6), "tune a with higher values"
    plain = compare_cells(cells, [BLEU], {"bleu": 0.1})
    doubted = compare_cells(cells, [BLEU], {"bleu": 0.1}, doubts={"a": doubt, "b": "tune b"})
    words = {(pair.a, pair.b): (pair.verdict, pair.doubt) for pair in doubted.pairs}
    assert words["a", "b"] == ("rate?", doubt)
    assert words["b", "c"] == ("worse", ""), "with a better rate, b would be better still"
    assert words["a", "c"] == ("none", ""), "no verdict is doubted where there is none"
    assert words["a", "d"] == ("none", "")
    assert [pair.estimate for pair in doubted.pairs] == [pair.estimate for pair in plain.pairs]
    table = doubted.pair_table()
    assert table.cells()[0][-1] == "rate?"
    assert f"rate?: {doubt}." in table.notes
    assert "rate?: tune b." not in table.notes
    assert doubted.conclusions()[0].startswith("rate? for b and a: ")
    assert doubted.conclusions()[0].endswith(f"({doubt}).")
    assert doubted.to_json()["pairs"][0]["doubt"] == f"{doubt}; tune b", "a claim of another margin may need both"


def test_a_test_speaks_against_pooling_unequal_variances() -> None:
    noisy = {1: 0.3, 2: 0.6, 3: 0.9, 4: 0.4, 5: 0.8}
    steady = [cell(name, seed, 0.6) for name in ("a", "b") for seed in noisy]
    for others, unequal in (({}, False), (noisy, True)):
        last = [cell("c", seed, others.get(seed, 0.6)) for seed in noisy]
        compared = compare_cells([*steady, *last], [BLEU], pooled_variance=True)
        own = [compared.variants[index].scores["bleu"].scores for index in range(3)]
        p_value = stats.f_oneway(*(np.abs(np.array(row) - np.median(row)) for row in own)).pvalue  # by its definition
        assert compared.equal_variances["bleu"] == pytest.approx(p_value)
        assert bool(p_value <= 0.05) is unequal
        notes = compared.pair_table().notes
        assert "The seeds' variance is pooled over all variants." in notes
        assert any("Brown and Forsythe" in note and "do not pool them" in note for note in notes) is unequal
        assert compared.to_json()["equal_variances"]["bleu"] == pytest.approx(p_value)
    assert compare_cells(steady, [BLEU]).equal_variances == {}


@pytest.mark.parametrize("seeds", [3, 8])
def test_dunnett_adjusts_as_scipy_does_and_less_than_holm(seeds: int) -> None:
    rng = np.random.default_rng(seeds)
    baseline, others = rng.normal(0, 1, seeds), [rng.normal(shift, 1, seeds) for shift in (0.5, 1.5, 2.0)]
    degrees = 4 * (seeds - 1)
    variance = np.mean([row.var(ddof=1) for row in (baseline, *others)])
    t_values = [(row.mean() - baseline.mean()) / np.sqrt(2 * variance / seeds) for row in others]
    p_values = [float(2 * stats.t.sf(abs(t), degrees)) for t in t_values]
    single_step = stats.dunnett(*others, control=baseline).pvalue
    adjusted = dunnett(p_values, degrees)
    assert min(adjusted) == pytest.approx(min(single_step), abs=2e-3), "the first step of both is the same"
    assert max(adjusted) == pytest.approx(max(p_values), abs=2e-3), "the last step is alone"
    assert all(ours <= holms + 2e-3 for ours, holms in zip(adjusted, holm(p_values), strict=True))


def test_pairs_with_a_baseline_share_its_scores() -> None:
    cells = cells_of(a=0.7, b=0.75, c=0.8, d=0.8)
    given = compare_cells(cells, [BLEU], baseline="a", pooled_variance=True).pairs
    p_values = [pair.p_value or 1.0 for pair in given]
    assert given[0].estimate.pooled * (given[0].estimate.seeds - 1) == 6
    assert [pair.adjusted_p_value for pair in given] == dunnett(p_values, 6)
    every = compare_cells(cells, [BLEU], pooled_variance=True).pairs
    assert [pair.adjusted_p_value for pair in every] == holm([pair.p_value or 1.0 for pair in every])
