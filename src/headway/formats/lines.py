"""Lines of text files, plain or compressed."""

import gzip
import lzma
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from headway.errors import UserError

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def check_file(path: Path, where: str) -> None:
    """Raise UserError, with the recipe key `where`, unless there is such a file with something in it."""
    if not path.exists():
        raise UserError("there is no such file", where=where, received=str(path))
    if not path.is_file():
        raise UserError("this is not a file that can be read again and again", where=where, received=str(path))
    if next(read_lines(path), None) is None:
        raise UserError("this file is empty", where=where, received=str(path))


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a text file, plain, .gz or .xz, without their ends.

    Only \\n and \\r\\n end a line, so that rarer separators (U+2028, U+0085, form feed) cannot shift an alignment. A
    byte order mark at the beginning is left out, and a last line need not be ended.

    Raises:
        UserError: a file that cannot be read, is damaged, or is not UTF-8; with file and line.
    """
    number = 0
    try:
        with open_bytes(path) as file:
            for number, raw in enumerate(file, start=1):
                line = raw.removeprefix(BYTE_ORDER_MARK) if number == 1 else raw
                if line.endswith(b"\n"):
                    line = line[:-2] if line.endswith(b"\r\n") else line[:-1]
                elif not line:  # nothing but a byte order mark
                    return
                yield line.decode()
    except UnicodeDecodeError as error:
        byte, column = error.object[error.start], error.start + 1
        raise UserError(
            f"invalid UTF-8: byte 0x{byte:02x} at byte {column} of the line", where=f"{path}:{number}"
        ) from error
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise UserError(
            f"this compressed file is damaged or cut off ({error})", where=f"{path}:{number + 1}"
        ) from error
    except OSError as error:
        raise UserError(f"cannot read this file ({error.strerror or error})", where=str(path)) from error


def open_bytes(path: Path) -> IO[bytes]:
    """A file's content, decompressed where its name ends in .gz or .xz. Raises OSError."""
    if path.suffix == ".gz":
        return cast(IO[bytes], gzip.open(path))
    return lzma.open(path) if path.suffix == ".xz" else path.open("rb")


def blocks(path: Path) -> Iterator[list[tuple[int, str]]]:
    """The lines between blank ones, with their numbers."""
    block = list[tuple[int, str]]()
    for line, row in enumerate(read_lines(path), start=1):
        if row.strip():
            block.append((line, row))
        elif block:
            yield block
            block = []
    if block:
        yield block
