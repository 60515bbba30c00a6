"""The contract: every registered metric, options by name, exact match, and what is refused."""

import re
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pytest

from headway.comparison.options import METRIC_NAMES
from headway.core.errors import UserError
from headway.metrics import METRICS, build_metric
from headway.metrics.metric import Metric, Signature, Statistics

HYPOTHESES = ["The cat sat on the mat .", "", "a wholly different line", "same here"]
REFERENCES = [
    ["The cat sat on a mat .", "not empty", "nothing alike at all", "same here"],
    ["A cat was on the mat .", "", "another line", "the same here"],
]


# Labels need one a word (test_label_metrics.py); other segments are links (test_alignments.py), heads and numbers
# (test_word_metrics.py) or trees (test_brackets.py).
OWN = [name for name in METRICS if name != "comet"]  # all that need no model; that one is in test_comet.py
TREES = {name for name in METRICS if METRICS.get(name).__module__ == "headway.metrics.brackets"}
TEXTS = [
    name for name in OWN if name not in {"aer", "uas", "deviation", *TREES} and not build_metric(name).each_reference
]
SACREBLEU = {"bleu", "chrf", "ter"}


def test_help_names_all_metrics() -> None:
    named = re.split(r"[,;] (?:of trees: )?", METRIC_NAMES.removesuffix(" or my_package.module:Class.").rstrip(";"))
    assert sorted(named) == sorted(METRICS)


@pytest.mark.parametrize("name", TEXTS)
def test_score_is_aggregate_of_summed_statistics_and_carries_its_signature(name: str) -> None:
    metric = build_metric(name)
    statistics = metric.statistics(HYPOTHESES, REFERENCES)
    score = metric.score(HYPOTHESES, REFERENCES)
    assert statistics.dtype == np.float64
    assert statistics.shape[0] == score.segments == 4
    assert score.value == metric.aggregate(statistics.sum(axis=0))
    assert score.signature["nrefs"] == ("2" if name in SACREBLEU else "var")  # of the second segment one is blank
    assert "version" in score.signature


@pytest.mark.parametrize(
    ("name", "options"),
    [(name, {}) for name in TEXTS if name not in SACREBLEU]
    + [(name, {"jackknife": True}) for name in TEXTS if "rouge" in name],
)
def test_a_blank_text_is_no_reference_beside_another(name: str, options: dict[str, bool]) -> None:
    metric = build_metric(name, **options)
    outputs = ["", "a b c", "x y", " ", "a b x d"]
    wanted = ["a b c d e f g h", "a b c d e f g h", "x y z w", "", "a b c d"]
    blank = ["", " ", "\t", "", "a x c d"]
    by_both = metric.statistics(outputs, [wanted, blank])
    assert metric.signature()["nrefs"] == "var"
    assert metric.statistics(outputs[:4], [wanted[:4]]).tolist() == by_both[:4].tolist()
    assert metric.statistics(outputs, [blank, wanted]).tolist() == by_both.tolist()
    assert metric.statistics(outputs[:4], [wanted[:4], wanted[:4]]).tolist() == by_both[:4].tolist()
    assert metric.signature()["nrefs"] == "2"


@pytest.mark.parametrize("name", TEXTS)
def test_an_empty_output_counts(name: str) -> None:
    metric = build_metric(name)
    whole = metric.score(["one two three four five", "one two three four five"], [["one two three four five"] * 2])
    half = metric.score(["one two three four five", ""], [["one two three four five"] * 2])
    assert half.segments == 2
    assert half.value != whole.value
    assert (half.value < whole.value) is metric.higher_is_better


