"""Each group is scored as if it stood alone, in the library, in the table and on the command line."""

import json
from pathlib import Path

import numpy as np
import pytest

from headway.metrics import bootstrap_interval, build_metric, scores_by_group
from headway.metrics.groups import length_bins, ordered_groups
from headway.metrics.score_report import score_files
from tests.conftest import Command

HYPOTHESES = ["a b c", "a b", "x", "a b c d", "b a", "a c d"]
REFERENCES = ["a b c", "a b", "a", "a b c d", "a b", "a b c"]
LENGTHS = ["3", "2", "1", "10", "2", "3"]


@pytest.mark.parametrize("name", ["exact_match", "chrf"])
def test_a_group_is_a_corpus_of_its_own(name: str) -> None:
    metric = build_metric(name)
    statistics = metric.statistics(HYPOTHESES, [REFERENCES])
    scores = scores_by_group(metric, statistics, LENGTHS, samples=50, seed=3)
    assert [score.group for score in scores] == ["1", "2", "3", "10"]
    for score in scores:
        rows = [row for row, length in enumerate(LENGTHS) if length == score.group]
        alone = [HYPOTHESES[row] for row in rows], [[REFERENCES[row] for row in rows]]
        assert score.value == metric.score(*alone).value
        assert score.interval == bootstrap_interval(metric, metric.statistics(*alone), 50, 3)
        assert score.segments == len(rows)


def test_names_keep_the_order_in_which_they_come() -> None:
    metric = build_metric("exact_match")
    scores = scores_by_group(metric, np.array([[1.0, 1], [0, 1], [0, 1]]), ["turn", "around", "turn"], samples=5)
    assert [(score.group, score.value) for score in scores] == [("turn", 50.0), ("around", 0.0)]


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / name for name in ("hypotheses", "reference", "lengths")]
    for path, lines in zip(paths, (HYPOTHESES, REFERENCES, LENGTHS), strict=True):
        path.write_text("".join(f"{line}\n" for line in lines))
    return paths


def test_the_table_has_a_row_a_group(files: list[Path]) -> None:
    hypotheses, reference, lengths = files
    report = score_files([build_metric("exact_match")], [hypotheses, reference], [reference], by=lengths)
    _, _, _, blank, header, *rows = report.text().splitlines()[:9]
    assert blank == ""
    assert header.split() == ["exact_match", "by", "group", "segments", str(hypotheses), str(reference)]
    assert [row.split()[:3] for row in rows] == [
        ["1", "1", "0.00"],
        ["2", "2", "50.00"],
        ["3", "2", "50.00"],
        ["10", "1", "100.00"],
    ]
    assert [row.split()[5:] for row in rows[1:3]] == [["100.00", "±", "0.00"]] * 2
    assert [row.split()[3:] for row in (rows[0], rows[3])] == [["100.00"]] * 2  # one segment has no interval
    assert not score_files([build_metric("exact_match")], [hypotheses], [reference]).scores[0][0].groups


def test_bins_of_lengths_hold_about_equally_many() -> None:
    assert length_bins([12, *range(1, 12)]) == [1, 3, 5, 7, 9, 11]
    assert length_bins([4, 4, 4]) == [4]
    assert length_bins([1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 3, 4]) == [1, 3]  # a length is in one bin


def test_groups_are_in_the_order_of_their_numbers() -> None:
    assert ordered_groups(["10", "2", "10"]) == (("2", "10"), (2.0, 10.0))
    assert ordered_groups(["10", "two", "10"]) == (("10", "two"), ())
    assert ordered_groups(["3", "nan", "1"]) == (("3", "nan", "1"), ())


def test_on_the_command_line(files: list[Path], run_headway: Command) -> None:
    hypotheses, reference, lengths = files
    command = [
        "score",
        "--metric",
        "exact_match",
        "--hypotheses",
        hypotheses,
        "--references",
        reference,
        "--by",
        lengths,
    ]
    groups = json.loads(run_headway(*command, "--json").out)["scores"][0][0]["groups"]
    assert [(score["group"], score["value"]) for score in groups] == [("1", 0), ("2", 50), ("3", 50), ("10", 100)]
    lengths.write_text("1\n2\n")
    ended = run_headway(*command)
    assert ended.code == 2
    assert f"{lengths}: 2 segments, but {reference} has 6" in ended.err
