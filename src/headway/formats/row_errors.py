"""Errors in the rows of a corpus: each ends the reading, or its row is left out and counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from headway.errors import UserError

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
    """

    broken: Broken = "error"
    shown: int | None = SHOWN
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
            raise error
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
        errors = tuple(_without_folder(error, several) for error in self.errors)
        return RowReport(self.count, errors, self.line_ends, tuple(self.lines))


def _without_folder(error: UserError, named: bool) -> str:
    """The message of an error with the line, and the name of the file where it is to be named."""
    file, _, line = (error.where or "").rpartition(":")
    name = f"{Path(file).name}:{line}" if named else f"line {line}"
    return f"{name}: {str(error).removeprefix(f'{error.where}: ')}"