@pytest.mark.parametrize("name", OWN)
def test_signature_can_be_had_before_any_references(name: str) -> None:
    assert "nrefs" not in build_metric(name).signature()


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize(
    ("hypotheses", "references", "message"),
    [
        ([], [[]], "nothing to score"),
        (["a", "b"], [["a", "b"], ["a"]], "references, set 2: 1 references for 2 hypotheses"),
    ],
)
def test_segments_must_line_up(name: str, hypotheses: list[str], references: list[list[str]], message: str) -> None:
    with pytest.raises(UserError, match=message):
        build_metric(name).score(hypotheses, references)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("blue", {}, "unknown metric; did you mean 'bleu'.*allowed: bleu, chrf"),
        (
            "bleu",
            {"tokenise": "13a"},
            r"bleu\.tokenise: unknown key; did you mean 'tokenize'.*allowed: tokenize, lower",
        ),
        ("bleu", {"tokenize": "13b"}, r"bleu\.tokenize: unknown tokenizer; did you mean '13a'"),
        ("bleu", {"lowercase": "perhaps"}, r"bleu\.lowercase: .*received 'perhaps'"),
        ("bleu", {"smooth_method": "more"}, r"bleu\.smooth_method: .*'exp'"),
        ("chrf", {"word_order": -1}, r"chrf\.word_order: "),
        ("exact_match", {"lowercase": True}, r"exact_match\.lowercase: unknown key; this has no options"),
    ],
)
def test_mistakes_are_named(name: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        build_metric(name, **options)


def test_a_tokenizer_whose_library_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable(**options: object) -> None:
        raise RuntimeError("Please install them like so.\n\n    pip install sacrebleu[ja]")

    unavailable.TOKENIZERS = ["ja-mecab"]  # type: ignore[attr-defined]
    monkeypatch.setattr("sacrebleu.BLEU", unavailable)
    with pytest.raises(
        UserError, match=r"cannot be loaded \(Please install them like so. pip install sacrebleu\[ja\]\)"
    ):
        build_metric("bleu", tokenize="ja-mecab")


def test_exact_match_is_the_share_equal_to_any_reference_without_outer_space() -> None:
    metric = build_metric("exact_match")
    hypotheses = [" 2024-01-02\t", "2024-01-03", "2024-1-4", "", "x  y"]
    references = [["2024-01-02", "2024-01-04", "2024-01-04", "", "x y"], ["?", "2024-01-03 ", "?", "", "?"]]
    assert metric.statistics(hypotheses, references).tolist() == [[1, 1], [1, 1], [0, 1], [1, 1], [0, 1]]
    assert metric.score(hypotheses, references).value == pytest.approx(60)
    assert str(metric.signature()).startswith("nrefs:2|case:mixed|space:stripped|version:headway-")


class Given(Metric):
    """A metric from elsewhere that gives what it is told to."""

    name = "given"
    statistics_given: ClassVar[Any] = np.ones((2, 1))
    score_given: ClassVar[Any] = 1.0

    def statistics(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Statistics:
        statistics: Statistics = self.statistics_given
        return statistics

    def aggregate(self, totals: Statistics) -> float:
        score: float = self.score_given
        return score

    def signature(self) -> Signature:
        return Signature.of(version="1")


@pytest.mark.parametrize(
    ("statistics", "received"),
    [(np.ones((1, 1)), r"\(1, 1\)"), (np.ones(2), r"\(2,\)"), (np.array([[1.0], [np.nan]]), r"\(2, 1\)")],
)
def test_statistics_from_elsewhere_are_looked_at(
    monkeypatch: pytest.MonkeyPatch, statistics: Any, received: str
) -> None:
    monkeypatch.setattr(Given, "statistics_given", statistics)
    with pytest.raises(UserError, match=rf"given: Given\.statistics gives .*received {received}.*\(2, k\)"):
        Given().score(["a", "b"], [["a", "b"]])


@pytest.mark.parametrize("score", [float("nan"), float("inf")])
def test_a_score_from_elsewhere_is_a_number(monkeypatch: pytest.MonkeyPatch, score: Any) -> None:
    assert Given().score(["a", "b"], [["a", "b"]]).value == 1
    monkeypatch.setattr(Given, "score_given", score)
    with pytest.raises(UserError, match=r"given: Given\.aggregate gives no finite number"):
        Given().score(["a", "b"], [["a", "b"]])


@pytest.mark.parametrize("name", ["bleu", "wer", "rouge-1", "exact_match"])
def test_half_of_a_character_is_no_text(name: str) -> None:
    for hypotheses, references in ((["a", "\ud83d"], ["a", "b"]), (["a", "b"], ["a", "\ud83d"])):
        with pytest.raises(UserError, match="segment 2: this text holds half of a surrogate pair"):
            build_metric(name).score(hypotheses, [references])
