"""Universal Dependencies in CoNLL-U, read with the package `conllu` of the extra [parse]."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from headway.core.errors import UserError, not_installed
from headway.formats import LabelColumn
from headway.formats.corpus_config import AnyCorpus, CorpusConfig, parts
from headway.formats.corpus_format import TAGS, CorpusFormat, Labelled, RowErrors
from headway.formats.labelled_words import check_label, check_word, read_columns
from headway.formats.lines import blocks


class ConlluToken(NamedTuple):
    """A row: a syntactic word, a multiword token (`2-3`) or an empty node (`8.1`).

    Attributes:
        line: the line of the file, from 1.
        id: a word's number, from 1; (first, "-", last) of a multiword token; (word, ".", number) of an empty node.
        head: the number of the head, 0 for a root, or None if there is none.
        misc: the features of the last column, such as `SpaceAfter`.
    """

    line: int
    id: int | tuple[int, str, int]
    form: str
    lemma: str
    upos: str
    xpos: str
    head: int | None
    deprel: str
    misc: Mapping[str, str | None]


class ConlluSentence(NamedTuple):
    """A sentence, and its first line in the file. A multiword token precedes its words, wherever its row is."""

    line: int
    tokens: list[ConlluToken]

    def words(self) -> list[ConlluToken]:
        """The syntactic words."""
        return [token for token in self.tokens if isinstance(token.id, int)]


class Conllu(CorpusFormat):
    """Sentences whose syntactic words are labelled with one of the columns."""

    class Config(CorpusConfig):
        """`path`: the file. `label`: the column of the label."""

        path: Path
        label: LabelColumn = "upos"

    config: Config
    products = (TAGS,)

    def labelled(self, labels: Sequence[str] | None) -> list[Labelled]:
        return list(read_conllu(self.config.path, self.config.label, labels, self.row_errors))


def is_conllu(path: Path) -> bool:
    return ".conllu" in path.suffixes


def read_labelled(path: Path, label: LabelColumn = "upos", labels: Sequence[str] | None = None) -> Iterator[Labelled]:
    """Read labelled words, with `read_conllu` if the file name says CoNLL-U and with `read_columns` otherwise."""
    return read_conllu(path, label, labels) if is_conllu(path) else read_columns(path, labels=labels)


def label_column(corpus: AnyCorpus) -> LabelColumn:
    """The CoNLL-U column with the labels that a model learns from a corpus."""
    _, first = parts(corpus, "data.train")[0]
    return first.label if isinstance(first, Conllu.Config) else "upos"


def read_conllu(
    path: Path, label: LabelColumn, labels: Sequence[str] | None = None, row_errors: RowErrors | None = None
) -> Iterator[Labelled]:
    """Read the syntactic words of a CoNLL-U file, labelled with the column `label` (`upos`, `xpos`, ...).

    Raises:
        UserError: as `read_sentences`; or a word or label is empty, or a label is not allowed.
    """
    row_errors = row_errors or RowErrors()
    for sentence in read_sentences(path, row_errors):
        words = sentence.words()
        try:
            forms = tuple(check_word(word.form, f"{path}:{word.line}") for word in words)
            column = tuple(check_label(getattr(word, label), labels, f"{path}:{word.line}") for word in words)
        except UserError as error:
            row_errors.add(error)
            continue
        if words:
            yield Labelled(sentence.line, forms, (column,))


def read_sentences(path: Path, row_errors: RowErrors | None = None) -> Iterator[ConlluSentence]:
    """Read the sentences of a CoNLL-U file, plain or compressed.

    Args:
        path: the file.
        row_errors: how unreadable sentences are treated; by default they raise an error.

    Raises:
        UserError: with file and line: a row without ten columns, invalid values, or words that are not numbered in
            order; the extra [parse] is not installed.
    """
    try:
        import conllu.parser as package
    except ImportError as error:
        raise not_installed("CoNLL-U", ["conllu"], "parse", str(path)) from error
    row_errors = row_errors or RowErrors()
    for block in blocks(path):
        rows = [(line, row) for line, row in block if not row.startswith("#")]
        try:
            tokens = [_read_row(package, row, f"{path}:{line}", line) for line, row in rows]
            sentence = ConlluSentence(block[0][0], tokens)
            for number, word in enumerate(sentence.words(), start=1):
                if word.id != number:
                    what = "the words of a sentence are numbered in their order, and a blank line ends it"
                    raise UserError(what, where=f"{path}:{word.line}", received=word.id, allowed=f"{number}")
            tokens.sort(key=_place)
        except UserError as error:
            row_errors.add(error)
            continue
        if sentence.tokens:
            yield sentence


def _place(token: ConlluToken) -> tuple[int, int]:
    """The sort key of a row: a multiword token comes before its first word, an empty node after its word."""
    return (token.id, 1) if isinstance(token.id, int) else (token.id[0], 2 * (token.id[1] == "."))


def _read_row(package: Any, row: str, where: str, line: int) -> ConlluToken:
    try:
        _, form, lemma, upos, xpos, _, _, deprel, _, _ = row.split("\t")
        # The package also splits columns at two spaces.
        token = package.parse_line(re.sub(" {2,}", " ", row), package.DEFAULT_FIELDS)
    except (ValueError, package.ParseException) as error:
        raise UserError(f"this row is not CoNLL-U ({error})", where=where, received=row) from error
    return ConlluToken(line, token["id"], form, lemma, upos, xpos, token["head"], deprel, token["misc"] or {})


def check_dependent(token: ConlluToken, index: int, path: Path) -> None:
    """Raise UserError, with file and line, if the word at `index` of its sentence has no form or no valid head."""
    if token.head is None or token.head < 0 or token.head == index + 1 or not token.form.strip():
        what, received = "this row is no word with a head", f"{token.id} {token.form} {token.head}"
        raise UserError(what, where=f"{path}:{token.line}", received=received)
