"""What short runs say: on made outputs whose scores, and whose differences, are known."""

import pytest

from headway.comparison.cells import CellOutput, EvaluationSet
from headway.comparison.grid_run import are_told_apart, best_score, tuning_score
from headway.metrics import build_metric

SEGMENTS = 200


def output(right: int, first: int = 0) -> CellOutput:
    """An output with `right` of the segments right, from segment `first` on."""
    references = tuple(f"w{index}" for index in range(SEGMENTS))
    said = tuple(text if first <= index < first + right else "none" for index, text in enumerate(references))
    return CellOutput(EvaluationSet("dev", (references,)), said)


def test_the_best_is_chosen_and_of_equals_that_with_the_lowest_loss() -> None:
    accuracy, errors = build_metric("exact_match"), build_metric("wer")
    assert tuning_score([output(50)], accuracy) == pytest.approx(25)
    assert tuning_score([output(50), output(100)], accuracy) == pytest.approx(37.5)
    unknown = [None] * 4
    assert best_score([10.0, None, 30.0, 30.0], unknown, accuracy) == 2
    assert best_score([10.0, None, 30.0, 5.0], unknown, errors) == 3
    for metric in (accuracy, errors):
        assert best_score([0.0, None, 0.0, 0.0], [3.0, None, 1.0, 2.0], metric) == 2
        assert best_score([0.0, 0.0, 0.0, 0.0], [float("nan"), None, 2.0, float("inf")], metric) == 2


@pytest.mark.parametrize(
    ("outputs", "apart"),
    [
        ([output(20), output(22, first=40), output(18, first=80)], False),  # 10, 11 and 9 %, of other segments
        ([output(20), output(22, first=40), output(120)], True),
        ([output(20), output(120), output(22, first=40)], True),  # in any order
        ([output(0), output(6)], True),  # 6 of 6 the same way: p is 1/32
        ([output(0), output(6), output(3)], False),  # the furthest apart of three pairs: 3/32
        ([output(0), output(8), output(3)], True),  # 3/128
        ([output(0), output(5)], False),  # 5 of 5: 1/16
        ([output(200), output(200)], False),
        ([output(20)], True),  # nothing to choose from
    ],
)
def test_values_are_told_apart(outputs: list[CellOutput], apart: bool) -> None:
    values = [[each] for each in outputs]
    assert are_told_apart(values, build_metric("exact_match")) == apart
    assert are_told_apart(values, build_metric("wer")) == apart


def test_the_segments_of_all_seeds_tell_values_apart() -> None:
    metric = build_metric("exact_match")
    once, again = [output(0), output(4)], [output(0), output(4, first=50)]
    assert not are_told_apart([once[:1], once[1:]], metric)  # 4 of 4: 1/8
    assert are_told_apart([[once[0], again[0]], [once[1], again[1]]], metric)  # 8 of 8: 1/128
    assert not are_told_apart([[once[0], again[1]], [once[1], again[0]]], metric)  # each is ahead with one seed


def test_seeds_that_get_the_same_segments_right_are_no_more_segments() -> None:
    same = [[output(0)] * 3, [output(4)] * 3]
    assert not are_told_apart(same, build_metric("exact_match"))  # 4 of 4 segments: 1/8, not 12 of 12
