"""Sentences of labelled words: from columns, from M2 (Dahlmeier and Ng 2012), and from corrected sentences.

Every format with labelled words is read with `open_labelled`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from headway.core.config import Count, Index
from headway.core.errors import UserError
from headway.formats.corpus_config import CorpusConfig, GivenCorpus
from headway.formats.corpus_format import ERRORS, TAGS, CorpusFormat, Labelled, RowErrors, open_corpora
from headway.formats.lines import blocks
from headway.processing.text.line_ends import has_line_end


class Columns(CorpusFormat):
    """A word per row, in columns separated by tabs; a blank line ends a sentence."""

    class Config(CorpusConfig):
        """`path`: the file. `columns`: the columns of word and label, from 1."""

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
    """Read the sentences of a corpus, or of several, all with the same number of annotators.

    Args:
        corpus: the corpus as in a recipe; a mapping is parsed like a part of a recipe.
        where: its recipe key, such as `data.train`, for messages.
        product: `tags` or `errors`.
        labels: the allowed labels; any by default.
        row_errors: how unreadable sentences are treated, and a report of the pass; by default they raise an error.

    Raises:
        UserError: a file is missing or empty or, with file and line, damaged; corpora have different numbers of
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
    """Read a file with a word per row, in columns separated by tabs; a blank line ends a sentence.

    Args:
        path: the file.
        columns: the columns of word and label, counted from 1.
        labels: the allowed labels; any by default.
        row_errors: how unreadable sentences are treated; by default they raise an error.

    Raises:
        UserError: with file and line: rows of different width, an empty word or label, a label that is not allowed.
    """
    row_errors = row_errors or RowErrors()
    width: int | None = None  # the number of columns, as in the first row

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
    """Format words and labels for `read_columns`."""
    return "".join(
        "".join(f"{word}\t{label}\n" for word, label in zip(words, labels, strict=True)) + "\n"
        for words, labels in sentences
    )


def fingerprint(sentences: Sequence[Labelled], more: Sequence[str]) -> str:
    """A hash of words and labels, and of other settings that determine how they are read."""
    digest = hashlib.sha256(repr(list(more)).encode())
    for sentence in sentences:
        digest.update(repr((sentence.words, sentence.labels)).encode())
    return digest.hexdigest()


def check_word(text: str, where: str) -> str:
    """Return a word unchanged. Raises UserError if it is blank or contains a line-ending character."""
    if not text.strip() or has_line_end(text):
        raise UserError("this row has no word, or one with a character that ends a line", where=where, received=text)
    return text


def check_label(text: str, allowed: Sequence[str] | None, where: str) -> str:
    """Return a label without surrounding white space.

    Raises UserError if it is blank, has spaces, or is not allowed.
    """
    label = text.strip()
    if not label or len(label.split()) > 1 or (allowed is not None and label not in allowed):
        raise UserError("this is no label", where=where, received=text, allowed=allowed)
    return label


CORRECT, INCORRECT = "c", "i"


def wrong_words(source: Sequence[str], corrected: Sequence[str]) -> list[str]:
    """Label each source word: `i` if it must change to become `corrected`, else `c`.

    The alignment has the minimum edit distance (Levenshtein, with cost 1 for a substitution, insertion or deletion;
    among the best alignments, the one that keeps or substitutes words as far to the right as possible). Substituted and
    deleted words are wrong. A missing word marks the word after it, or the last word at the end of the sentence.
    """
    table = [list(range(len(corrected) + 1))]  # [m][n]: the edit distance of the first m and the first n words
    for row, word in enumerate(source, start=1):
        above, line = table[-1], [row]
        for column, other in enumerate(corrected, start=1):
            line.append(min(above[column - 1] + (word != other), above[column] + 1, line[-1] + 1))
        table.append(line)
    labels = [CORRECT] * len(source)
    row, column = len(source), len(corrected)
    while row or column:
        here = table[row][column]
        if row and column and here == table[row - 1][column - 1] + (source[row - 1] != corrected[column - 1]):
            row, column = row - 1, column - 1
            if source[row] != corrected[column]:
                labels[row] = INCORRECT
        elif row and here == table[row - 1][column] + 1:
            row -= 1
            labels[row] = INCORRECT
        else:
            column -= 1
            mark_missing(labels, row)
    return labels


