"""Sentences of labelled words: from rows with a word each, or as any format gives them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from headway.config import Count
from headway.errors import UserError
from headway.formats.corpus_config import CorpusConfig, GivenCorpus
from headway.formats.corpus_format import ERRORS, TAGS, CorpusFormat, Labelled, open_corpora
from headway.formats.lines import blocks
from headway.formats.row_errors import RowErrors
from headway.processing.text.line_ends import has_line_end

__all__ = [
    "Columns",
    "Labelled",
    "check_label",
    "check_word",
    "fingerprint",
    "open_labelled",
    "read_columns",
    "write_columns",
]


class Columns(CorpusFormat):
    """A word a row, in columns that tabs separate; a blank line ends a sentence."""

    class Config(CorpusConfig):
        """The file, and the `columns` of word and label, from 1."""

        path: Path
        columns: tuple[Count, Count] = (1, 2)

    config: Config
    products = (TAGS, ERRORS)

    def labelled(self, labels: Sequence[str] | None) -> list[Labelled]:
        return list(read_columns(self.config.path, self.config.columns, labels, self.row_errors))


def open_labelled(
    corpus: GivenCorpus,
    where: str,
    product: str = TAGS,
    labels: Sequence[str] | None = None,
    row_errors: RowErrors | None = None,
) -> list[Labelled]:
    """The sentences of a corpus, or of several, all with equally many annotators.

    Args:
        corpus: as the recipe names it; a mapping is read like a part of a recipe.
        where: its key, such as `data.train`, for messages.
        product: `tags` or `errors`.
        labels: the labels that there may be; any by default.
        row_errors: what becomes of sentences that cannot be read, and their account; by default they are an error.

    Raises:
        UserError: a file that is missing or empty or, with file and line, at fault; corpora with different numbers of
            annotators.
    """
    sentences, row_errors = list[Labelled](), row_errors or RowErrors()
    row_errors.clear()
    for part in open_corpora(corpus, where, product):
        part.row_errors = row_errors
        added = part.labelled(labels)
        if sentences and added and len(added[0].labels) != len(sentences[0].labels):
            raise UserError(
                "the corpora of a list have equally many annotators", where=part.where,
                received=len(added[0].labels), allowed=str(len(sentences[0].labels)),
            )  # fmt: skip
        sentences += added
    return sentences


def read_columns(
    path: Path,
    columns: tuple[int, int] = (1, 2),
    labels: Sequence[str] | None = None,
    row_errors: RowErrors | None = None,
) -> Iterator[Labelled]:
    """A word a row, in columns that tabs separate; a blank line ends a sentence.

    Args:
        path: the file.
        columns: those of word and label, counted from 1.
        labels: the labels that there may be; any by default.
        row_errors: what becomes of sentences that cannot be read; by default they are an error.

    Raises:
        UserError: with file and line: rows of different width, an empty word or label, a label that is not allowed.
    """
    row_errors = row_errors or RowErrors()
    width: int | None = None  # of all rows, as that of the first

    def read(line: int, row: str) -> tuple[str, str]:
        nonlocal width
        cells, where = row.split("\t"), f"{path}:{line}"
        needed = max(columns) if width is None else width
        if len(cells) < needed or (width is not None and len(cells) != width):
            allowed = f"{width}, as in the rows before" if width else f"at least {max(columns)}"
            raise UserError("wrong number of columns", where=where, received=len(cells), allowed=allowed)
        width = len(cells)
        return check_word(cells[columns[0] - 1], where), check_label(cells[columns[1] - 1], labels, where)

    for block in blocks(path):
        try:
            words, column = zip(*(read(line, row) for line, row in block), strict=True)
        except UserError as error:
            row_errors.add(error)
        else:
            yield Labelled(block[0][0], words, (column,))


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


def check_word(text: str, where: str) -> str:
    """A word as it stands there. Raises UserError where it is blank, or holds a character that ends a line."""
    if not text.strip():
        raise UserError("this row has no word", where=where)
    if has_line_end(text):
        raise UserError("there is a character in this word that ends a line", where=where, received=text)
    return text


def check_label(text: str, allowed: Sequence[str] | None, where: str) -> str:
    """A label without the white space around it. Raises UserError where it is blank, several, or not allowed."""
    label = text.strip()
    if not label or len(label.split()) > 1 or (allowed is not None and label not in allowed):
        raise UserError("this is no label", where=where, received=text, allowed=allowed)
    return label
