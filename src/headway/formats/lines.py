"""Lines of text files, plain or compressed. Every file of a corpus is opened here.

`check_texts` recognises tables and JSON lines that are passed as plain text, where each row would be read as a text.
"""

import gzip
import json
import lzma
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from contextvars import ContextVar
from io import BytesIO
from pathlib import Path
from typing import IO, Any, cast

from headway.core.errors import UserError
from headway.core.files import exists
from headway.core.system import STANDARD_INPUT

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# Bytes: a line is held in memory, and a small compressed file may contain a line of any length.
LONGEST_LINE = 1 << 22
LATIN_1_WORD = re.compile(rb"[A-Za-z][\xc0-\xff][A-Za-z]|[A-Za-z]{2}[\xc0-\xff](?![\x80-\xff])")  # caf\xe9
LONGEST_BLOCK = 100_000  # lines between blank lines
CHUNK = 1 << 16
# The first bytes of files that are not text. Compressed files are read if their names end in .gz or .xz.
KINDS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16", b"PK\x03\x04": "a zip archive", b"BZh": "a .bz2 file"}
KINDS |= {b"\x28\xb5\x2f\xfd": "a .zst file", b"\x04\x22\x4d\x18": "a .lz4 file"}
KINDS |= {b"\x1f\x8b": "a .gz file", b"\xfd7zXZ": "an .xz file"}

_kept: ContextVar[dict[Path, bytes] | None] = ContextVar("kept pipes", default=None)
_file: ContextVar[Path | None] = ContextVar("file of the lines", default=None)


class ReadingPosition:
    """The number of the line, from 1, up to which a file has been read."""

    line = 0


@contextmanager
def lines_of(file: Path | None) -> Iterator[None]:
    """A context in which input lines are attributed to `file` in messages, or to no file if it is None."""
    token = _file.set(file)
    try:
        yield
    finally:
        _file.reset(token)


def line_place(number: int) -> str:
    """The location of an input line, for messages."""
    return f"line {number}" if (file := _file.get()) is None else f"{file}:{number}"


def check_file(path: Path, where: str) -> None:
    """Raise UserError, with the recipe key `where`, unless the file exists and is not empty."""
    check_there(path, where)
    if next(read_rows(path), None) is None:
        raise UserError("this file is empty", where=where, received=str(path))