def mark_missing(labels: list[str], index: int) -> None:
    """Mark a missing word before the word `index`, which may be one past the last."""
    if labels:
        labels[min(index, len(labels) - 1)] = INCORRECT


def union(sets: Sequence[Sequence[str]]) -> list[str]:
    """Merge several labellings of one sentence: `i` if any of them has `i`."""
    return [INCORRECT if INCORRECT in labels else CORRECT for labels in zip(*sets, strict=True)]


Edits = dict[int, list[tuple[int, int]]]
NUMBER = r"(-?[0-9]{1,9})"
EDIT = re.compile(rf"A\s+{NUMBER}\s+{NUMBER}\s*\|\|\|(.*?)\|\|\|.*?\|\|\|.*?\|\|\|.*?\|\|\|\s*{NUMBER}\s*")


class M2(CorpusFormat):
    """M2 edits of annotators: edited words are wrong."""

    class Config(CorpusConfig):
        """`path`: the file. `annotator`: a number; by default all annotators, each with a separate labelling."""

        path: Path
        annotator: Index | None = None

    config: Config
    products = (ERRORS,)

    def labelled(self, labels: Sequence[str] | None) -> list[Labelled]:
        return read_m2(self.config.path, self.config.annotator, self.row_errors)


def read_m2(path: Path, annotator: int | None = None, row_errors: RowErrors | None = None) -> list[Labelled]:
    """Read the sentences of an M2 file; words within an edit are wrong.

    Args:
        path: the file.
        annotator: the annotator whose edits are used; by default there is a labelling for every annotator of the file.
        row_errors: how unreadable sentences are treated; by default they raise an error.

    Raises:
        UserError: with file and line: a line is not M2, or an edit is outside its sentence; without a line: there is no
            annotator with the number `annotator`.
    """
    sentences, row_errors = list[tuple[int, tuple[str, ...], Edits]](), row_errors or RowErrors()
    for block in blocks(path):
        try:
            sentences.append(_read_block(path, block))
        except UserError as error:
            row_errors.add(error)
    annotators = sorted({number for _, _, edits in sentences for number in edits}) or [0]
    if annotator is not None and annotator not in annotators:
        raise UserError(
            "no edit is by this annotator", where=str(path), received=annotator, allowed=map(str, annotators)
        )
    chosen = annotators if annotator is None else [annotator]
    labelled = list[Labelled]()
    for line, tokens, edits in sentences:
        shown = [place for place, token in enumerate(tokens) if token.strip()]
        words = tuple("_".join(tokens[place].split()) for place in shown)  # white space within a word is written as _
        labels = [_labels_of(tokens, edits.get(number, ())) for number in chosen]
        labelled.append(Labelled(line, words, tuple(tuple(row[place] for place in shown) for row in labels)))
    return labelled


def _read_block(path: Path, block: list[tuple[int, str]]) -> tuple[int, tuple[str, ...], Edits]:
    """Parse a sentence of an M2 file: its first line, its tokens, and the spans of the edits by annotator.

    Only U+0020 separates tokens: a token may be, or contain, other white space such as a no-break space.
    """
    (first, sentence), *rest = block
    if not sentence.startswith("S ") or not sentence[2:].split():
        raise UserError("a sentence of M2 begins with S and has words", where=f"{path}:{first}", received=sentence)
    words, edits = tuple(token for token in sentence[2:].split(" ") if token), Edits()
    for line, text in rest:
        edit = EDIT.fullmatch(text)
        if edit is None or not (edit[3] == "noop" or 0 <= int(edit[1]) <= int(edit[2]) <= len(words)):
            allowed = f"A START END|||TYPE|||CORRECTION|||REQUIRED|||COMMENT|||ANNOTATOR, positions 0 to {len(words)}"
            raise UserError("this is no edit of M2", where=f"{path}:{line}", received=text, allowed=allowed)
        spans = edits.setdefault(int(edit[4]), [])
        if edit[3] != "noop":
            spans.append((int(edit[1]), int(edit[2])))
    return first, words, edits


def _labels_of(words: Sequence[str], spans: Sequence[tuple[int, int]]) -> tuple[str, ...]:
    labels = [CORRECT] * len(words)
    for start, end in spans:
        labels[start:end] = [INCORRECT] * (end - start)
        if start == end:
            mark_missing(labels, start)
    return tuple(labels)
