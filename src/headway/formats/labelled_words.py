"""Sentences of labelled words: from columns, CoNLL-U, M2, or a source with corrected references."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import cast

from headway.errors import UserError
from headway.formats.corpus_config import CorpusConfig
from headway.formats.edits import CORRECT, INCORRECT, mark_missing, wrong_words
from headway.formats.lines import check_file, read_lines
from headway.formats.pairs import check_origin

LABELLED_ORIGINS = ("tsv", "conllu", "m2", "references")
ERROR_ORIGINS = ("tsv", "m2", "references")
TAG_ORIGINS = ("tsv", "conllu")

# Columns of CoNLL-U, counted from 1.
CONLLU = {"form": 2, "lemma": 3, "upos": 4, "xpos": 5, "head": 7, "deprel": 8}
CONLLU_COLUMNS = 10


@dataclass(frozen=True)
class Labelled:
    """A sentence: where it begins, its words, and one label a word from each of one or more annotators."""

    line: int
    words: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]


def open_labelled(
    config: CorpusConfig, where: str, origins: Sequence[str] = LABELLED_ORIGINS, labels: Sequence[str] | None = None
) -> list[Labelled]:
    """The sentences that `config` names, all with equally many annotators.

    Args:
        config: one corpus of the recipe.
        where: its recipe key, such as `data.train`, for messages.
        origins: the kinds of corpus that the task can read.
        labels: the labels that there may be; any by default.

    Raises:
        UserError: a file that is missing or empty or, with file and line, at fault.
    """
    check_origin(config, where, origins)
    for key in ("tsv", "conllu", "m2", "source"):
        if (path := getattr(config, key)) is not None:
            check_file(path, f"{where}.{key}")
    for path in config.references:
        check_file(path, f"{where}.references")
    if config.tsv is not None:
        columns = config.columns or (1, 2)
        if any(isinstance(column, str) for column in columns) or len(columns) != 2:
            raise UserError("columns of labelled words are two numbers", where=f"{where}.columns", received=columns)
        columns = cast(tuple[int, int], columns)
        return list(read_columns(config.tsv, columns, labels))
    if config.conllu is not None:
        return list(read_conllu(config.conllu, config.label, labels))
    if config.m2 is not None:
        return read_m2(config.m2, config.annotator)
    assert config.source is not None
    return list(read_corrections(config.source, config.references))


def read_columns(
    path: Path, columns: tuple[int, int] = (1, 2), labels: Sequence[str] | None = None
) -> Iterator[Labelled]:
    """A word a row, in columns that tabs separate; a blank line ends a sentence.

    Args:
        path: the file.
        columns: those of word and label, counted from 1.
        labels: the labels that there may be; any by default.

    Raises:
        UserError: with file and line: rows of different width, an empty word or label, a label that is not allowed.
    """
    width = None
    for block in blocks(path):
        words, found = list[str](), list[str]()
        for line, row in block:
            cells = row.split("\t")
            needed = max(columns) if width is None else width
            if len(cells) < needed or (width is not None and len(cells) != width):
                allowed = f"{width}, as in the rows before" if width else f"at least {max(columns)}"
                raise UserError("wrong number of columns", where=f"{path}:{line}", received=len(cells), allowed=allowed)
            width = len(cells)
            words.append(_word(cells[columns[0] - 1], f"{path}:{line}"))
            found.append(_label(cells[columns[1] - 1], labels, f"{path}:{line}"))
        yield Labelled(block[0][0], tuple(words), (tuple(found),))


def read_conllu(path: Path, label: str, labels: Sequence[str] | None = None) -> Iterator[Labelled]:
    """The syntactic words of a CoNLL-U file with what stands in column `label` (`upos`, `xpos`, ...).

    Raises:
        UserError: with file and line: not ten columns, an empty word or label, a label that is not allowed.
    """
    for first, rows in conllu_rows(path):
        words = tuple(_word(cells[CONLLU["form"] - 1], f"{path}:{line}") for line, cells in rows)
        found = tuple(_label(cells[CONLLU[label] - 1], labels, f"{path}:{line}") for line, cells in rows)
        yield Labelled(first, words, (found,))


def conllu_rows(path: Path) -> Iterator[tuple[int, list[tuple[int, list[str]]]]]:
    """Where each sentence of a CoNLL-U file begins, and the lines and ten columns of its syntactic words.

    Raises:
        UserError: with file and line: not ten columns.
    """
    for block in blocks(path):
        rows = list[tuple[int, list[str]]]()
        for line, row in block:
            if row.startswith("#"):
                continue
            cells = row.split("\t")
            if len(cells) != CONLLU_COLUMNS:
                where = f"{path}:{line}"
                raise UserError(
                    "wrong number of columns", where=where, received=len(cells), allowed=f"{CONLLU_COLUMNS}"
                )
            if cells[0].isdecimal():  # no range (1-2) and no empty node (8.1)
                rows.append((line, cells))
        if rows:
            yield block[0][0], rows


def read_m2(path: Path, annotator: int | None = None) -> list[Labelled]:
    """The sentences of an M2 file (Dahlmeier and Ng 2012), words within an edit being wrong.

    Args:
        path: the file.
        annotator: whose edits; by default those of all who edited any sentence, each a labelling of its own.

    Raises:
        UserError: with file and line: a line that is not M2, or an edit outside its sentence; without a line: nobody
            has the number `annotator`.
    """
    read = [_read_m2_block(path, block) for block in blocks(path)]
    annotators = sorted({each for _, _, edits in read for each in edits}) or [0]
    if annotator is not None and annotator not in annotators:
        raise UserError(
            "no edit is by this annotator", where=str(path), received=annotator, allowed=map(str, annotators)
        )
    chosen = annotators if annotator is None else [annotator]
    return [
        Labelled(line, words, tuple(_labels_of(words, edits.get(each, ())) for each in chosen))
        for line, words, edits in read
    ]


Edits = dict[int, list[tuple[int, int]]]


def _read_m2_block(path: Path, block: list[tuple[int, str]]) -> tuple[int, tuple[str, ...], Edits]:
    """Where a sentence begins, its words, and by annotator the spans of the edits."""
    (first, sentence), *rest = block
    if not sentence.startswith("S ") or not sentence[2:].split():
        raise UserError("a sentence of M2 begins with S and has words", where=f"{path}:{first}", received=sentence)
    words, edits = tuple(sentence[2:].split()), Edits()
    for line, text in rest:
        where = f"{path}:{line}"
        fields = text.removeprefix("A ").split("|||")
        try:
            start, end = map(int, fields[0].split())
            annotator = int(fields[5])
        except (ValueError, IndexError):
            allowed = "A START END|||TYPE|||CORRECTION|||REQUIRED|||COMMENT|||ANNOTATOR"
            raise UserError("this is no edit of M2", where=where, received=text, allowed=allowed) from None
        spans = edits.setdefault(annotator, [])
        if fields[1] == "noop":
            continue
        if not 0 <= start <= end <= len(words):
            raise UserError(
                "this edit lies outside its sentence", where=where, received=fields[0],
                allowed=f"places from 0 to {len(words)}",
            )  # fmt: skip
        spans.append((start, end))
    return first, words, edits


def _labels_of(words: Sequence[str], spans: Sequence[tuple[int, int]]) -> tuple[str, ...]:
    labels = [CORRECT] * len(words)
    for start, end in spans:
        labels[start:end] = [INCORRECT] * (end - start)
        if start == end:
            mark_missing(labels, start)
    return tuple(labels)


def read_corrections(source: Path, references: Sequence[Path]) -> Iterator[Labelled]:
    """Lines of words with their corrections, one labelling from each reference (see `wrong_words`); no blank lines.

    Raises:
        UserError: files with different numbers of lines.
    """
    missing = object()
    for line, (text, *others) in enumerate(
        zip_longest(read_lines(source), *map(read_lines, references), fillvalue=missing), start=1
    ):
        if missing in (text, *others):
            ended = [
                str(path) for path, each in zip((source, *references), (text, *others), strict=True) if each is missing
            ]
            raise UserError(f"{' and '.join(ended)} ended before this line", where=f"{source}:{line}")
        words = tuple(cast(str, text).split())
        if words:
            yield Labelled(line, words, tuple(tuple(wrong_words(words, cast(str, each).split())) for each in others))


def write_columns(sentences: Sequence[tuple[Sequence[str], Sequence[str]]]) -> str:
    """Words and labels as `read_columns` reads them."""
    return "".join(
        "".join(f"{word}\t{label}\n" for word, label in zip(words, labels, strict=True)) + "\n"
        for words, labels in sentences
    )


def fingerprint(sentences: Sequence[Labelled], more: Sequence[str]) -> str:
    """A hash of words and labels, and of what else decides how they are read."""
    digest = hashlib.sha256(repr(list(more)).encode())
    for sentence in sentences:
        digest.update(repr((sentence.words, sentence.labels)).encode())
    return digest.hexdigest()


def blocks(path: Path) -> Iterator[list[tuple[int, str]]]:
    """The lines between blank ones, with their numbers."""
    block = list[tuple[int, str]]()
    for line, row in enumerate(read_lines(path), start=1):
        if row.strip():
            block.append((line, row))
        elif block:
            yield block
            block = []
    if block:
        yield block


def _word(text: str, where: str) -> str:
    if not text.strip():
        raise UserError("this row has no word", where=where)
    return text


def _label(text: str, allowed: Sequence[str] | None, where: str) -> str:
    label = text.strip()
    if not label or len(label.split()) > 1 or (allowed is not None and label not in allowed):
        raise UserError("this is no label", where=where, received=text, allowed=allowed)
    return label
