"""Tables of results, built once and written as text, JSON, CSV, Markdown, HTML or LaTeX.

A cell holds an unformatted value: the column defines how numbers are printed, and JSON and CSV have all digits.
"""

import csv
import html
import io
import math
import shutil
import sys
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from headway.core.errors import not_installed

if TYPE_CHECKING:
    from pandas import DataFrame

Align = Literal["left", "right"]

LATEX = str.maketrans(
    {
        **{char: f"\\{char}" for char in "&%$#_{}"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "±": r"$\pm$",
        "×": r"$\times$",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
    }
)


class Spread(NamedTuple):
    """A value with half the width of its confidence interval, or its standard deviation; printed as `12.3 ± 0.4`."""

    value: float
    spread: float


Cell = str | int | float | bool | Spread | None
NUMBERS = (int, float, Spread)


@dataclass(frozen=True)
class Column:
    """A column: its name and the format of its cells.

    Args:
        name: the heading.
        unit: the unit of the numbers, shown in brackets after the name.
        format: the format specification of floats, such as `.2f`. With a `,`, digits of integers are grouped, too.
        align: the alignment; by default numbers are aligned right and texts left.
    """

    name: str
    unit: str = ""
    format: str = ""
    align: Align | None = None

    @property
    def heading(self) -> str:
        return f"{self.name} ({self.unit})" if self.unit else self.name

    def show(self, cell: Cell) -> str:
        """The printed cell; an empty string for None."""
        if cell is None:
            return ""
        if isinstance(cell, bool):
            return "yes" if cell else "no"
        if isinstance(cell, Spread):
            return f"{cell.value:{self.format}} ± {cell.spread:{self.format}}"
        if isinstance(cell, int):
            return f"{cell:,}" if "," in self.format else str(cell)
        return f"{cell:{self.format}}" if isinstance(cell, float) else cell


class Table:
    """A table with named columns.

    Args:
        columns: columns, or their names alone.
        rows: the rows, with one cell for each column.
        title: the text above the table.
        notes: the lines below the table.

    Raises:
        ValueError: a row has another length.
    """

    def __init__(
        self,
        columns: Sequence[Column | str],
        rows: Sequence[Sequence[Cell]],
        *,
        title: str = "",
        notes: Sequence[str] = (),
    ) -> None:
        self.columns = tuple(Column(column) if isinstance(column, str) else column for column in columns)
        self.rows = tuple(map(tuple, rows))
        self.title, self.notes = title, tuple(notes)
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"a row of {len(row)} cells in a table of {len(self.columns)} columns: {row}")

    def __repr__(self) -> str:
        return f"Table({self.title!r}, {len(self.rows)} rows, {len(self.columns)} columns)"

    def _repr_html_(self) -> str:
        return self.html()

    def headings(self) -> list[str]:
        return [column.heading for column in self.columns]

    def cells(self) -> list[list[str]]:
        """All rows as printed."""
        return [[column.show(cell) for column, cell in zip(self.columns, row, strict=True)] for row in self.rows]

    def aligns(self) -> list[Align]:
        """The alignment of each column."""
        sides: list[Align] = []
        for index, column in enumerate(self.columns):
            cells = [row[index] for row in self.rows if row[index] not in (None, "")]
            numbers = cells and all(isinstance(cell, NUMBERS) and not isinstance(cell, bool) for cell in cells)
            sides.append(column.align or ("right" if numbers else "left"))
        return sides

    def text(self) -> str:
        """The table as text: title, headings, rows and notes, with two blanks between columns.

        On a narrow terminal, columns that do not fit are printed below the others, each time after the first column.
        """
        printed, sides = [self.headings(), *self.cells()], self.aligns()
        widths = [max(map(display_width, column)) for column in zip(*printed, strict=True)]
        room = shutil.get_terminal_size().columns if sys.stdout is not None and sys.stdout.isatty() else math.inf
        blocks = [[0]] if widths else [[]]
        for column in range(1, len(widths)):
            if sum(widths[each] + 2 for each in blocks[-1]) + widths[column] > room and len(blocks[-1]) > 1:
                blocks.append([0])
            blocks[-1].append(column)
        lines = [
            "  ".join(_padded(cells[column], widths[column], sides[column]) for column in block).rstrip()
            for block in blocks
            for cells in printed
        ]
        return "\n".join([*([self.title] if self.title else []), *lines, *self.notes])

    def to_json(self) -> dict[str, Any]:
        """Title, columns, rows and notes as a JSON object. Values that are not finite become None."""
        columns = [
            {name: value for name, value in vars(column).items() if value or name == "name"} for column in self.columns
        ]
        rows = [[_json(cell) for cell in row] for row in self.rows]
        return {"title": self.title, "columns": columns, "rows": rows, "notes": list(self.notes)}

    @classmethod
    def from_json(cls, values: Any) -> "Table":
        """The inverse of `to_json`. Raises ValueError if the values are not those of a table."""
        try:
            columns = [Column(**column) for column in values["columns"]]
            rows = [[Spread(**cell) if isinstance(cell, dict) else cell for cell in row] for row in values["rows"]]
            return cls(columns, rows, title=values.get("title", ""), notes=values.get("notes", ()))
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"this is no table ({type(error).__name__}: {error})") from error

    def csv(self, digits: int | None = None) -> str:
        """The names of the columns and the rows as CSV, without title and notes.

        Spreads have a separate column.

        Args:
            digits: the number of significant digits of floats; by default enough to restore them exactly.
        """
        names, rows = self._flat()
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        for row in rows:
            writer.writerow(f"{cell:.{digits}g}" if isinstance(cell, float) and digits else cell for cell in row)
        return file.getvalue()

    def _flat(self) -> tuple[list[str], list[list[Cell]]]:
        """The names of the columns and the rows, with separate columns for spreads."""
        spread = [any(isinstance(row[index], Spread) for row in self.rows) for index in range(len(self.columns))]
        names = [[column.name, f"{column.name} ±"][: 1 + two] for column, two in zip(self.columns, spread, strict=True)]
        rows: list[list[Cell]] = []
        for row in self.rows:
            pairs = [cell if isinstance(cell, Spread) else (cell, None) for cell in row]
            rows.append([part for pair, two in zip(pairs, spread, strict=True) for part in pair[: 1 + two]])
        return [name for pair in names for name in pair], rows

    def to_pandas(self) -> "DataFrame":
        """The rows as a data frame. Spreads have a separate column.

        Raises:
            UserError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError as error:
            raise not_installed("this", ["pandas"], "pandas", "to_pandas") from error
        names, rows = self._flat()
        return pandas.DataFrame(rows, columns=names)

    def markdown(self) -> str:
        """A table in GitHub's Markdown, with its title in bold above."""
        rules = ["---:" if side == "right" else "---" for side in self.aligns()]
        lines = [_line(self.headings(), _markdown), _line(rules, str), *(_line(row, _markdown) for row in self.cells())]
        above = [f"**{_markdown(self.title)}**", ""] if self.title else []
        return "\n".join([*above, *lines, *(line for note in self.notes for line in ("", _markdown(note)))]) + "\n"

    def html(self) -> str:
        """A `table` element with its title as caption; numbers have the class `number`. All text is escaped."""
        classes = [' class="number"' if side == "right" else "" for side in self.aligns()]
        caption = f"<caption>{html.escape(self.title)}</caption>\n" if self.title else ""
        head = "".join(
            f'<th scope="col"{kind}>{html.escape(name)}</th>'
            for name, kind in zip(self.headings(), classes, strict=True)
        )
        rows = [
            "<tr>" + "".join(f"<td{kind}>{html.escape(c)}</td>" for c, kind in zip(row, classes, strict=True)) + "</tr>"
            for row in self.cells()
        ]
        body = "\n".join([f"<thead><tr>{head}</tr></thead>", "<tbody>", *rows, "</tbody>"])
        notes = "".join(f"\n<p>{html.escape(note)}</p>" for note in self.notes)
        return f"<table>\n{caption}{body}\n</table>{notes}"

    def latex(self) -> str:
        """A `tabular` with rules of the booktabs package, without a caption."""
        rows = [" & ".join(cell.translate(LATEX) for cell in row) + r" \\" for row in [self.headings(), *self.cells()]]
        sides = "".join(side[0] for side in self.aligns())
        begin, end = rf"\begin{{tabular}}{{{sides}}}", r"\end{tabular}"
        return "\n".join([begin, r"\toprule", rows[0], r"\midrule", *rows[1:], r"\bottomrule", end]) + "\n"


def display_width(text: str) -> int:
    """The number of terminal columns of a text. Wide characters count two columns, combining characters none."""
    widths = {"W": 2, "F": 2}
    return sum(
        0 if unicodedata.category(char) in ("Mn", "Me", "Cf") else widths.get(unicodedata.east_asian_width(char), 1)
        for char in text
    )


def _padded(cell: str, width: int, side: Align) -> str:
    blanks = " " * (width - display_width(cell))
    return blanks + cell if side == "right" else cell + blanks


def _json(cell: Cell) -> Any:
    if isinstance(cell, Spread):
        return {"value": _json(cell.value), "spread": _json(cell.spread)}
    return None if isinstance(cell, float) and not math.isfinite(cell) else cell


def _line(cells: Sequence[str], escape: Callable[[str], str]) -> str:
    return f"| {' | '.join(map(escape, cells))} |"


def _markdown(text: str) -> str:
    for char in "\\`*_|<":
        text = text.replace(char, f"\\{char}")
    return text.replace("\n", " ")
