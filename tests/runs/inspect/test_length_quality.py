"""Quality by source length: each bin is scored as a corpus of its own."""

from pathlib import Path

import numpy as np
import pytest

from headway.metrics import build_metric
from headway.metrics.significance import bootstrap_interval
from headway.runs.inspect.length_quality import LengthStatistics, score_by_length, score_lengths_of
from tests.conftest import Command

SOURCES = ["a", "a b", "a b c", "a b c d", "a b c d e", "a b c d e f"]
RIGHT = [source.upper() for source in SOURCES]
WRONG_WHEN_LONG = [*RIGHT[:4], "A B X Y Z", "A"]


def test_bins_are_corpora_of_their_own() -> None:
    systems = {"right": RIGHT, "short": WRONG_WHEN_LONG}
    for name in ("bleu", "exact_match"):
        metric = build_metric(name)
        found = score_by_length(metric, systems, [RIGHT], SOURCES, edges=[2, 4])
        assert (found.ranges, found.counts, found.centres) == ([(1, 2), (3, 4), (5, 6)], [2, 2, 2], [1.5, 3.5, 5.5])
        for bin, rows in enumerate((slice(0, 2), slice(2, 4), slice(4, 6))):
            for system, outputs in systems.items():
                alone = metric.score(outputs[rows], [RIGHT[rows]]).value
                interval = bootstrap_interval(metric, metric.statistics(outputs[rows], [RIGHT[rows]]))
                assert found.scores[system][bin].value == pytest.approx(alone)
                assert found.scores[system][bin].interval == interval
    assert [bin.value for bin in found.scores["short"]] == [100, 100, 0]


def test_bins_have_equally_many_segments_unless_told() -> None:
    found = score_by_length(build_metric("exact_match"), {"a": RIGHT * 10}, [RIGHT * 10], SOURCES * 10)
    assert found.counts == [10] * 6
    characters = score_by_length(
        build_metric("exact_match"), {"a": RIGHT}, [RIGHT], SOURCES, unit="characters", edges=[5, 100]
    )
    assert characters.ranges == [(1, 5), (7, 11)]


def test_segments_can_come_one_by_one() -> None:
    random = np.random.default_rng(1)
    sources = [" ".join("a" * length) for length in random.integers(1, 30, 200)]
    outputs = [source.upper() if draw < 0.7 else "B" for source, draw in zip(sources, random.random(200), strict=True)]
    references = [source.upper() for source in sources]
    metric = build_metric("bleu")
    whole, statistics = score_by_length(metric, {"a": outputs}, [references], sources), LengthStatistics(metric)
    for output, reference, source in zip(outputs, references, sources, strict=True):
        statistics.add([output], [[reference]], [source])
    assert score_lengths_of({"a": statistics}).scores == whole.scores
    _, often = np.unique([len(source.split()) for source in sources], return_counts=True)
    assert len(whole.counts) == 6
    assert max(abs(count - 200 / 6) for count in whole.counts) <= often.max()  # a length is in one bin


def test_the_command_line(run_headway: Command, tmp_path: Path) -> None:
    for name, lines in {
        "source": SOURCES,
        "reference": RIGHT,
        "right.txt": RIGHT,
        "short.txt": WRONG_WHEN_LONG,
    }.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    files = ("--hypotheses", tmp_path / "right.txt", tmp_path / "short.txt", "--references", tmp_path / "reference")
    flags = ("--metric", "exact_match", "--by-length", tmp_path / "a.svg", "--length-bins", "3")
    code, out, _ = run_headway("score", *files, *flags, "--source", tmp_path / "source")
    assert code == 0
    table = [line.split() for line in out.splitlines()[-8:]]
    assert table == [
        ["source", "words", "1-3", "4-6"], ["segments", "3", "3"], ["right", "100.00", "100.00"],
        ["95", "%", "from", "100.00", "100.00"], ["to", "100.00", "100.00"],
        ["short", "100.00", "33.33"], ["95", "%", "from", "100.00", "0.00"], ["to", "100.00", "100.00"],
    ]  # fmt: skip
    assert "<svg" in (tmp_path / "a.svg").read_text()
    ended = run_headway("score", *files, *flags)
    assert ended.code == 2
    assert "--by-length: quality by length needs the sources" in ended.err


def test_sources_without_spaces_are_as_long_as_their_characters() -> None:
    sources = ["東京", "大きい地震", "東京で大きい地震"] * 4
    lines = ["a b c d"] * len(sources)
    found = score_by_length(build_metric("chrf"), {"one": lines}, [lines], sources)
    assert (found.unit, found.ranges) == ("characters", [(2, 2), (5, 5), (8, 8)])
    spaced = score_by_length(build_metric("chrf"), {"one": lines}, [lines], [" ".join(text) for text in sources])
    assert (spaced.unit, spaced.ranges) == ("words", [(2, 2), (5, 5), (8, 8)])
