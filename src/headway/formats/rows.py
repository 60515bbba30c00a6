"""Rows of a table, or JSON objects, where lines of text are wanted: each line would be taken for one text."""

import json
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

from headway.errors import UserError

TABS, OBJECTS = "rows with tabs", "JSON objects"
REMEDIES = {TABS: "`cut -f{} FILE`, which takes one column", OBJECTS: "`jq -r .FIELD FILE`, which takes one field"}
SIGNS = {TABS: frozenset("\t"), OBJECTS: frozenset("{}")}  # what such lines are not without


def row_kind(line: str) -> str | None:
    """`TABS` or `OBJECTS`; None for a line of text."""
    if line.lstrip().startswith("{"):
        try:
            if isinstance(json.loads(line), dict):
                return OBJECTS
        except (ValueError, RecursionError):
            pass
    return TABS if "\t" in line else None


def rows_kind(lines: Iterable[str]) -> str | None:
    """The kind of the rows where all lines are of one kind, blank ones and comments of CoNLL-U aside; else None."""
    kind = None
    for line in lines:
        if not line.strip() or line.startswith("#"):
            continue
        if (of_line := row_kind(line)) is None or of_line != (kind or of_line):
            return None
        kind = of_line
    return kind


def check_texts(lines: Sequence[str], learned: AbstractSet[str], where: str, column: int = 1) -> None:
    """Raise UserError where all lines are rows, unless the texts of training have the characters of such rows.

    Args:
        lines: what is read as texts.
        learned: the characters of the texts of training.
        where: the place of the first line, for the message.
        column: the one of rows with tabs that has the texts, as a rule.
    """
    kind = rows_kind(lines)
    if kind is not None and not learned >= SIGNS[kind]:
        what = f"lines of text are read here, and these are {kind}"
        received = next(filter(row_kind, lines))
        raise UserError(what, where=where, received=received, allowed=REMEDIES[kind].format(column))
