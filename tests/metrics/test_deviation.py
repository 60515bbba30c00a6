"""The mean deviation of words against sums by hand."""

import pytest

from headway.errors import UserError
from headway.metrics import build_metric

DEVIATION = build_metric("deviation")


def test_every_word_counts_as_much() -> None:
    rows = DEVIATION.statistics(["0.004 0.008", "0.012", ""], [["0 0", "0", ""]])
    assert rows[:, 1].tolist() == [2, 1, 0]
    assert DEVIATION.aggregate(rows.sum(axis=0)) == pytest.approx(8)
    assert DEVIATION.aggregate(rows[2]) == 0
    assert not DEVIATION.higher_is_better


@pytest.mark.parametrize(
    ("hypothesis", "reference", "message"),
    [
        ("0.1", "0 0", "hypotheses, segment 1: 1 numbers for 2 words"),
        ("even", "0", "a line has numbers from 0 on, one a word; received 'even'"),
        ("-0.1", "0", "a line has numbers from 0 on"),
        ("nan", "0", "a line has numbers from 0 on"),
    ],
)
def test_mistakes(hypothesis: str, reference: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        DEVIATION.statistics([hypothesis], [[reference]])


def test_deviation_has_one_reference() -> None:
    with pytest.raises(UserError, match="deviation has one reference; received '2 sets'"):
        DEVIATION.statistics(["0.1"], [["0"], ["0"]])
