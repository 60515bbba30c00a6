"""N-grams won and lost, and the sentences that differ most."""

import pytest

import headway
from headway.comparison.cells import CellOutput, CellResult, EvaluationSet
from headway.comparison.comparison import Comparison
from headway.comparison.differences import most_different, ngram_differences, ngram_table, sentence_scores
from headway.metrics import build_metric

REFERENCES = ("the old man in the boat", "the boat in the sea", "a dog ran to the sea")
A = ("the old man in a boat", "a boat in a sea", "a dog ran to a sea")
B = ("the young man in the boat", "the boat in the sea", "a cat ran to the sea")


def comparison(seeds: int = 1) -> Comparison:
    test = EvaluationSet("test", (REFERENCES,))
    cells = [
        CellResult(n, s, (CellOutput(test, lines),)) for n, lines in (("a", A), ("b", B)) for s in range(1, seeds + 1)
    ]
    return headway.compare(cells, [build_metric("bleu")])


def test_ngrams_that_one_wins_and_the_other_loses() -> None:
    found = ngram_differences(comparison(), "a", "b")
    assert found[0].ngram == "the"
    assert (found[0].a, found[0].b, found[0].references) == (1, 5, 5)
    won = [one.ngram for one in found if one.weight > 0]
    lost = [one.ngram for one in found if one.weight < 0]
    assert "in the" in won
    assert "sea" not in won  # both have it
    assert "the old man in" in lost
    assert "old" not in lost  # a part of "the old man in" that differs alike
    assert [one for one in lost if "dog" in one] == ["a dog ran to"]
    assert [row[0] for row in ngram_table(found, "a", "b").rows] == [*won, *lost]


def test_counts_are_means_over_seeds() -> None:
    assert ngram_differences(comparison(3), "a", "b") == ngram_differences(comparison(), "a", "b")


def test_a_part_differs_as_its_whole_does_although_means_are_not_exact() -> None:
    """Over three seeds, 5/3 - 4/3 is not 1/3 - 0 in floating point."""
    test = EvaluationSet("test", (("w x", "w x"),))
    said = {
        "a": [("x", "x"), ("x", "none"), ("x", "none")],
        "b": [("w x", "x"), ("x", "x"), ("x", "none")],
    }
    cells = [
        CellResult(name, seed, (CellOutput(test, lines),))
        for name, seeds in said.items()
        for seed, lines in enumerate(seeds, start=1)
    ]
    found = ngram_differences(headway.compare(cells, [build_metric("bleu")]), "a", "b")
    assert [one.ngram for one in found] == ["w x"]


def test_sentences_that_differ_most() -> None:
    compared = comparison()
    scores = sentence_scores(compared, compared.measures[0])
    assert scores[1]["b"] == pytest.approx(100)
    assert most_different(scores, "a", "b", 5) == [1]


def test_bleu_of_a_short_sentence_is_of_its_own_length() -> None:
    metric = build_metric("bleu")
    rows = metric.statistics(["yes", "no"], [["yes", "yes"]])
    assert metric.segment_scores(rows).tolist() == pytest.approx([100, 0])
    assert metric.aggregate(rows[0]) == 0
