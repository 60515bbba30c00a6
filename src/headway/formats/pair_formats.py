"""Formats of pairs: line-aligned files, tab-separated tables, JSON lines, and data sets of the Hugging Face hub."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, Self, cast

from pydantic import Field, model_validator

from headway.core.config import Count
from headway.core.errors import UserError, check_characters, not_installed
from headway.core.files import exists
from headway.core.log import counted, warn
from headway.core.storage import cache_folder
from headway.formats.corpus_config import CorpusConfig
from headway.formats.corpus_format import (
    ERRORS,
    PAIRS,
    RECORDINGS,
    TAGS,
    CorpusFormat,
    Labelled,
    Pair,
    PairSource,
    RowErrors,
    content_hash,
)
from headway.formats.labelled_words import read_columns, wrong_words
from headway.formats.lines import read_lines, read_rows
from headway.formats.recordings import Manifest
from headway.processing.hub import check_on_hub, files_of_bounded_size

MOST_COMPARISONS = 4_000_000  # word comparisons of a line with its correction


class ParallelFiles(PairSource):
    """A file of sources and one or more files of references, aligned line by line."""

    def __init__(self, source: Path, *references: Path) -> None:
        super().__init__(" and ".join(map(str, (source, *references))), (source, *references))

    def rows(self) -> Iterator[Pair | UserError]:
        streams = [read_rows(path) for path in self.files]
        for line, texts in enumerate(zip_longest(*streams), start=1):
            if None in texts:
                rest = [sum(1 for _ in stream) for stream in streams]
                counts = [line - (text is None) + more for text, more in zip(texts, rest, strict=True)]
                named = zip(self.files, counts, strict=True)
                received = ", ".join(f"{path} has {counted(count, 'line')}" for path, count in named)
                longer = self.files[counts.index(max(counts))]
                raise UserError(f"this line has no partner: {received}", where=f"{longer}:{line}")
            error = next((text for text in texts if isinstance(text, UserError)), None)
            yield error or Pair.of(line, cast(tuple[str, ...], texts))


class ParallelLines(CorpusFormat):
    """Line-aligned files. With corrections as `references`, they determine which source words are wrong."""

    class Config(CorpusConfig):
        """Files, which may be compressed (.gz, .xz). `source`: the sources, a line each. `target`: their targets.
        `references`: several files of targets instead; training uses the first.
        """

        source: Path | None = None
        target: Path | None = None
        references: tuple[Path, ...] = ()

        @model_validator(mode="after")
        def _complete(self) -> Self:
            if self.source is None or (self.target is None) != bool(self.references):
                raise ValueError("a corpus of several files needs a source, and a target or references")
            return self

    config: Config
    products = (PAIRS, ERRORS)

    @property
    def source(self) -> Path:
        assert self.config.source is not None
        return self.config.source

    @property
    def references(self) -> tuple[Path, ...]:
        return (self.config.target,) if self.config.target is not None else self.config.references

    def pairs(self) -> PairSource:
        return ParallelFiles(self.source, *self.references)

    def labelled(self, labels: Sequence[str] | None) -> list[Labelled]:
        return list(read_corrections(self.source, self.references, self.row_errors))

    def annotations(self, side: str) -> Path:
        return self.source if side == "source" else self.references[0]


def read_corrections(source: Path, references: Sequence[Path], row_errors: RowErrors) -> Iterator[Labelled]:
    """Read non-blank lines of words with corrections; each reference gives a labelling (see `wrong_words`).

    If a correction is blank but others are not, it gets the labels of the first correction with words.

    Raises:
        UserError: the files have different numbers of lines; or a line is not UTF-8 or too long to be compared, unless
            `row_errors` skips it.
    """
    for row in ParallelFiles(source, *references).rows():
        if isinstance(row, UserError):
            row_errors.add(row)
            continue
        words, others = tuple(row.source.split()), [text.split() for text in row.references]
        first = next((other for other in others if other), [])
        others = [other or first for other in others]
        if len(words) * max(map(len, others)) > MOST_COMPARISONS:
            what, received = "these words are too many to be compared", f"{len(words)} and {max(map(len, others))}"
            row_errors.add(UserError(what, where=f"{source}:{row.line}", received=received))
        elif words:
            yield Labelled(row.line, words, tuple(tuple(wrong_words(words, other)) for other in others))


# A cell quoted by a spreadsheet: in quotes, with each inner quote doubled.
QUOTED = re.compile(r'(?:^|\t)"(?:[^"\t]|"")*""(?:[^"\t]|"")*"(?:\t|$)')
_warn_once = cache(warn)


def quoted_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The cells of each row of a table with quoted cells, with the number of the row's first line.

    A cell in double quotes may contain tabs, line breaks and doubled quotes. Raises UserError if a quote is not closed.
    """
    reader, line = csv.reader((f"{line}\n" for line in read_lines(path)), delimiter="\t", strict=True), 1
    try:
        for cells in reader:
            yield line, cells
            line = reader.line_num + 1
    except csv.Error as error:
        raise UserError(f"this row is not quoted as spreadsheets quote ({error})", where=f"{path}:{line}") from error


