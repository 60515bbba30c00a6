"""Characters that end a line for some program or other: no input and no output has one within it."""

import re

# Those of str.splitlines: LF, VT, FF, CR, FS, GS, RS, NEL, and the separators of lines and paragraphs.
LINE_ENDS = "\n\x0b\x0c\r\x1c\x1d\x1e\x85\u2028\u2029"
_ANY = re.compile(f"[{LINE_ENDS}]")
_SPACES = str.maketrans(dict.fromkeys(LINE_ENDS, " "))


def has_line_end(text: str) -> bool:
    """Whether there is a character in a text that ends a line."""
    return _ANY.search(text) is not None


def in_one_cell(text: str) -> str:
    """The text as a cell of lines whose columns are separated by tabs: `on_one_line`, with spaces for tabs as well."""
    return on_one_line(text).replace("\t", " ")


def on_one_line(text: str) -> str:
    """The text with a space in the place of each character that ends a line; it is as long as before."""
    return text.translate(_SPACES) if _ANY.search(text) is not None else text