def check_there(path: Path, where: str) -> None:
    """Raise UserError, with the recipe key `where`, unless the file exists."""
    if not exists(path, "file"):
        what = "this is not a file that can be read again and again" if exists(path) else "there is no such file"
        raise UserError(what, where=where, received=str(path), allowed=STANDARD_INPUT if str(path) == "-" else None)


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a text file, plain, .gz or .xz, without line ends.

    Only \\n and \\r\\n end a line, so that rarer separators (U+2028, U+0085, form feed) cannot shift an alignment. A
    byte order mark at the beginning is skipped, and the last line need not have a line end.

    Raises:
        UserError: with file and line: the file cannot be read, is damaged or is not UTF-8, or a line has more than
            `LONGEST_LINE` bytes.
    """
    for row in read_rows(path):
        if isinstance(row, UserError):
            raise row
        yield row


class TextFile(Iterable[Any]):
    """The lines of a text file as an iterable that reads the file anew each time, with `read_lines` or `read_rows`."""

    def __init__(self, path: Path, read: Callable[[Path], Iterator[Any]] | None = None) -> None:
        self.path, self.read = path, read or read_lines

    def __iter__(self) -> Iterator[Any]:
        return self.read(self.path)


def read_rows(path: Path) -> Iterator[str | UserError]:
    """`read_lines`, but yielding the error for a line that is not UTF-8, so that the lines after it can be read."""
    position = ReadingPosition()
    with opened(path, position) as file:
        while raw := file.readline(LONGEST_LINE + 2):
            position.line += 1
            line = raw.removeprefix(BYTE_ORDER_MARK) if position.line == 1 else raw
            if line.endswith(b"\n"):
                line = line[:-2] if line.endswith(b"\r\n") else line[:-1]
            elif not line:  # only a byte order mark
                return
            yield text_of(line, str(path), position.line)


def text_of(line: bytes, file: str, number: int) -> str | UserError:
    """Decode a line, or return the error if it is not UTF-8.

    Raises UserError if the line is too long: its tokens would take 60 to 100 times its memory.
    """
    where = f"{file}:{number}"
    if len(line) > LONGEST_LINE:
        raise UserError(f"this line is longer than {LONGEST_LINE:,} bytes", where=where)
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        what = f"invalid UTF-8: byte 0x{line[error.start]:02x} at byte {error.start + 1} of the line"
        seen = [kind for mark, kind in KINDS.items() if number == 1 and line.startswith(mark)]
        if not seen and LATIN_1_WORD.search(line):
            seen = ["Latin-1, which `iconv -f latin1 -t utf-8` converts"]
        return UserError("; this seems to be ".join([what, *seen]), where=where)


@contextmanager
def opened(path: Path, position: ReadingPosition) -> Iterator[IO[bytes]]:
    """Open a file, decompressed if its name ends in .gz or .xz.

    Args:
        path: the file.
        position: kept up to date by the reader, for the line number in errors.

    Raises:
        UserError: the file cannot be read, or its compression is damaged; also while it is being read.
    """
    try:
        with _open(path) as file:
            yield file
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        what = f"this compressed file is damaged or cut off ({error})"
        raise UserError(what, where=f"{path}:{position.line + 1}") from error
    except OSError as error:
        allowed = STANDARD_INPUT if str(path) == "-" else None
        what = f"cannot read this file ({error.strerror or error})"
        raise UserError(what, where=str(path), allowed=allowed) from error


@contextmanager
def kept_pipes() -> Iterator[None]:
    """A context in which the content of pipes is kept in memory, so that they can be read again like files."""
    token = _kept.set({}) if _kept.get() is None else None
    try:
        yield
    finally:
        if token is not None:
            _kept.reset(token)


def _open(path: Path) -> IO[bytes]:
    kept = _kept.get()
    file: Path | BytesIO = path
    if kept is not None and not path.is_file() and not path.is_dir():
        if path not in kept:
            kept[path] = path.read_bytes()
        file = BytesIO(kept[path])
    if path.suffix == ".gz":
        return cast(IO[bytes], gzip.open(file))
    if path.suffix == ".xz":
        return lzma.open(file)
    return file.open("rb") if isinstance(file, Path) else file


def blocks(path: Path) -> Iterator[list[tuple[int, str]]]:
    """The blocks of lines between blank lines, with line numbers.

    Raises:
        UserError: as `read_lines`; or a block has more than `LONGEST_BLOCK` lines.
    """
    block = list[tuple[int, str]]()
    for line, row in enumerate(read_lines(path), start=1):
        if not row.strip():
            if block:
                yield block
                block = []
            continue
        if len(block) == LONGEST_BLOCK:
            what = f"there are more than {LONGEST_BLOCK:,} lines without a blank one between them"
            raise UserError(what, where=f"{path}:{block[0][0]}")
        block.append((line, row))
    if block:
        yield block


TABS, OBJECTS = "rows with tabs", "JSON objects"
REMEDIES = {TABS: "`cut -f{} FILE`, which takes one column", OBJECTS: "`jq -r .FIELD FILE`, which takes one field"}
WORDS = """`cut -f{} FILE | awk -v RS= '{{gsub("\\n", " "); print}}'`, which makes a line of each sentence"""
SIGNS = {TABS: frozenset("\t"), OBJECTS: frozenset("{}")}  # characters that such lines always contain


def row_kind(line: str) -> str | None:
    """`TABS` or `OBJECTS`, or None for a line of text."""
    if line.lstrip().startswith("{"):
        try:
            if isinstance(json.loads(line), dict):
                return OBJECTS
        except (ValueError, RecursionError):
            pass
    return TABS if "\t" in line else None


def rows_kind(lines: Iterable[str]) -> str | None:
    """The kind of the rows if all have the same kind, otherwise None. Ignores blank lines and CoNLL-U comments."""
    kind = None
    for line in lines:
        if not line.strip() or line.startswith("#"):
            continue
        if (of_line := row_kind(line)) is None or of_line != (kind or of_line):
            return None
        kind = of_line
    return kind


def check_texts(
    lines: Sequence[str], learned: AbstractSet[str], where: str, column: int = 1, rows_of: str = REMEDIES[TABS]
) -> None:
    """Raise UserError if all lines are rows of a table or JSON objects, unless the training texts have such characters.

    Args:
        lines: the lines to be read as texts.
        learned: the characters of the training texts.
        where: the location of the first line, for the message.
        column: the column of a table that usually has the texts.
        rows_of: the remedy for tables: the one for texts, or `WORDS` if a row has one word.
    """
    kind = rows_kind(lines)
    if kind is not None and not learned >= SIGNS[kind]:
        what = f"lines of text are read here, and these are {kind}"
        received = next(filter(row_kind, lines))
        raise UserError(what, where=where, received=received, allowed=(REMEDIES | {TABS: rows_of})[kind].format(column))
