"""The interface of a corpus format, and functions that open the corpora of a recipe.

A format is a class with a `Config`, which locates the corpus, and a method for each product that it can be read as.
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

    `compared` are the references for metrics if they are not just the target. Every pair of a corpus has equally many.
    """

    line: int
    source: str
    target: str
    compared: tuple[str, ...] = ()

    @classmethod
    def of(cls, line: int, texts: Sequence[str]) -> Pair:
        """The pair of a source and its references; the first reference is the target."""
        source, *references = texts
        return cls(line, source, references[0], tuple(references) if len(references) > 1 else ())

    @property
    def references(self) -> tuple[str, ...]:
        return self.compared or (self.target,)

    def on_one_line(self, source: bool = True) -> Pair:
        """The pair with characters that end lines replaced by spaces, or the pair itself if it has none.

        Args:
            source: whether the source is a text; otherwise it stays unchanged.
        """
        texts = (self.target, *self.compared, *((self.source,) if source else ()))
        if not any(map(has_line_end, texts)):
            return self
        named = on_one_line(self.source) if source else self.source
        return Pair(self.line, named, on_one_line(self.target), tuple(map(on_one_line, self.compared)))


class PairSource(ABC):
    """A stream of pairs from one origin. Subclasses implement `rows`.

    Attributes:
        name: the origin, for messages.
        files: the files with the pairs.
        columns: other settings that determine how the files are read.
        row_errors: how unreadable rows are treated, and a report of the last pass.
        source_is_text: whether the sources are text rather than names, such as file names.
    """

    source_is_text: ClassVar[bool] = True

    def __init__(self, name: str, files: Sequence[Path], columns: Sequence[str | int] = ()) -> None:
        self.name, self.files, self.columns = name, tuple(files), tuple(columns)
        self.row_errors = RowErrors()

    @abstractmethod
    def rows(self) -> Iterator[Pair | UserError]:
        """All rows in order: a pair, or the error, with file and line, of a row that cannot be read.

        Raises:
            UserError: the origin is damaged, so that no further row can be read.
        """

    def __iter__(self) -> Iterator[Pair]:
        """All pairs in order. Characters that end a line are replaced, since they would split an output into two lines.

        Raises:
            UserError: with file and line, if the origin is damaged, or a row is unreadable and not to be skipped.
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
        """A hash of the content (not of names and dates) and of the settings for reading it."""
        return content_hash([type(self).__name__, *map(repr, self.columns), *hashes_of(self.files)])

    def origins(self) -> list[tuple[str, int]]:
        """Each origin and the number of its last line, if lines are counted across several origins; otherwise empty."""
        return []


def content_hash(parts: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@dataclass(frozen=True)
class Labelled:
    """A sentence: its first line in the file, its words, and the labels of one or more annotators, one per word."""

    line: int
    words: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]


class CorpusFormat(ABC):
    """A corpus in one format.

    Attributes:
        Config: the class of its options.
        products: what it can be read as: `pairs`; `trees`, which are pairs of a sentence and a linear form; `tags` or
            `errors`, which are words with labels of any kind, or with `c` and `i`; `recordings`. Tasks may define more.
        fault: the error message for a task that needs another product.
        config: the options of the corpus.
        where: the recipe key of the corpus, for messages.
        row_errors: for sentences of labelled words: how unreadable sentences are treated, and a report of the last
            pass.
    """

    Config: ClassVar[type[CorpusConfig]] = CorpusConfig
    products: ClassVar[tuple[str, ...]]
    fault: ClassVar[str] = "the task reads no such corpus"
    config: CorpusConfig

    def __init__(self, config: CorpusConfig, where: str) -> None:
        self.config, self.where = config, where
        self.row_errors = RowErrors()

    def key(self, name: str) -> str:
        """The recipe key of an option, in its short form if there is one."""
        short = {long: short for short, long in SHORT_FORMS.get(self.config.kind, {}).items()}
        return f"{self.where}.{short.get(name, name)}"

    def check(self) -> None:
        """Raise UserError if a file is missing or empty. By default, every option of type `Path` names a file."""
        for name, value in self.config:
            for path in value if isinstance(value, tuple) else (value,):
                if isinstance(path, Path):
                    check_file(path, self.key(name))

    def pairs(self) -> PairSource:
        """Open the corpus as pairs of texts, for `pairs` and `trees`. Raises UserError."""
        raise NotImplementedError

    def labelled(self, labels: Sequence[str] | None) -> list[Labelled]:
        """Read the corpus as labelled words, for `tags` and `errors`. Unreadable sentences are added to `row_errors`.

        Args:
            labels: the allowed labels, or None to allow any.

        Raises:
            UserError: with file and line: the corpus is damaged, or a label is not allowed.
        """
        raise NotImplementedError

    def recordings(self) -> PairSource:
        """Open the corpus as pairs of a recording's path and its transcript, for `recordings`. Raises UserError."""
        raise NotImplementedError

    def annotations(self, side: str) -> Path:
        """The path prefix for annotations of one side, `source` or `target`; they are stored as `PATH.NAME`."""
        first = next((value for _, value in self.config if isinstance(value, Path)), Path("corpus"))
        return Path(f"{first}.{side}")


