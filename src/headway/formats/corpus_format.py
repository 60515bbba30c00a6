"""The contract of a corpus format: what it can be opened as, and the opening of a recipe's corpora.

A format is a class with a `Config`, which names where the corpus is, and a method for each product that it gives.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

from headway.core.errors import UserError
from headway.core.storage import hashes_of
from headway.formats import FORMATS
from headway.formats.corpus_config import SHORT_FORMS, CorpusConfig, GivenCorpus, parts
from headway.formats.lines import check_file
from headway.processing.text.line_ends import has_line_end, on_one_line

PAIRS, TREES, TAGS, ERRORS, RECORDINGS = "pairs", "trees", "tags", "errors", "recordings"


class Pair(NamedTuple):
    """A source and its target, as raw text, with the number of their line or row, counted from 1.

    `compared` is what metrics compare outputs with, where that is not the target alone: equally many references in
    every pair of a corpus.
    """

    line: int
    source: str
    target: str
    compared: tuple[str, ...] = ()

    @classmethod
    def of(cls, line: int, texts: Sequence[str]) -> Pair:
        """The pair of a source and its references, of which the first is the target."""
        source, *references = texts
        return cls(line, source, references[0], tuple(references) if len(references) > 1 else ())

    @property
    def references(self) -> tuple[str, ...]:
        """The texts that metrics compare outputs with."""
        return self.compared or (self.target,)

    def on_one_line(self, source: bool = True) -> Pair:
        """The pair whose texts have spaces in the place of characters that end lines; itself where there are none.

        Args:
            source: whether the source is a text; else it stays as it is.
        """
        texts = (self.target, *self.compared, *((self.source,) if source else ()))
        if not any(map(has_line_end, texts)):
            return self
        named = on_one_line(self.source) if source else self.source
        return Pair(self.line, named, on_one_line(self.target), tuple(map(on_one_line, self.compared)))


class PairSource(ABC):
    """A stream of pairs from one origin. A subclass gives its `rows`.

    Attributes:
        name: the origin, for messages.
        files: the files that hold it.
        columns: what else decides how these are read.
        row_errors: what becomes of rows that cannot be read, and their account.
        source_is_text: whether the sources are text; else they are names, such as those of files.
    """

    source_is_text: ClassVar[bool] = True

    def __init__(self, name: str, files: Sequence[Path], columns: Sequence[str | int] = ()) -> None:
        self.name, self.files, self.columns = name, tuple(files), tuple(columns)
        self.row_errors = RowErrors()

    @abstractmethod
    def rows(self) -> Iterator[Pair | UserError]:
        """All rows, in their order: a pair, or the error of a row that cannot be read, with file and line.

        Raises:
            UserError: the origin is at fault, so that no further row can be read.
        """

    def __iter__(self) -> Iterator[Pair]:
        """All pairs, in their order. No text has a character that ends a line: it would make two lines of an output.

        Raises:
            UserError: with file and line, where the origin is at fault, or a row, unless such are left out.
        """
        self.row_errors.clear()
        for row in self.rows():
            if isinstance(row, UserError):
                self.row_errors.add(row)
                continue
            pair = row.on_one_line(self.source_is_text)
            if pair is not row:
                self.row_errors.add_line_end(row.line)
            yield pair

    def fingerprint(self) -> str:
        """A hash of the content (not of names and dates) and of how it is read."""
        return content_hash([type(self).__name__, *map(repr, self.columns), *hashes_of(self.files)])

    def origins(self) -> list[tuple[str, int]]:
        """Where lines are counted through several origins: each origin, and the last line of it that was read."""
        return []


def content_hash(parts: Sequence[str]) -> str:
    """A hash of several texts."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@dataclass(frozen=True)
class Labelled:
    """A sentence: where it begins, its words, and one label a word from each of one or more annotators."""

    line: int
    words: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]


class CorpusFormat(ABC):
    """A corpus in one format.

    Attributes:
        Config: its options.
        products: what it can be opened as: `pairs`; `trees`, which are pairs of a sentence and a linear form; `tags`
            or `errors`, which are words with labels of any kind, or with `c` and `i`; `recordings`. A task may read
            further ones.
        fault: what is wrong where a task wants another product.
        config: the options that were given.
        where: the recipe key of the corpus, for messages.
        row_errors: of sentences of labelled words, what becomes of those that cannot be read, and their account.
    """

    Config: ClassVar[type[CorpusConfig]] = CorpusConfig
    products: ClassVar[tuple[str, ...]]
    fault: ClassVar[str] = "the task reads no such corpus"
    config: CorpusConfig

    def __init__(self, config: CorpusConfig, where: str) -> None:
        self.config, self.where = config, where
        self.row_errors = RowErrors()

    def key(self, name: str) -> str:
        """The recipe key of an option, in the short form that most recipes have."""
        short = {long: short for short, long in SHORT_FORMS.get(self.config.kind, {}).items()}
        return f"{self.where}.{short.get(name, name)}"

    def check(self) -> None:
        """Raise UserError where a file is missing or empty; by default every option of type `Path` names a file."""
        for name, value in self.config:
            for path in value if isinstance(value, tuple) else (value,):
                if isinstance(path, Path):
                    check_file(path, self.key(name))

    def pairs(self) -> PairSource:
        """The corpus as pairs of texts, for `pairs` and `trees`. Raises UserError."""
        raise NotImplementedError

    def labelled(self, labels: Sequence[str] | None) -> list[Labelled]:
        """The corpus as labelled words, for `tags` and `errors`. Sentences that cannot be read go to `row_errors`.

        Args:
            labels: the labels that there may be; any where it is None.

        Raises:
            UserError: with file and line: a corpus that is at fault, or a label that is not allowed.
        """
        raise NotImplementedError

    def recordings(self) -> PairSource:
        """The corpus as pairs of a recording's path and its transcript, for `recordings`. Raises UserError."""
        raise NotImplementedError

    def annotations(self, side: str) -> Path:
        """The path beside which annotations of one side, `source` or `target`, are kept, as `PATH.NAME`."""
        first = next((value for _, value in self.config if isinstance(value, Path)), Path("corpus"))
        return Path(f"{first}.{side}")


