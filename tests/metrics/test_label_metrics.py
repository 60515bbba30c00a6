"""Precision, recall, F-beta and accuracy of labels: against counting word by word."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from headway.core.errors import UserError
from headway.metrics import build_metric
from headway.metrics.label_metrics import best_threshold
from tests.conftest import Command
from tests.metrics.scored import score_files, values

HYPOTHESES = ["c i i c", "i c", "c c c"]
GOLD = ["c i c i", "i i", "c c c"]
OTHER = ["c c i c", "i c", "c c i"]


def test_counts_and_scores() -> None:
    metric = build_metric("f0.5")
    statistics = metric.statistics(HYPOTHESES, [GOLD])
    assert statistics.tolist() == [[1, 1, 1], [1, 0, 1], [0, 0, 0]]
    precision, recall = 2 / 3, 2 / 4
    assert build_metric("precision").score(HYPOTHESES, [GOLD]).value == pytest.approx(100 * precision)
    assert build_metric("recall").score(HYPOTHESES, [GOLD]).value == pytest.approx(100 * recall)
    for beta in (0.5, 1.0, 2.0):
        expected = 100 * (1 + beta**2) * precision * recall / (beta**2 * precision + recall)
        score = build_metric("f0.5", beta=beta).score(HYPOTHESES, [GOLD])
        assert score.value == pytest.approx(expected)
        assert score.metric == f"f{beta:g}"


def test_several_references_are_their_union() -> None:
    metric = build_metric("recall")
    assert metric.statistics(HYPOTHESES, [GOLD, OTHER]).tolist() == [[2, 0, 1], [1, 0, 1], [0, 0, 1]]
    assert str(metric.signature()).startswith("nrefs:2|label:i|")


def test_other_labels_and_accuracy() -> None:
    assert build_metric("precision", label="c").statistics(HYPOTHESES, [GOLD]).sum(0).tolist() == [4, 2, 1]
    assert build_metric("accuracy").score(HYPOTHESES, [GOLD]).value == pytest.approx(100 * 6 / 9)
    assert build_metric("accuracy").score(HYPOTHESES, [GOLD, OTHER]).value == 100  # each label is one annotator's


def test_nothing_found_and_nothing_to_find() -> None:
    for hypotheses, gold in ((["c c"], ["c i"]), (["c i"], ["c c"]), (["c"], ["c"])):
        assert build_metric("f0.5").score(hypotheses, [gold]).value == 0.0


def test_every_sentence_has_a_label_a_word() -> None:
    with pytest.raises(UserError, match=r"segment 2: a sentence has one label a word; received '1 labels'; allowed: 2"):
        build_metric("f0.5").statistics(["c c", "c"], [["c c", "c i"]])
    with pytest.raises(UserError, match=r"f0\.5\.beta: input should be greater than 0"):
        build_metric("f0.5", beta=0)


def columns(path: Path, sentences: list[str], more: str = "") -> Path:
    rows = ["".join(f"w\t{label}{more}\n" for label in sentence.split()) for sentence in sentences]
    path.write_text("\n".join(rows), encoding="utf-8")
    return path


def test_files_of_columns_with_each_reference_alone(tmp_path: Path) -> None:
    hypotheses = columns(tmp_path / "hypotheses.tsv", HYPOTHESES, "\t0.7")
    references = [columns(tmp_path / "gold.tsv", GOLD), columns(tmp_path / "other.tsv", OTHER)]
    report = score_files([build_metric("f0.5"), build_metric("recall")], [hypotheses], references)
    assert len(report.tests[0]) == 3
    assert [build_metric("recall").score(HYPOTHESES, [reference]).value for reference in (GOLD, OTHER)] == [
        pytest.approx(50), pytest.approx(200 / 3)
    ]  # fmt: skip
    assert "recall of hypotheses by each reference alone: 50.00, 66.67" in report.text()
    short = columns(tmp_path / "short.tsv", HYPOTHESES[:2])
    with pytest.raises(UserError, match=r"short\.tsv, gold: 2 hypotheses for 3 references"):
        score_files([build_metric("f0.5")], [short], references)


def test_files_are_about_the_same_words(tmp_path: Path, pipe: Callable[[str, bytes], Path]) -> None:
    gold, other = columns(tmp_path / "gold.tsv", ["c", "c i"]), columns(tmp_path / "other.tsv", ["c", "c i"])
    assert values(score_files([build_metric("accuracy")], [other], [gold])) == [100]
    other.write_text("w\tc\n\nw\tc\nv\ti\n", encoding="utf-8")
    for path in (other, pipe("pipe-of-other.tsv", other.read_bytes())):
        with pytest.raises(UserError, match=r"other\.tsv, segment 2: .* of .*gold\.tsv; received 'w v'.*'w w'"):
            score_files([build_metric("accuracy")], [path], [gold])


def test_conllu_files_are_read_by_one_of_their_columns(tmp_path: Path) -> None:
    path = tmp_path / "gold.conllu"
    rows = enumerate(zip("ABA", "abc", strict=True), start=1)
    path.write_text("".join(f"{n}\tw\tw\t{upos}\t{xpos}\t_\t0\troot\t_\t_\n" for n, (upos, xpos) in rows))
    assert build_metric("accuracy").read(path) == ["A B A"]
    metric = build_metric("accuracy", conllu_label="xpos")
    assert "conllu" not in metric.signature()
    assert metric.read(path) == ["a b c"]
    assert metric.signature()["conllu"] == "xpos"
    with pytest.raises(UserError, match=r"f0\.5\.conllu_label: input should be 'upos', 'xpos', 'lemma' or 'deprel'"):
        build_metric("f0.5", conllu_label="tag")


def test_a_label_that_no_reference_has_is_told_and_another_can_be_named(tmp_path: Path, run_headway: Command) -> None:
    gold, given = columns(tmp_path / "gold.tsv", ["NOUN VERB"]), columns(tmp_path / "given.tsv", ["NOUN NOUN"])
    command = ("score", "--metric", "f0.5", "--references", gold, "--hypotheses", given)
    told = "no word of the references has the label 'i'; the metric's option label names another"
    ended = run_headway(*command)
    assert (ended.code, told in ended.out) == (0, True)
    ended = run_headway(*(f"{part}:label=NOUN" if part == "f0.5" else part for part in command))
    assert (ended.code, "55.56" in ended.out, "no word of the references" in ended.out) == (0, True, False)


def f_beta(scores: np.ndarray, wanted: np.ndarray, threshold: float, beta: float) -> float:
    predicted = scores >= threshold
    hits, given, all_wanted = (predicted & wanted).sum(), predicted.sum(), wanted.sum()
    precision, recall = hits / max(1, given), hits / max(1, all_wanted)
    return 100 * (1 + beta**2) * precision * recall / max(1e-12, beta**2 * precision + recall)


@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("seed", range(8))
def test_no_threshold_is_better(beta: float, seed: int) -> None:
    random = np.random.default_rng(seed)
    scores = random.integers(0, 9, 30) / 10  # many words have the same score
    wanted = random.random(30) < 0.3
    threshold, value = best_threshold(scores, wanted, beta)
    assert value == pytest.approx(f_beta(scores, wanted, threshold, beta))
    assert value == pytest.approx(max(f_beta(scores, wanted, threshold, beta) for threshold in np.linspace(0, 1, 101)))


def test_nothing_to_find_and_everything() -> None:
    assert best_threshold(np.array([0.2, 0.9]), np.array([False, False]))[1] == 0
    threshold, value = best_threshold(np.array([0.2, 0.9]), np.array([True, True]))
    assert (threshold, value) == (pytest.approx(0.1), 100)


@pytest.mark.parametrize("high", [0.99999994, 0.6000001, 0.5])
def test_neighbours_are_told_apart(high: float) -> None:
    """Between them there is no number, and their mean may round to the lower one."""
    scores = np.array([high, 0], dtype=np.float32)
    scores[1] = np.nextafter(scores[0], np.float32(0))
    threshold, value = best_threshold(scores, np.array([True, False]))
    assert value == 100
    assert (scores >= threshold).tolist() == [True, False]