def check_product(corpus: GivenCorpus, where: str, product: str) -> None:
    """Raise UserError unless every format of the corpus can be read as `product`, such as `pairs`."""
    for key, config in parts(corpus, where):
        if product not in (kind := FORMATS.get(config.kind, f"{key}.kind")).products:
            allowed = [name for name in FORMATS if product in FORMATS.get(name).products]
            raise UserError(kind.fault, where=key, received=config.kind, allowed=allowed)


def open_corpora(corpus: GivenCorpus, where: str, product: str) -> list[CorpusFormat]:
    """Open each corpus in its format.

    Args:
        corpus: a corpus of the recipe, or several.
        where: its recipe key, such as `data.train`, for messages.
        product: the product that the formats must support.

    Raises:
        UserError: the corpus is of another kind; a file is missing, unreadable or empty.
    """
    check_product(corpus, where, product)
    formats = [open_format(config, key) for key, config in parts(corpus, where)]
    for format in formats:
        format.check()
    return formats


def open_format(config: CorpusConfig, where: str) -> CorpusFormat:
    return FORMATS.get(config.kind, f"{where}.kind")(config, where)


# `data.broken`: how unreadable rows are treated.
Broken = Literal["error", "skip"]
SHOWN = 5  # errors that are kept by default


@dataclass(frozen=True)
class RowReport:
    """A report of the rows of a corpus that were unreadable or changed, as plain values.

    Attributes:
        broken: the number of unreadable rows, which were left out.
        errors: the errors of the first of them.
        line_ends: the number of rows with line-ending characters within a text, which were replaced by spaces.
        lines: the numbers of the first of these rows.
    """

    broken: int = 0
    errors: Sequence[str] = ()
    line_ends: int = 0
    lines: Sequence[int] = ()

    def text(self, location: Callable[[int], str] = str) -> list[str]:
        """The report as lines of text, empty if nothing was wrong. `location` formats the number of a line."""
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
    """How unreadable rows are treated (stop or skip), and a report of the last pass in the terms of `RowReport`.

    Attributes:
        broken: `error` raises the first error; `skip` leaves the row out.
        shown: the maximum number of errors to keep, or None for all.
        remedy: the setting that skips such rows, for the error message.
    """

    broken: Broken = "error"
    shown: int | None = SHOWN
    remedy: str = ""
    count: int = 0
    errors: list[UserError] = field(default_factory=list)
    line_ends: int = 0
    lines: list[int] = field(default_factory=list)

    def clear(self) -> None:
        self.count, self.errors, self.line_ends, self.lines = 0, [], 0, []

    def add(self, error: UserError) -> None:
        """Count an unreadable row. Raises its error if `broken` is `error`."""
        if self.broken == "error":
            remedy = f"{self.remedy}, which leaves such rows out" if self.remedy else None
            allowed = ", or ".join(filter(None, (error.allowed, remedy))) or None
            raise UserError(error.what, where=error.where, received=error.received, allowed=allowed)
        self.count += 1
        if self.shown is None or len(self.errors) < self.shown:
            self.errors.append(error)

    def add_line_end(self, line: int) -> None:
        """Count a row with a line-ending character within a text."""
        self.line_ends += 1
        if len(self.lines) < SHOWN:
            self.lines.append(line)

    def all(self) -> list[str]:
        return list(map(str, self.errors))

    def report(self, several: bool = False) -> RowReport:
        """The report so far. It does not depend on the location of the files.

        Args:
            several: whether the rows come from several files, which are then named.
        """
        errors = []
        for error in self.errors:
            file, _, line = (error.where or "").rpartition(":")
            name = f"{Path(file).name}:{line}" if several else f"line {line}"
            errors.append(f"{name}: {str(error).removeprefix(f'{error.where}: ')}")
        return RowReport(self.count, tuple(errors), self.line_ends, tuple(self.lines))
