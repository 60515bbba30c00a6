"""Wrong words, by an alignment of least cost: against every alignment, enumerated."""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from headway.formats.edits import mark_missing, union, wrong_words
from tests.conftest import Command


def alignments(source: Sequence[str], corrected: Sequence[str], index: int = 0) -> Iterator[tuple[int, frozenset[int]]]:
    """Cost and positions of wrong words of every way to turn the one into the other; a missing word marks one."""
    if not source and not corrected:
        yield 0, frozenset()
    if source:
        for cost, wrong in alignments(source[1:], corrected, index + 1):
            yield cost + 1, wrong | {index}
    if corrected:
        for cost, wrong in alignments(source, corrected[1:], index):
            yield cost + 1, wrong | {index}
    if source and corrected:
        differs = source[0] != corrected[0]
        for cost, wrong in alignments(source[1:], corrected[1:], index + 1):
            yield cost + differs, wrong | ({index} if differs else set())


@pytest.mark.parametrize("length", range(1, 5))
def test_the_labels_are_those_of_a_least_alignment(length: int) -> None:
    for source in itertools.product("ab", repeat=length):
        for other in range(4):
            for corrected in itertools.product("abx", repeat=other):
                ways = list(alignments(source, corrected))
                least = min(cost for cost, _ in ways)
                # a word missing at the end marks the last one
                best = {frozenset(min(index, length - 1) for index in wrong) for cost, wrong in ways if cost == least}
                labelled = frozenset(
                    index for index, label in enumerate(wrong_words(source, corrected)) if label == "i"
                )
                assert labelled in best, (source, corrected, labelled, best)


@pytest.mark.parametrize(
    ("source", "corrected", "labels"),
    [
        ("Alice and Jane came back her home .", "Alice and Jane came back home .", "c c c c c i c c"),
        ("He go home .", "He goes home .", "c i c c"),
        ("I want go home", "I want to go home", "c c i c"),
        ("I am", "I am here", "c i"),
        ("a b", "a b", "c c"),
        ("a b", "", "i i"),
    ],
)
def test_sentences(source: str, corrected: str, labels: str) -> None:
    assert wrong_words(source.split(), corrected.split()) == labels.split()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((), "one origin of the words is needed; received 'nothing'; allowed: m2, or source and references"),
        (("m2=empty",), "m2: this file is empty"),
        (("source=full",), "source: alone, this option does nothing; allowed: beside references"),
        (("source=full", "references=[full,missing]"), "references: there is no such file"),
        (("m2=full", "source=full", "references=full"), "one origin of the words is needed"),
    ],
)
def test_mistakes(
    run_headway: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: tuple[str, ...], message: str
) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "full").write_text("a b\n")
    monkeypatch.chdir(tmp_path)
    code, out, err = run_headway("data", "make", "labels", *given)
    assert (code, out) == (2, "")
    assert message in err


def test_missing_words_and_unions() -> None:
    labels: list[str] = []
    mark_missing(labels, 0)
    assert labels == []
    assert union([["c", "i", "c"], ["c", "c", "i"]]) == ["c", "i", "i"]
    assert wrong_words([], ["a"]) == []
