"""Parts of a test set with their scores and intervals, n-grams won and lost, and the sentences that differ most."""

from dataclasses import replace

import numpy as np
import pytest

import headway
from headway.comparison.cells import CellOutput, CellResult, EvaluationSet
from headway.comparison.comparison import Comparison
from headway.comparison.differences import (
    RATIO,
    Bucketing,
    bucketings,
    most_different,
    ngram_differences,
    ngram_table,
    sentence_scores,
    word_counts,
    word_f1_statistics,
    words_of,
)
from headway.core.tables import Spread
from headway.metrics import build_metric
from headway.metrics.intervals import linearise
from tests.comparison.toys import REFERENCES, cell, evaluation_set

BLEU = build_metric("bleu")
SOURCES = tuple(f"{line} {'x ' * (index % 8)}" for index, line in enumerate(REFERENCES * 20))
BOATS = ("the old man in the boat", "the boat in the sea", "a dog ran to the sea")
A = ("the old man in a boat", "a boat in a sea", "a dog ran to a sea")
B = ("the young man in the boat", "the boat in the sea", "a cat ran to the sea")


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    test = replace(evaluation_set(), sources=SOURCES, groups=tuple(str(index % 3 + 9) for index in range(160)))
    cells = [cell(variant, seed, kept, test) for variant, kept in (("a", 0.7), ("b", 0.9)) for seed in (1, 2)]
    return headway.compare(cells, [BLEU])


def named(comparison: Comparison, training: dict[str, int] | None = None) -> dict[str, Bucketing]:
    return {bucketing.title: bucketing for bucketing in bucketings(comparison, training)}


def test_words() -> None:
    assert words_of("The cat's 3.5 Ärzte!") == ["the", "cat", "'", "s", "3", ".", "5", "ärzte", "!"]
    assert words_of("a , b.") == words_of("A, b .") == ["a", ",", "b", "."]
    assert words_of("二〇八一年 ABC") == ["二", "〇", "八", "一", "年", "abc"]
    assert words_of("ที่นี่ नमस्ते") == ["ที่", "นี่", "नमस्ते"]  # a letter with its marks, and a word


def test_word_f1_counts_multisets() -> None:
    rows = word_f1_statistics(["the the cat", "x"], ["the cat sat", "y"], lambda segment, word: 0, 1)[0]
    assert rows.tolist() == [[4, 6], [0, 2]]
    assert RATIO.aggregate(rows.sum(axis=0)) == 50
    assert RATIO.aggregate_all(rows)[1] == 0


def test_by_length_and_group(comparison: Comparison) -> None:
    found = named(comparison)
    length = found["BLEU by length of the source in words"]
    assert sum(length.counts) == 160
    assert len(length.labels) > 3
    group = found["BLEU by group"]
    assert group.labels == ("9", "10", "11")
    assert group.counts == (54, 53, 53)
    for name in ("a", "b"):
        scores = []
        for one in comparison.cells[name]:
            lines, wanted = one.outputs[0].hypotheses[::3], one.outputs[0].test.references[0][::3]
            scores.append(BLEU.score(lines, [wanted]).value)
        score = group.scores[name][0]
        assert score.value == pytest.approx(sum(scores) / 2)
        assert score.low is not None
        assert score.low < score.value
    differences = group.differences["a", "b"]
    assert differences[0].value == pytest.approx(group.scores["b"][0].value - group.scores["a"][0].value)
    assert "9" in group.table().text()


def test_lengths_of_unspaced_text_are_of_characters() -> None:
    sources = tuple("私は学生です。昨日は雨が降った。"[: 1 + index % 8] for index in range(160))
    cells = [cell(name, 1, kept, replace(evaluation_set(), sources=sources)) for name, kept in (("a", 0.7), ("b", 0.9))]
    found = named(headway.compare(cells, [BLEU]))
    assert found["BLEU by length of the source in characters"].labels[0] == "1"


def test_intervals_end_at_the_bounds_of_a_metric() -> None:
    test = replace(evaluation_set(), groups=tuple(str(index % 2) for index in range(len(REFERENCES) * 20)))
    kept = {"a": (0.2, 1.0), "b": (0.1, 0.2)}  # seeds that differ much
    cells = [cell(name, seed, shares[seed], test) for name, shares in kept.items() for seed in (0, 1)]
    comparison = headway.compare(cells, [BLEU, build_metric("ter")])
    for bucketing in bucketings(comparison):
        for score in (score for scores in bucketing.scores.values() for score in scores):
            assert score.low is not None
            assert score.high is not None
            assert 0 <= score.low <= score.value <= score.high
            assert score.high <= 100 or "TER" in bucketing.title
    highest = max(score.high or 0 for score in bucketings(comparison)[0].scores["a"])
    assert highest == 100
    (pair,) = bucketings(comparison)[0].differences.values()
    assert min(score.low or 0 for score in pair) == -100, "differences end at the range of scores"