def check_product(corpus: GivenCorpus, where: str, product: str) -> None:
    """Raise UserError unless every format of the corpus gives the product, such as `pairs`."""
    for key, config in parts(corpus, where):
        if product not in (kind := FORMATS.get(config.kind, f"{key}.kind")).products:
            allowed = [name for name in FORMATS if product in FORMATS.get(name).products]
            raise UserError(kind.fault, where=key, received=config.kind, allowed=allowed)


def open_corpora(corpus: GivenCorpus, where: str, product: str) -> list[CorpusFormat]:
    """The corpora, each in its format.

    Args:
        corpus: one corpus, or several, of the recipe.
        where: its key, such as `data.train`, for messages.
        product: what they have to give.

    Raises:
        UserError: another kind of corpus; a file that is missing, unreadable or empty.
    """
    check_product(corpus, where, product)
    formats = [open_format(config, key) for key, config in parts(corpus, where)]
    for format in formats:
        format.check()
    return formats


def open_format(config: CorpusConfig, where: str) -> CorpusFormat:
    """The format that a corpus names, not checked yet."""
    return FORMATS.get(config.kind, f"{where}.kind")(config, where)


# `data.broken`: what becomes of rows that cannot be read.
Broken = Literal["error", "skip"]
SHOWN = 5  # errors that are kept, unless all are asked for


@dataclass(frozen=True)
class RowReport:
    """The account of the rows of a corpus that could not be read, or were changed, as values.

    Attributes:
        broken: how many rows were left out, since they cannot be read.
        errors: what is wrong with the first of them.
        line_ends: how many rows had characters within a text which end a line; they are spaces now.
        lines: the numbers of the first of these.
    """

    broken: int = 0
    errors: Sequence[str] = ()
    line_ends: int = 0
    lines: Sequence[int] = ()

    def text(self, location: Callable[[int], str] = str) -> list[str]:
        """Lines to be read, none where nothing was wrong; `location` writes the number of a line."""
        text = list[str]()
        if self.broken:
            text.append(f"  left out {self.broken:,}: rows that cannot be read")
            text += [f"    {error}" for error in self.errors]
            text += ["    ..."] if 0 < len(self.errors) < self.broken else []
        if self.line_ends:
            more = ", ..." if self.line_ends > len(self.lines) else ""
            shown = f"line {', '.join(map(location, self.lines))}{more}"
            text.append(f"  changed {self.line_ends:,}: characters that end a line are spaces now ({shown})")
        return text


NOTHING_AMISS = RowReport()


@dataclass
class RowErrors:
    """The treatment of rows that cannot be read, and the account of the last reading, in the terms of `RowReport`.

    Attributes:
        broken: `error` raises the first error; `skip` leaves the row out.
        shown: how many errors are kept; None for all.
        remedy: the setting that leaves such rows out, for the error that is raised.
    """

    broken: Broken = "error"
    shown: int | None = SHOWN
    remedy: str = ""
    count: int = 0
    errors: list[UserError] = field(default_factory=list)
    line_ends: int = 0
    lines: list[int] = field(default_factory=list)

    def clear(self) -> None:
        """Begin to count anew."""
        self.count, self.errors, self.line_ends, self.lines = 0, [], 0, []

    def add(self, error: UserError) -> None:
        """Count a row that cannot be read. Raises its error unless it is to be left out."""
        if self.broken == "error":
            remedy = f"{self.remedy}, which leaves such rows out" if self.remedy else None
            allowed = ", or ".join(filter(None, (error.allowed, remedy))) or None
            raise UserError(error.what, where=error.where, received=error.received, allowed=allowed)
        self.count += 1
        if self.shown is None or len(self.errors) < self.shown:
            self.errors.append(error)

    def add_line_end(self, line: int) -> None:
        """Count a row that had a line end within a text."""
        self.line_ends += 1
        if len(self.lines) < SHOWN:
            self.lines.append(line)

    def all(self) -> list[str]:
        """The errors of all rows, after a reading with `shown=None`."""
        return list(map(str, self.errors))

    def report(self, several: bool = False) -> RowReport:
        """The account as it is now: the same for the same content, wherever it is kept.

        Args:
            several: whether the rows are those of several files, which are then named.
        """
        errors = []
        for error in self.errors:
            file, _, line = (error.where or "").rpartition(":")
            name = f"{Path(file).name}:{line}" if several else f"line {line}"
            errors.append(f"{name}: {str(error).removeprefix(f'{error.where}: ')}")
        return RowReport(self.count, tuple(errors), self.line_ends, tuple(self.lines))
