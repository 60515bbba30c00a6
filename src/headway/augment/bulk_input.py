"""The lines that a teacher reads: a file, the sources of a run's training data, or a column of a table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.augment.teacher import DecodedLine
from headway.core.errors import UserError, option
from headway.core.files import sha256
from headway.formats.lines import TextFile, check_file, read_lines
from headway.formats.pair_formats import TabSeparated
from headway.formats.pairs import SideLines


@dataclass(frozen=True)
class BulkInput:
    """The lines to decode, which can be iterated repeatedly.

    Attributes:
        fingerprint: a hash of the content.
        record: where the lines are from, for the manifest.
        file: the file of the lines, for messages.
        partners: the texts that the corpus pairs with the outputs, if they are not the lines themselves.
    """

    lines: Iterable[str]
    fingerprint: str
    record: dict[str, Any]
    file: Path | None = None
    partners: Iterable[str] | None = None

    def paired(self, lines: Iterable[DecodedLine]) -> Iterable[DecodedLine]:
        """The decoded lines, with their partners instead of the text that the teacher read."""
        if self.partners is None:
            return lines
        return (line._replace(read=partner) for line, partner in zip(lines, self.partners, strict=True))


def lines_of_file(path: Path) -> BulkInput:
    """The lines of a text file. Raises UserError if the file is missing or empty."""
    check_file(path, option("input"))
    return BulkInput(TextFile(path), sha256(path), {"files": [str(path.absolute())]}, path)


def lines_of_column(path: Path, column: str) -> BulkInput:
    """The lines of a column of a tab-separated table. The first other column has their partners.

    Args:
        path: the table.
        column: the number of the column, from 1, or its name in the first row.

    Raises:
        UserError: the table is missing or empty, or lacks the column.
    """
    check_file(path, option("input"))
    header = next(iter(read_lines(path))).split("\t")
    named = not column.isdecimal()
    names: list[str] = header if named else [str(number) for number in range(1, len(header) + 1)]
    if len(names) < 2 or column not in names:
        what = "the table has no such column, or no other column"
        raise UserError(what, where=option("through"), received=column, allowed=names)
    partner = next(name for name in names if name != column)
    columns = (partner, column) if named else (int(partner), int(column))
    table = TabSeparated(path, columns)
    record = {"files": [str(path.absolute())], "through": column}
    return BulkInput(SideLines(table, "target"), table.fingerprint(), record, None, SideLines(table, "source"))
