"""Word and character error rates: against edit distances found by dynamic programming, and worked by hand."""

import itertools
import random

import numpy as np
import pytest

from headway.metrics import build_metric
from tests.metrics.scored import score_files, values


def distance(one, other) -> int:
    """Levenshtein (1966): the fewest substitutions, deletions and insertions that make `other` of `one`."""
    row = list(range(len(other) + 1))
    for i, left in enumerate(one, start=1):
        before, row[0] = row[0], i
        for j, right in enumerate(other, start=1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (left != right))
    return row[-1]


def test_worked_by_hand():
    gold = ["one two three four", "five", "six seven"]
    hypotheses = ["one too three", "five five", "six seven"]  # a substitution and a deletion; an insertion; nothing
    metric = build_metric("wer")
    assert metric.statistics(hypotheses, [gold]).tolist() == [[2, 1, 1, 0], [1, 0, 0, 1], [2, 0, 0, 0]]
    score = metric.score(hypotheses, [gold])
    assert (score.metric, score.value) == ("WER", pytest.approx(100 * 3 / 7))
    assert metric.notes(metric.statistics(hypotheses, [gold]).sum(0)) == [
        "1 substitutions, 1 deletions, 1 insertions in 7 words"
    ]
    characters = build_metric("cer")
    assert characters.statistics(["abd "], [["a bc"]]).tolist() == [[2, 1, 1, 0]]
    assert characters.notes(np.array([2, 1, 1, 0]))[0].endswith("in 4 characters")


@pytest.mark.parametrize(("name", "split"), [("wer", str.split), ("cer", list)])
def test_errors_are_the_edit_distance(name, split):
    draw, metric = random.Random(1), build_metric(name)
    sentences = [[" ".join(draw.choices("abc", k=draw.randint(0, 7))) for _ in range(60)] for _ in range(2)]
    statistics = metric.statistics(sentences[0], [sentences[1]])
    for row, hypotheses, gold in zip(statistics, *sentences, strict=True):
        assert row[1:].sum() == distance(split(gold), split(hypotheses))
        assert row[:3].sum() == len(split(gold))
        assert row[[0, 1, 3]].sum() == len(split(hypotheses))


def test_empty_segments():
    metric = build_metric("wer")
    assert metric.statistics(["", "a b"], [["a", ""]]).tolist() == [[0, 0, 1, 0], [0, 0, 0, 2]]
    assert metric.score(["a"], [[""]]).value == 100
    assert metric.score([""], [[""]]).value == 0


def test_case_and_punctuation_count_unless_told_otherwise():
    hypotheses, gold = ["it is  late"], ["It is late."]
    assert build_metric("wer").score(hypotheses, [gold]).value == pytest.approx(100 * 2 / 3)
    assert build_metric("wer", lowercase=True).score(hypotheses, [gold]).value == pytest.approx(100 / 3)
    lenient = build_metric("wer", lowercase=True, punctuation=False)
    assert lenient.score(hypotheses, [gold]).value == 0
    assert str(lenient.signature()).startswith("nrefs:1|case:lc|punct:no|space:collapsed|version:jiwer-")
    assert "case:mixed|punct:yes" in str(build_metric("cer").signature())


def test_the_nearest_reference_counts():
    metric = build_metric("wer")
    assert metric.statistics(["a b"], [["a c d"], ["a c"]]).tolist() == [[1, 1, 0, 0]]


def test_of_equally_near_references_the_longest_counts_in_any_order():
    metric, references = build_metric("wer"), [["a"], ["a b c"], ["a c"]]  # an error each
    for order in itertools.permutations(references):
        assert metric.score(["a b"], order).value == pytest.approx(100 / 3)


def test_errors_are_counted_in_the_report(tmp_path):
    for name, lines in (("gold", ["a b c", "d e"] * 20), ("good", ["a b c", "d e"] * 20), ("bad", ["a b", "d x"] * 20)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    metrics = [build_metric("wer"), build_metric("cer")]
    report = score_files(metrics, [tmp_path / "bad", tmp_path / "good"], [tmp_path / "gold"])
    assert values(report) == [40, 0]
    assert report.pairs[0].estimate.interval()[1] < 0
    assert "20 substitutions, 20 deletions, 0 insertions in 100 words" in report.text()


def test_words_of_a_language_without_spaces_are_its_characters():
    metric = build_metric("wer", language="ja")
    score = metric.score(["東京 へ行く"], [["東京へ来る"]])
    assert score.value == pytest.approx(100 * 2 / 5)
    assert score.signature["tok"] == "char"
    assert metric.notes(np.array([3, 2, 0, 0]))[0].endswith("in 5 characters")
    assert "tok" not in build_metric("wer", language="ko").score(["a"], [["a"]]).signature
