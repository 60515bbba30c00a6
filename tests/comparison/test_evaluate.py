"""A run is scored on any test set, as its outputs are scored from files."""

from pathlib import Path
from typing import Any

import pytest

import headway
from headway.errors import UserError
from headway.metrics import build_metric
from headway.metrics.score_report import score_files, score_texts
from tests.conftest import Reversal


def test_scores_are_those_of_files(reversal: Reversal, tmp_path: Path) -> None:
    pairs = [("abcd", "dcba"), ("dab", "bad"), ("ccab", "baac"), ("a", "a")]
    (tmp_path / "test.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairs), encoding="utf-8")
    report = headway.evaluate(reversal.run, {"tsv": tmp_path / "test.tsv"}, ["exact_match", "chrf"], beam=1)
    outputs = [each.text for each in headway.load(reversal.run).predict([source for source, _ in pairs], beam=1)]
    for name, lines in (("said", outputs), ("gold", [target for _, target in pairs])):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    metrics = [build_metric("exact_match"), build_metric("chrf")]
    expected = score_files(metrics, [tmp_path / "said"], [tmp_path / "gold"])
    assert [row.score for (row,) in report.scores] == [row.score for (row,) in expected.scores]
    assert [row.interval for (row,) in report.scores] == [row.interval for (row,) in expected.scores]
    assert report.scores[0][0].system == str(reversal.run)


def test_dev_and_its_metrics_are_the_default(reversal: Reversal) -> None:
    model = headway.load(reversal.run)
    report = headway.evaluate(model)
    dev = (reversal.recipe.parent / "dev.tsv").read_text(encoding="utf-8").splitlines()
    assert report.segments == len(dev)
    assert report.scores[0][0].score == headway.evaluate(reversal.run, metrics="exact_match").scores[0][0].score
    assert "exact_match" in report.text()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"corpus": {"tsv": "nowhere.tsv"}}, r"^corpus.*nowhere\.tsv"),
        ({"corpus": {"tvs": "x"}}, "^corpus"),
        ({"metrics": "accuracy"}, "^metrics: this metric scores labels"),
        ({"metrics": "blue"}, "unknown metric; did you mean 'bleu'"),
        ({"beem": 1}, "^beem: unknown option of predict"),
    ],
)
def test_mistakes_are_named(reversal: Reversal, given: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        headway.evaluate(reversal.run, **given)


def test_texts_are_scored_as_files_are(tmp_path: Path) -> None:
    systems, references = {"a": ["x y", "z"], "b": ["x", "z"]}, [["x y", "z"]]
    report = score_texts([build_metric("exact_match")], systems, references)
    assert [(row.system, row.score.value) for row in report.scores[0]] == [("a", 100.0), ("b", 50.0)]
    with pytest.raises(UserError, match="b: 1 segment, but references 1 has 2"):
        score_texts([build_metric("exact_match")], {"b": ["x"]}, references)
    with pytest.raises(UserError, match="metrics: scoring needs at least one"):
        score_texts([], systems, references)