class TabSeparated(PairSource):
    """A file with a pair per row, in columns separated by tabs. Quotes are text unless the table is `quoted`.

    Without `columns`, a row has exactly two columns. With them it may have more, but all rows equally many: a stray tab
    would silently shift the text into another column. If `columns` are names, the first row is a header.
    """

    def __init__(self, path: Path, columns: tuple[int, ...] | tuple[str, ...] | None, quoted: bool = False) -> None:
        super().__init__(str(path), (path,), (*(columns or ()), *(["quoted"] if quoted else [])))
        self.chosen, self.quoted = columns, quoted

    def cells(self) -> Iterator[tuple[int, list[str] | UserError]]:
        """The cells of each row, or the error of an unreadable row, with the number of its first line."""
        if self.quoted:
            yield from quoted_rows(self.files[0])
            return
        count = 0
        for line, row in enumerate(read_rows(self.files[0]), start=1):
            count += isinstance(row, str) and QUOTED.search(row) is not None
            yield line, row.split("\t") if isinstance(row, str) else row
        if count:
            what = f"{self.name}: the quotes of {counted(count, 'row')} that a spreadsheet has quoted are read as text"
            _warn_once(f"{what}; `quoted: true` in the recipe's corpus takes them away")

    def rows(self) -> Iterator[Pair | UserError]:
        rows = self.cells()
        expected, chosen = None if self.chosen else 2, self.chosen or (1, 2)
        if any(isinstance(column, str) for column in chosen):
            _, header = next(rows, (1, [""]))
            if isinstance(header, UserError):
                raise header
            if wrong := [name for name in chosen if header.count(str(name)) != 1]:
                what = "several columns have this name" if wrong[0] in header else "no column has this name"
                raise UserError(what, where=f"{self.files[0]}:1", received=wrong[0], allowed=header)
            chosen, expected = tuple(header.index(str(name)) + 1 for name in chosen), len(header)
        indices = [int(column) - 1 for column in chosen]
        least = max(indices) + 1
        for line, cells in rows:
            if isinstance(cells, UserError):
                yield cells
                continue
            if not any(map(str.strip, cells)):
                yield Pair.of(line, [""] * len(indices))
                continue
            if expected is None and len(cells) >= least:
                expected = len(cells)
            if len(cells) != expected:
                needed = f"{expected}" if expected else f"at least {least}"
                where = f"{self.files[0]}:{line}"
                if not self.quoted and sum(cell.count('"') for cell in cells) % 2:
                    needed += "; a cell of a spreadsheet may go over several lines with `quoted: true`"
                yield UserError("wrong number of columns", where=where, received=len(cells), allowed=needed)
                continue
            yield Pair.of(line, [cells[index] for index in indices])


class Tsv(CorpusFormat):
    """A table with a row per pair, per recording with its transcript, or per word with its label.

    The path of a recording is relative to the table's folder. A blank line ends a sentence of labelled words.
    """

    class Config(CorpusConfig):
        """`path`: the file. `columns`: the columns of the source and of one or more targets, or of a word and its
        label, as numbers from 1, or names in the first row; by default the first two. Metrics compare with all targets;
        training uses the first. `quoted`: the file was written by a spreadsheet, where a cell may be in double quotes,
        inner quotes are doubled, and tabs and line breaks within a cell become spaces.
        """

        path: Path
        columns: Annotated[tuple[str, ...] | tuple[Count, ...], Field(min_length=2)] | None = None
        quoted: bool = False

    config: Config
    products = (PAIRS, TAGS, ERRORS, RECORDINGS)

    def pairs(self) -> PairSource:
        return TabSeparated(self.config.path, self.config.columns, self.config.quoted)

    def labelled(self, labels: Sequence[str] | None) -> list[Labelled]:
        columns = self.config.columns or (1, 2)
        if self.config.quoted:
            raise UserError("words are never quoted", where=f"{self.where}.quoted", received="true", allowed="false")
        if any(isinstance(column, str) for column in columns) or len(columns) != 2:
            where = f"{self.where}.columns"
            raise UserError("columns of labelled words are two numbers", where=where, received=columns)
        return list(read_columns(self.config.path, cast(tuple[int, int], columns), labels, self.row_errors))

    def recordings(self) -> PairSource:
        return Manifest(self.pairs())


