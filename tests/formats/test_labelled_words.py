"""Labelled words from columns, CoNLL-U, M2 and corrections; mistakes with file and line."""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from headway.core.errors import UserError
from headway.formats.conllu import read_conllu
from headway.formats.corpus_format import ERRORS, TAGS
from headway.formats.labelled_words import (
    fingerprint,
    mark_missing,
    open_labelled,
    read_columns,
    read_m2,
    union,
    write_columns,
    wrong_words,
)
from tests.conftest import Command

M2 = """S This are a sentence .
A 1 2|||R:VERB|||is|||REQUIRED|||-NONE-|||0
A 4 4|||M:ADJ|||good|||REQUIRED|||-NONE-|||0
A 0 2|||R:OTHER|||These are|||REQUIRED|||-NONE-|||1
A 2 3|||U:DET||||||REQUIRED|||-NONE-|||1

S Fine .
A -1 -1|||noop|||-NONE-|||REQUIRED|||-NONE-|||0
A 2 2|||M:X|||then|||REQUIRED|||-NONE-|||1

S Nobody looked
"""

CONLLU = """# text = I don't know
1\tI\ti\tPRON\tPRP\t_\t4\tnsubj\t_\t_
2-3\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
2\tdo\tdo\tAUX\tVBP\t_\t4\taux\t_\t_
3\tn't\tnot\tPART\tRB\t_\t4\tadvmod\t_\t_
3.1\tempty\t_\tX\tX\t_\t_\t_\t_\t_
4\tknow\tknow\tVERB\tVB\t_\t0\troot\t_\t_
"""


def write(folder: Path, name: str, content: str) -> Path:
    path = folder / name
    path.write_text(content, encoding="utf-8")
    return path


def opened(**config: Any) -> list[tuple[int, str, list[str]]]:
    product = TAGS if "conllu" in config else ERRORS
    sentences = open_labelled(config, "data.train", product)
    return [
        (sentence.line, " ".join(sentence.words), [" ".join(labels) for labels in sentence.labels])
        for sentence in sentences
    ]


