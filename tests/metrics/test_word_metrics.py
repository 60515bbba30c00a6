"""UAS and deviation against counts by hand, files of heads, and mistakes."""

from pathlib import Path

import pytest

from headway.core.errors import UserError
from headway.metrics import Metric, build_metric

UAS, DEVIATION = build_metric("uas"), build_metric("deviation")


def test_words_without_a_known_head_do_not_count() -> None:
    rows = UAS.statistics(["2 0 2", "0 1", ""], [["2 0 1", "_ 1", ""]])
    assert rows.tolist() == [[2, 3], [1, 1], [0, 0]]
    assert UAS.aggregate(rows.sum(axis=0)) == 75
    assert UAS.aggregate(rows[2]) == 0


def test_a_number_is_one_head_however_it_is_written() -> None:
    assert UAS.statistics(["02 0"], [["2 00"]]).tolist() == [[2, 2]]


def test_files_of_heads(tmp_path: Path) -> None:
    lines = tmp_path / "heads.txt"
    lines.write_text("2 0 2\n0 1\n")
    assert UAS.read(lines) == ["2 0 2", "0 1"]
    columns = ["\t".join(("1", "a", "a", "X", "X", "_", "2", "dep", "_", "_")),
               "\t".join(("2", "b", "b", "X", "X", "_", "0", "root", "_", "_"))]  # fmt: skip
    treebank = tmp_path / "gold.conllu"
    treebank.write_text("\n".join(columns) + "\n\n")
    assert UAS.read(treebank) == ["2 0"]


def test_every_word_counts_as_much() -> None:
    rows = DEVIATION.statistics(["0.004 0.008", "0.012", ""], [["0 0", "0", ""]])
    assert rows[:, 1].tolist() == [2, 1, 0]
    assert DEVIATION.aggregate(rows.sum(axis=0)) == pytest.approx(8)
    assert DEVIATION.aggregate(rows[2]) == 0
    assert not DEVIATION.higher_is_better


@pytest.mark.parametrize(
    ("metric", "hypothesis", "reference", "message"),
    [
        (UAS, "1 0", "2 0 1", "segment 1: a sentence has one head a word; received '2 heads'"),
        (UAS, "3 0", "2 0", "hypotheses, segment 1: this is no head of a word; received '3'; allowed: 0 to 2, or _"),
        (UAS, f"{'1' * 5000} 0", "2 0", "hypotheses, segment 1: this is no head of a word"),
        (UAS, "2 0", "x 0", "references, segment 1: this is no head of a word; received 'x'"),
        (DEVIATION, "0.1", "0 0", "hypotheses, segment 1: 1 numbers for 2 words"),
        (DEVIATION, "even", "0", "a line has numbers from 0 on, one a word; received 'even'"),
        (DEVIATION, "-0.1", "0", "a line has numbers from 0 on"),
        (DEVIATION, "nan", "0", "a line has numbers from 0 on"),
    ],
)
def test_mistakes(metric: Metric, hypothesis: str, reference: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        metric.statistics([hypothesis], [[reference]])
    with pytest.raises(UserError, match="one reference; received '2 sets'"):
        metric.statistics(["0"], [["0"], ["0"]])