def test_by_score(comparison: Comparison) -> None:
    shares = named(comparison)["share of sentences by their own BLEU, in percent"]
    for scores in shares.scores.values():
        assert sum(score.value for score in scores) == pytest.approx(100)


def test_by_training_frequency(comparison: Comparison) -> None:
    training = word_counts(["the the the cat a a", "boat"])
    found = named(comparison, training)["F1 of words by times that a word was seen in training"]
    assert found.labels == ("0", "1", "2–5")
    wanted = word_counts(REFERENCES * 20)
    assert found.counts[1] == wanted["cat"] + wanted["boat"]
    assert found.counts[2] == wanted["the"] + wanted["a"]
    assert found.scores["b"][2].value > found.scores["a"][2].value


def test_copied_words() -> None:
    test = EvaluationSet("t", (("house Anna sees", "Bob goes"),), ("Haus Anna sieht", "Bob geht"))
    cells = [CellResult(name, 1, (CellOutput(test, lines),)) for name, lines in (
        ("keeps", ("x Anna y", "Bob z")), ("translates", ("house Ann sees", "Rob goes")))]  # fmt: skip
    found = named(headway.compare(cells, [build_metric("chrf")]))["F1 of words that are copied"]
    assert found.labels == ("in the source, copied", "not in the source")
    assert found.counts == (2, 3)
    assert [score.value for score in found.scores["keeps"]] == [100, 0]
    assert found.scores["translates"][0].value == 0
    assert found.scores["translates"][1].value == pytest.approx(200 * 3 / 8)


def test_a_part_of_one_segment_has_no_interval() -> None:
    test = replace(evaluation_set(9), groups=("first", *["rest"] * 8))
    group = named(headway.compare([cell("a", 1, 0.8, test), cell("b", 1, 0.9, test)], [BLEU]))["BLEU by group"]
    assert group.scores["a"][0][1:] == (None, None, None)
    assert group.differences["a", "b"][0].low is None


def test_half_of_an_interval_is_not_that_of_its_visible_part() -> None:
    metric = build_metric("exact_match")
    rows = [np.array([[right, 1.0] for right in seed]) for seed in ([1] * 19 + [0], [1] * 19 + [1])]
    linear = linearise(metric, rows)
    low, high = linear.estimate().interval()
    assert high > 100
    found = linear.interval(metric.bounds)
    assert (found.low, found.high, found.half) == (low, 100, (high - low) / 2)
    assert found.cell == Spread(linear.estimate().value, found.half)
    two = linearise(metric, [np.array([[1.0, 1.0], [0.0, 1.0]])])
    assert two.estimate().half_width() > 600
    assert two.interval(metric.bounds) == (50, 0, 100, 50)


def test_labels_have_no_words() -> None:
    test = EvaluationSet("t", (("i c", "c c", "c i"),), ("a b", "c d", "e f"))
    cells = [
        CellResult(name, 1, (CellOutput(test, ("i c", other, "c c")),)) for name, other in (("a", "c c"), ("b", "i c"))
    ]
    titles = list(named(headway.compare(cells, [build_metric("f0.5"), build_metric("accuracy")]), {"c": 3}))
    assert not any("words that" in title or "F1 of words" in title for title in titles)


def boats(seeds: int = 1) -> Comparison:
    test = EvaluationSet("test", (BOATS,))
    cells = [
        CellResult(n, s, (CellOutput(test, lines),)) for n, lines in (("a", A), ("b", B)) for s in range(1, seeds + 1)
    ]
    return headway.compare(cells, [build_metric("bleu")])


def test_ngrams_that_one_wins_and_the_other_loses() -> None:
    found = ngram_differences(boats(), "a", "b")
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
    assert ngram_differences(boats(3), "a", "b") == ngram_differences(boats(), "a", "b")


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
    compared = boats()
    scores = sentence_scores(compared, compared.measures[0])
    assert scores[1]["b"] == pytest.approx(100)
    assert most_different(scores, "a", "b", 5) == [1]


def test_bleu_of_a_short_sentence_is_of_its_own_length() -> None:
    metric = build_metric("bleu")
    rows = metric.statistics(["yes", "no"], [["yes", "yes"]])
    assert metric.segment_scores(rows).tolist() == pytest.approx([100, 0])
    assert metric.aggregate(rows[0]) == 0
