"""Characters that some program takes for the end of a line. Inputs and outputs never contain them."""

import re

# As in str.splitlines: LF, VT, FF, CR, FS, GS, RS, NEL, and Unicode's line and paragraph separators.
LINE_ENDS = "\n\x0b\x0c\r\x1c\x1d\x1e\x85\u2028\u2029"
_ANY = re.compile(f"[{LINE_ENDS}]")
_SPACES = str.maketrans(dict.fromkeys(LINE_ENDS, " "))


def has_line_end(text: str) -> bool:
    return _ANY.search(text) is not None


def in_one_cell(text: str) -> str:
    """`on_one_line`, with tabs replaced by spaces as well, so that the text fits into a tab-separated column."""
    return on_one_line(text).replace("\t", " ")


def on_one_line(text: str) -> str:
    """Replace each character that ends a line with a space, keeping the length of the text."""
    return text.translate(_SPACES) if _ANY.search(text) is not None else text
