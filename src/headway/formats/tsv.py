"""Tables whose columns are separated by tabs: pairs, manifests of recordings, or words with labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Self, cast

from pydantic import Field, model_validator

from headway.errors import UserError
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
)
from headway.formats.labelled_words import read_columns
from headway.formats.lines import read_rows
from headway.formats.recordings import Manifest


class TabSeparated(PairSource):
    """A file with a pair a row, in columns that tabs separate. Quotes mean nothing special.

    Without `columns` a row has exactly two. With them it may have more, but all rows equally many: a stray tab would
    silently shift the text into another column. Where `columns` are names, the first row is not a pair but holds them.
    """

    def __init__(self, path: Path, columns: tuple[int, ...] | tuple[str, ...] | None) -> None:
        super().__init__(str(path), (path,), columns or ())

    def rows(self) -> Iterator[Pair | UserError]:
        rows = enumerate(read_rows(self.files[0]), start=1)
        expected, chosen = None if self.columns else 2, self.columns or (1, 2)
        if any(isinstance(column, str) for column in chosen):
            _, first = next(rows, (1, ""))
            if isinstance(first, UserError):
                raise first
            header = first.split("\t")
            chosen, expected = tuple(self._number(str(name), header) for name in chosen), len(header)
        indices = [int(column) - 1 for column in chosen]
        least = max(indices) + 1
        for line, row in rows:
            if isinstance(row, UserError):
                yield row
                continue
            if not row.strip():
                yield Pair.of(line, [""] * len(indices))
                continue
            cells = row.split("\t")
            if expected is None and len(cells) >= least:
                expected = len(cells)
            if len(cells) != expected:
                needed = f"{expected}" if expected else f"at least {least}"
                where = f"{self.files[0]}:{line}"
                yield UserError("wrong number of columns", where=where, received=len(cells), allowed=needed)
                continue
            yield Pair.of(line, [cells[index] for index in indices])

    def _number(self, name: str, header: list[str]) -> int:
        """The number of the column of this name, from 1."""
        if header.count(name) != 1:
            what = "several columns have this name" if name in header else "no column has this name"
            raise UserError(what, where=f"{self.files[0]}:1", received=name, allowed=header)
        return header.index(name) + 1


class Tsv(CorpusFormat):
    """A table: a pair a row, a recording with its transcript a row, or a word with its label a row.

    The path of a recording is relative to the table's folder. A blank line ends a sentence of labelled words.
    """

    class Config(CorpusConfig):
        """`columns` are those of the source and of one or more targets, or of a word and its label.

        They are numbers from 1, or names that stand in the first row; by default the first two. Metrics compare with
        all targets, training learns the first.
        """

        path: Path
        columns: tuple[str, ...] | tuple[Annotated[int, Field(le=10**9)], ...] | None = None

        @model_validator(mode="after")
        def _enough_columns(self) -> Self:
            if self.columns is not None and len(self.columns) < 2:
                raise ValueError("columns are those of the source and of one or more targets")
            if any(isinstance(column, int) and column < 1 for column in self.columns or ()):
                raise ValueError("columns of a TSV are numbers, counted from 1, or names of its first row")
            return self

    config: Config
    products = (PAIRS, TAGS, ERRORS, RECORDINGS)

    def pairs(self) -> PairSource:
        return TabSeparated(self.config.path, self.config.columns)

    def labelled(self, labels: Sequence[str] | None) -> list[Labelled]:
        columns = self.config.columns or (1, 2)
        if any(isinstance(column, str) for column in columns) or len(columns) != 2:
            where = f"{self.where}.columns"
            raise UserError("columns of labelled words are two numbers", where=where, received=columns)
        return list(read_columns(self.config.path, cast(tuple[int, int], columns), labels, self.row_errors))

    def recordings(self) -> PairSource:
        return Manifest(self.pairs())