class RecordsConfig(CorpusConfig):
    """`columns`: the fields of the source and of one or more targets; dots access nested fields. Metrics compare with
    all targets; training uses the first.
    """

    columns: Annotated[tuple[str, ...], Field(min_length=2)]


class JsonLines(PairSource):
    """A file with a JSON object per line. `columns` are the fields of source and target; dots access nested fields."""

    def __init__(self, path: Path, columns: tuple[str, ...]) -> None:
        super().__init__(str(path), (path,), columns)
        self.fields = columns

    def rows(self) -> Iterator[Pair | UserError]:
        for line, text in enumerate(read_rows(self.files[0]), start=1):
            where = f"{self.files[0]}:{line}"
            if isinstance(text, UserError):
                yield text
            elif not text.strip():
                yield Pair.of(line, [""] * len(self.fields))
            else:
                try:
                    record = json.loads(text, object_pairs_hook=_unique)
                except (ValueError, RecursionError) as error:
                    yield UserError(f"this line is not JSON ({error})", where=where)
                else:
                    yield _pair_of(record, self.fields, line, where)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The fields of an object. Raises ValueError if a field occurs twice."""
    record = dict(pairs)
    if len(record) < len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise ValueError(f"the field {twice!r} is there twice")
    return record


class JsonLinesFile(CorpusFormat):
    """JSON lines of pairs, or of recordings with transcripts. Paths of recordings are relative to the file's folder."""

    class Config(RecordsConfig):
        """`path`: the file."""

        path: Path

    config: Config
    products = (PAIRS, RECORDINGS)

    def pairs(self) -> PairSource:
        return JsonLines(self.config.path, self.config.columns)

    def recordings(self) -> PairSource:
        return Manifest(self.pairs())


class HubDataSet(PairSource):
    """One split of a data set of the Hugging Face hub, or of a local folder in its format."""

    def __init__(self, name: str, records: Any, split: str | None, columns: tuple[str, ...]) -> None:
        # The content is in Arrow files; a data set in memory has none.
        files = [Path(file["filename"]) for file in records.cache_files]
        super().__init__(f"{name} {split}", files, columns)
        self.records, self.split, self.fields = records, split, columns

    def rows(self) -> Iterator[Pair | UserError]:
        for line, record in enumerate(self.records, start=1):
            yield _pair_of(record, self.fields, line, f"{self.name}:{line}")

    def fingerprint(self) -> str:
        content = [] if self.files else [json.dumps(pair) for pair in self]
        return content_hash([super().fingerprint(), str(self.split), str(len(self.records)), *content])


class Hub(CorpusFormat):
    """A data set of the Hugging Face hub, read with the extra [hub]."""

    class Config(RecordsConfig):
        """`name`: a data set of the hub, or a folder. `configuration`, `split`: the part that is read."""

        name: str
        configuration: str | None = None
        split: str | None = None

    config: Config
    products = (PAIRS,)

    def pairs(self) -> PairSource:
        config = self.config
        return HubDataSet(config.name, self._rows(), config.split, config.columns)

    def annotations(self, side: str) -> Path:
        parts = filter(None, (self.config.name, self.config.configuration, self.config.split))
        return Path(f"{cache_folder() / 'parses' / '-'.join(parts)}.{side}")

    def _rows(self) -> Any:
        name, split, where = self.config.name, self.config.split, self.key("name")
        try:
            import datasets
        except ImportError as error:
            raise not_installed(f"the data set {name}", ["datasets"], "hub", where) from error
        if not exists(Path(name), "folder"):
            check_on_hub(name, where, "datasets")
        try:
            with files_of_bounded_size():
                rows = datasets.load_dataset(name, self.config.configuration, split=split, streaming=False)
        except Exception as error:  # network, name, configuration and split errors have various classes
            raise UserError(f"cannot load this data set ({error})", where=where, received=name) from error
        if isinstance(rows, Mapping):
            key = f"{self.where}.split"
            raise UserError("say which split of the data set to read", where=key, allowed=list(rows))
        return rows


def _pair_of(record: Any, fields: Sequence[str], line: int, where: str) -> Pair | UserError:
    try:
        return Pair.of(line, [field_of(record, name, where) for name in fields])
    except UserError as error:
        return error


def field_of(record: Any, name: str, where: str) -> str:
    """The text of the field `name`, where dots access nested mappings. Raises UserError if there is no text."""
    value = record
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    if not isinstance(value, str):
        raise UserError(f"there is no text in a field {name}", where=where, received=record)
    check_characters(value, where, f"field {name}")
    return value
