"""XML files, plain or compressed, read element by element; a damaged file raises an error with its line."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from xml.parsers import expat

from headway.core.errors import UserError
from headway.formats.lines import CHUNK, LONGEST_LINE, ReadingPosition, opened

BEFORE_XML = b"\xef\xbb\xbf\xff\xfe\0 \t\r\n"  # byte order marks, zero bytes of UTF-16, white space


class Tag(NamedTuple):
    """A start tag, an end tag (with `attributes` None), or text (with an empty name)."""

    name: str
    attributes: dict[str, str] | None
    line: int
    text: str = ""


def read_tags(path: Path, *, with_text: bool = False) -> Iterator[Tag]:
    """The tags of a file in order and, if `with_text` is set, the text between them.

    External entities are not read, and expat limits the expansion of internal ones (CVE-2013-0340).

    Raises:
        UserError: with file and line: the file is no XML, its encoding is unknown, or an element is too long.
    """
    parser, tags = expat.ParserCreate(), list[Tag]()
    parser.StartElementHandler = lambda name, attributes: tags.append(Tag(name, attributes, parser.CurrentLineNumber))
    parser.EndElementHandler = lambda name: tags.append(Tag(name, None, parser.CurrentLineNumber))
    if with_text:
        parser.CharacterDataHandler = lambda text: tags.append(Tag("", None, parser.CurrentLineNumber, text))
    position, fed = ReadingPosition(), 0
    with opened(path, position) as file:
        while True:
            chunk, error = file.read(CHUNK), None
            try:
                parser.Parse(chunk, not chunk)
            except expat.ExpatError as damage:
                what = f"this is not XML ({expat.errors.messages.get(damage.code, damage)})"
                error = UserError(what, where=f"{path}:{damage.lineno}")
            except (ValueError, LookupError) as unknown:  # raised by expat, never by the handlers
                what = f"this encoding of XML cannot be read ({unknown})"
                error = UserError(what, where=f"{path}:1", allowed="UTF-8")
            yield from tags
            tags.clear()
            if error is not None:
                raise error
            position.line, fed = parser.CurrentLineNumber - 1, fed + len(chunk)
            if fed - parser.CurrentByteIndex > LONGEST_LINE:
                what = f"something here is longer than {LONGEST_LINE:,} bytes"
                raise UserError(what, where=f"{path}:{parser.CurrentLineNumber}")
            if not chunk:
                return


def begins_as_xml(path: Path) -> bool:
    """Whether the first character of a file, in any encoding, is that of XML; False if the file cannot be read."""
    with contextlib.suppress(UserError), opened(path, ReadingPosition()) as file:
        return file.read(CHUNK).lstrip(BEFORE_XML).startswith(b"<")
    return False