def test_columns(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tsv", "\nHe\tc\ngo\ti\n\n\n.\tc\n")
    assert opened(tsv=path) == [(2, "He go", ["c i"]), (6, ".", ["c"])]
    path = write(tmp_path, "b.tsv", "c\tx\tHe\ni\tx\tgo")
    assert opened(tsv=path, columns=(3, 1)) == [(1, "He go", ["c i"])]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tsv", "He\tc\ngo\ti\n\n.\tc\n\n")
    again = write_columns([(sentence.words, sentence.labels[0]) for sentence in read_columns(path)])
    assert again == path.read_text(encoding="utf-8")


def test_m2_by_annotator_and_by_all(tmp_path: Path) -> None:
    path = write(tmp_path, "a.m2", M2)
    words = ["This are a sentence .", "Fine .", "Nobody looked"]
    assert opened(m2=path, annotator=0) == list(zip((1, 7, 11), words, [["c i c c i"], ["c c"], ["c c"]], strict=True))
    assert opened(m2=path, annotator=1) == list(zip((1, 7, 11), words, [["i i i c c"], ["c i"], ["c c"]], strict=True))
    assert [labels for _, _, labels in opened(m2=path)] == [["c i c c i", "i i i c c"], ["c c", "c i"], ["c c", "c c"]]
    # ERRANT writes a no-break space, and an ideographic one within a number, as tokens of their own or parts of one.
    odd = "S 5 \u00a0 000 euro , 1\u3000000\u2028x so\nA 3 4|||R:NOUN:NUM|||euros|||REQUIRED|||-NONE-|||0\n\n"
    (sentence,) = read_m2(write(tmp_path, "odd.m2", odd))
    assert sentence.words == ("5", "000", "euro", ",", "1_000_x", "so")
    assert sentence.labels == (("c", "c", "i", "c", "c", "c"),)
    with pytest.raises(UserError, match=r"a\.m2: no edit is by this annotator; received 2; allowed: 0, 1"):
        read_m2(path, 2)


def test_corrections(tmp_path: Path) -> None:
    source = write(tmp_path, "s", "He go home .\n\nFine\n")
    one, two = write(tmp_path, "r0", "He goes home .\n\nFine\n"), write(tmp_path, "r1", "He goes to home .\nx\nFine\n")
    sentences = opened(source=source, references=(one, two))
    assert sentences == [(1, "He go home .", ["c i c c", "c i c c"]), (3, "Fine", ["c", "c"])]
    blank = write(tmp_path, "r2", "\n\nFin\n")  # a correction that is not there
    assert opened(source=source, references=(blank, one))[0] == (1, "He go home .", ["c i c c", "c i c c"])


def test_conllu_takes_syntactic_words(tmp_path: Path) -> None:
    path = write(tmp_path, "a.conllu", CONLLU)
    assert opened(conllu=path) == [(1, "I do n't know", ["PRON AUX PART VERB"])]
    assert opened(conllu=path, label="deprel")[0][2] == ["nsubj aux advmod root"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tsv", "He\tc\n\ngo\tx\n", r"a\.tsv:3: this is no label; received 'x'; allowed: c, i"),
        ("a.tsv", "He\tc\n\ngo\tc\tc\n", r"a\.tsv:3: wrong number of columns; received 3; allowed: 2, as in the rows"),
        ("a.tsv", "He\n", r"a\.tsv:1: wrong number of columns; received 1; allowed: at least 2"),
        ("a.tsv", "He\tc\n \tc\n", r"a\.tsv:2: this row has no word"),
        ("a.tsv", "He\t\n", r"a\.tsv:1: this is no label"),
        ("a.m2", M2.replace("A 4 4", "A 4 6"), r"a\.m2:3: this is no edit of M2; received 'A 4 6.*positions 0 to 5"),
        ("a.m2", M2.replace("A 1 2", "A 2 1"), r"a\.m2:2: this is no edit of M2"),
        ("a.m2", M2.replace("A 1 2", "A one"), r"a\.m2:2: this is no edit of M2"),
        ("a.m2", M2.replace("|||-NONE-|||0", "", 1), r"a\.m2:2: this is no edit of M2"),
        ("a.m2", "This is plain text\n", r"a\.m2:1: a sentence of M2 begins with S"),
        ("a.m2", "S \n", r"a\.m2:1: a sentence of M2"),
        ("a.conllu", "1\tI\ti\n", r"a\.conllu:1: this row is not CoNLL-U \(.*expected 10, got 3"),
    ],
)
def test_mistakes_are_named_with_file_and_line(tmp_path: Path, name: str, content: str, message: str) -> None:
    key = Path(name).suffix.removeprefix(".")
    product = TAGS if key == "conllu" else ERRORS
    with pytest.raises(UserError, match=message):
        open_labelled({key: write(tmp_path, name, content)}, "data.train", product, labels=("c", "i"))


def test_references_of_another_length(tmp_path: Path) -> None:
    source, one = write(tmp_path, "s", "a\nb\n"), write(tmp_path, "r", "a\n")
    with pytest.raises(UserError, match=r"s:2: this line has no partner: .*s has 2 lines, .*r has 1 line"):
        opened(source=source, references=(one,))
    with pytest.raises(UserError, match=r"s:2: this line has no partner"):
        opened(source=one, references=(source,))
    with pytest.raises(UserError, match=r"data\.train\.references: there is no such file"):
        opened(source=source, references=(tmp_path / "none",))


def test_a_task_reads_only_some_kinds(tmp_path: Path) -> None:
    path = write(tmp_path, "a.conllu", CONLLU)
    with pytest.raises(
        UserError, match="the task reads no such corpus; received 'conllu'; allowed: parallel, tsv, columns, m2"
    ):
        open_labelled({"conllu": path}, "data.dev", ERRORS)


def test_fingerprints_tell_words_labels_and_settings_apart(tmp_path: Path) -> None:
    first = list(read_columns(write(tmp_path, "a", "He\tc\n")))
    others = [list(read_columns(write(tmp_path, "b", text))) for text in ("He\ti\n", "She\tc\n", "He\tc\n\nHe\tc\n")]
    hashes = [fingerprint(sentence, ["1"]) for sentence in (first, *others)] + [fingerprint(first, ["2"])]
    assert len(set(hashes)) == 5
    assert fingerprint(list(read_conllu(write(tmp_path, "c", CONLLU), "upos")), []) != hashes[0]


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
