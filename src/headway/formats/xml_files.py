"""XML files, plain or compressed, read element by element; a damaged one is an error with its line."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from xml.parsers import expat

from headway.core.errors import UserError
from headway.formats.lines import CHUNK, LONGEST_LINE, ReadingPosition, opened

BEFORE_XML = b"\xef\xbb\xbf\xff\xfe\0 \t\r\n"  # byte order marks, halves of characters in UTF-16, white space


class Tag(NamedTuple):
    """The beginning of an element, its end, which has no attributes (None), or text, which has no name."""

    name: str
    attributes: dict[str, str] | None
    line: int
    text: str = ""


def read_tags(path: Path, *, with_text: bool = False) -> Iterator[Tag]:
    """The tags of a file in their order, and the text between them where that is wanted.

    Entities from outside of the file are not read, and expat limits the expansion of those inside (CVE-2013-0340).

    Raises:
        UserError: with file and line: no XML, an encoding that is not known, an element that is too long.
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
            except (ValueError, LookupError) as unknown:  # the handlers raise none
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
    """Whether a file's first character, in whatever encoding, is that of XML; not where nothing can be read."""
    with contextlib.suppress(UserError), opened(path, ReadingPosition()) as file:
        return file.read(CHUNK).lstrip(BEFORE_XML).startswith(b"<")
    return False
