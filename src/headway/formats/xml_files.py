"""XML files, plain or compressed, read element by element; a damaged one is an error with its line."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol
from xml.parsers import expat

from headway.errors import UserError
from headway.formats.lines import CHUNK, LONGEST_LINE, ReadingPosition, opened

BEFORE_XML = b"\xef\xbb\xbf\xff\xfe\0 \t\r\n"  # byte order marks, halves of characters in UTF-16, white space


class ElementReader(Protocol):
    """The receiver of the elements of a file, with the lines that they begin and end at."""

    def start(self, name: str, attributes: dict[str, str], line: int) -> None:
        """An element begins."""

    def end(self, name: str) -> None:
        """An element ends."""


def read_elements(path: Path, reader: ElementReader) -> Iterator[None]:
    """Hand all elements of a file to a reader; yields now and then, for the reader to be emptied.

    Entities from outside of the file are not read, and expat limits the expansion of those inside (CVE-2013-0340).

    Raises:
        UserError: with file and line: no XML, an encoding that is not known, an element that is too long; what the
            reader raises.
    """
    parser = expat.ParserCreate()
    _check_encoding(path)
    parser.StartElementHandler = lambda name, attributes: reader.start(name, attributes, parser.CurrentLineNumber)
    parser.EndElementHandler = reader.end
    position, fed = ReadingPosition(), 0
    with opened(path, position) as file:
        while True:
            chunk = file.read(CHUNK)
            try:
                parser.Parse(chunk, not chunk)
            except expat.ExpatError as error:
                what = f"this is not XML ({expat.errors.messages.get(error.code, error)})"
                raise UserError(what, where=f"{path}:{error.lineno}") from error
            position.line, fed = parser.CurrentLineNumber - 1, fed + len(chunk)
            if fed - parser.CurrentByteIndex > LONGEST_LINE:
                what = f"something here is longer than {LONGEST_LINE:,} bytes"
                raise UserError(what, where=f"{path}:{parser.CurrentLineNumber}")
            yield
            if not chunk:
                return


def begins_as_xml(path: Path) -> bool:
    """Whether a file's first character, in whatever encoding, is that of XML; not where nothing can be read."""
    with contextlib.suppress(UserError), opened(path, ReadingPosition()) as file:
        return file.read(CHUNK).lstrip(BEFORE_XML).startswith(b"<")
    return False


def _check_encoding(path: Path) -> None:
    """Raise UserError where the encoding of a file is one that Python does not know or expat cannot use."""
    with opened(path, ReadingPosition()) as file, contextlib.suppress(expat.ExpatError):
        beginning = file.read(CHUNK)
        try:
            expat.ParserCreate().Parse(beginning, False)
        except (ValueError, LookupError) as error:  # without handlers, nothing else raises these
            what = f"this encoding of XML cannot be read ({error})"
            raise UserError(what, where=f"{path}:1", allowed="UTF-8") from error
