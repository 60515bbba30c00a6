"""Standard input and output of the commands: lines as they arrive, and results that a terminal can show."""

import os
import select
import stat
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TypeVar

from headway.cli import console
from headway.core.errors import UserError, printable
from headway.core.files import whole_file
from headway.core.log import say

Item = TypeVar("Item")

CHUNK = 1 << 16  # bytes per read: the capacity of a pipe
GRACE = 0.02  # seconds within which a program that writes many lines writes the next


class StandardInput:
    """The lines of standard input without line ends, as they arrive; an error for each line that is not UTF-8.

    Attributes:
        typed: whether standard input is a terminal; the user then gets a prompt for each line.

    Raises:
        UserError: standard input is closed; during iteration, a line is too long.
    """

    def __init__(self) -> None:
        if sys.stdin is None:
            raise UserError("standard input is closed", allowed="lines from a file, a pipe or a terminal")
        self._file: Any = sys.stdin.buffer
        self._complete, self._begun = deque[bytes](), bytearray()
        self._ended = False
        self.typed = sys.stdin.isatty()
        if self.typed:
            say("reading lines as they are typed; Ctrl-D ends")

    def __iter__(self) -> Iterator[str | UserError]:
        from headway.formats.lines import BYTE_ORDER_MARK, text_of

        number = 0
        while self._next_is_there(None):
            number += 1
            raw = self._complete.popleft().removeprefix(BYTE_ORDER_MARK if number == 1 else b"").removesuffix(b"\r")
            yield text_of(raw, "standard input", number)

    def waits(self) -> bool:
        """Whether the input has not ended, but no further line arrived for a moment."""
        return not self._next_is_there(GRACE) and not self._ended

    def _next_is_there(self, seconds: float | None) -> bool:
        """Whether there is a next line, after waiting `seconds` for it, or without limit if None."""
        while not self._complete and not self._ended:
            if seconds is not None and not _is_readable(self._file, seconds):
                return False
            waits = self.typed and seconds is None
            if waits and not self._begun:
                console.prompt("> ")
            self._read()
            if waits and self._ended:
                console.prompt("\n")
        return bool(self._complete)

    def _read(self) -> None:
        from headway.formats.lines import BYTE_ORDER_MARK, LONGEST_LINE

        chunk = self._file.read1(CHUNK)
        *ended, rest = chunk.split(b"\n")
        if ended:
            self._complete.append(bytes(self._begun + ended[0]))
            self._complete.extend(ended[1:])
            self._begun.clear()
        self._begun += rest
        # A line that is too long, without its byte order mark and line end, is the last.
        self._ended = not chunk or len(self._begun) > LONGEST_LINE + len(BYTE_ORDER_MARK + b"\r")
        if self._ended and self._begun:
            self._complete.append(bytes(self._begun))


def _is_readable(file: Any, seconds: float) -> bool:
    """Whether a file can be read within `seconds`. On Windows, only regular files count as readable."""
    try:
        return bool(select.select([file], [], [], seconds)[0])
    except (OSError, ValueError):
        with suppress(OSError, ValueError):
            return stat.S_ISREG(os.fstat(file.fileno()).st_mode)
        return True


def windows(items: Iterable[Item], size: int, source: StandardInput | None = None) -> Iterator[list[Item]]:
    """The items in lists of `size`.

    Args:
        items: the items, which are made from the lines of `source` if it is not None.
        size: of the lists; the last list may be shorter.
        source: lists also end if no further line is waiting here, so that a waiting user gets an answer.

    Raises:
        UserError: as `items` does, after the list of the items before.
    """
    window: list[Item] = []
    try:
        for item in items:
            window.append(item)
            if len(window) == size or (source is not None and source.waits()):
                yield window
                window = []
    except UserError:
        if window:
            yield window
        raise
    if window:
        yield window


def write(text: str, *, end: str = "\n", coloured: bool = False) -> None:
    """Write results to standard output. For a terminal, control characters are made visible.

    Progress bars are removed from the terminal first.

    Args:
        text: the results.
        end: is written after them.
        coloured: the text has headway's own colours, and is otherwise safe to print.
    """
    if sys.stdout.isatty():
        console.clear()
        text = text if coloured else printable(text)
    sys.stdout.write(text + end)


@contextmanager
def output_to(path: Path | None) -> Iterator[None]:
    """Within this context results go to a file, which appears at the end. None stands for standard output."""
    if path is None:
        yield
        return
    with whole_file(path) as file:
        text = TextIOWrapper(file, encoding="utf-8", errors="backslashreplace", newline="\n")
        try:
            with redirect_stdout(text):
                yield
        finally:
            text.detach()  # flushes the buffer, and leaves the file open


def prepare_output() -> None:
    """Make standard output and error UTF-8, whatever the locale; unpaired surrogates are escaped.

    Lines end in a line feed on every system.
    """
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace", newline="\n")
    if isinstance(sys.stderr, TextIOWrapper) and sys.stderr.encoding.lower() != "utf-8":
        sys.stderr.reconfigure(encoding="utf-8", errors="backslashreplace")
