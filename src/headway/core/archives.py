"""Read zip files from others: only uncompressed files without overlaps, so no content exceeds the archive."""

import struct
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headway.core.errors import UserError

LARGEST_DIRECTORY = 1 << 20  # bytes, for about ten thousand files
SHORTEST_HEADER = 30  # bytes before a file in a zip file
# The ends of a zip file without a comment: signature, numbers of files, size of the directory.
END, END64, LOCATOR = struct.Struct("<4s8xL6x"), struct.Struct("<4s36xQ8x"), struct.Struct("<4s16x")


@contextmanager
def opened_zip(file: Path, what: str) -> Iterator[zipfile.ZipFile]:
    """Open a zip file of uncompressed files that do not overlap, for reading.

    Raises:
        UserError: the file, called `what` in messages, is damaged or of another kind; also raised while it is open.
    """
    try:
        with file.open("rb") as opened:  # zipfile reads the whole list of entries
            opened.seek(max(0, file.stat().st_size - END64.size - LOCATOR.size - END.size))
            tail = opened.read()
        signature, size = END.unpack(tail[-END.size :])
        if signature != b"PK\5\6":
            raise zipfile.BadZipFile("it does not end as a zip file does")
        if LOCATOR.unpack(tail[-END.size - LOCATOR.size : -END.size])[0] == b"PK\6\7":
            size = END64.unpack(tail[: END64.size])[1]
        if size > LARGEST_DIRECTORY:
            raise UserError(f"this {what} has too many files", where=str(file))
        with zipfile.ZipFile(file) as archive:
            _check_entries(archive.infolist(), file, what)
            yield archive
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, struct.error, UnicodeError) as error:
        raise UserError(f"this {what} cannot be read ({error})", where=str(file)) from error


def _check_entries(entries: list[zipfile.ZipInfo], file: Path, what: str) -> None:
    end = 0
    for entry in sorted(entries, key=lambda entry: entry.header_offset):
        if entry.compress_type != zipfile.ZIP_STORED or entry.file_size != entry.compress_size:
            raise UserError(f"the files of a {what} are not compressed", where=str(file), received=entry.filename)
        if entry.header_offset < end:
            what = f"files of this {what} lie one in the other"
            raise UserError(what, where=str(file), received=entry.filename)
        end = entry.header_offset + SHORTEST_HEADER + entry.file_size
    if end > file.stat().st_size:
        raise UserError(f"files of this {what} lie one in the other", where=str(file))
