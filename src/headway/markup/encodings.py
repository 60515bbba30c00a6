"""The encodings of documents: byte order marks, declarations, and the names of the web."""

import codecs
import re
from contextlib import suppress
from typing import NamedTuple

from headway.core.errors import UserError

MARKS = {
    "utf-8": codecs.BOM_UTF8, "utf-32-le": codecs.BOM_UTF32_LE, "utf-32-be": codecs.BOM_UTF32_BE,
    "utf-16-le": codecs.BOM_UTF16_LE, "utf-16-be": codecs.BOM_UTF16_BE,
}  # fmt: skip
XML = rb"^\s*<\?xml[^>]*encoding\s*=\s*[\"']([\w.:-]+)"
CHARSET = rb"charset\s*=\s*[\"']?([\w.:-]+)"
META = rb"<meta(?:[^<>\"']|\"[^\"<>]*\"|'[^'<>]*')*?\s"  # up to an attribute
COMMENT = re.compile(rb"<!--.*?-->", re.DOTALL)
DECLARED = {
    "html": re.compile(XML + b"|" + META + CHARSET + rb"|<meta[^<>]+;\s*" + CHARSET, re.I),
    "po": re.compile(rb"^[^#\n]*Content-Type:(?:[^\"\n]|\"\r?\n\")*?charset=([\w.:-]+)", re.M),
} | dict.fromkeys(("xliff", "tmx"), re.compile(XML))
HEAD = 2**16  # bytes in which an encoding is declared
LITERAL = ("po", "xliff", "tmx")  # kinds whose programs take names of encodings literally
# What browsers read under a name (WHATWG Encoding, 4.2), by the names of Python's codecs.
WEB = {
    "ascii": "cp1252", "iso8859-1": "cp1252", "iso8859-9": "cp1254", "iso8859-11": "cp874", "tis-620": "cp874",
    "gb2312": "gb18030", "gbk": "gb18030", "shift_jis": "cp932", "euc_kr": "cp949", "big5": "big5hkscs",
}  # fmt: skip
AFFIXES = re.compile(r"^(?:x-)+|^windows-|-[ei]$", re.I)  # of names that Python has without them, or with "cp"


class Encoding(NamedTuple):
    """The codec of a document, its byte order mark, and the handler of characters that the codec lacks."""

    codec: str
    mark: bytes
    errors: str

    def decode(self, content: bytes) -> str:
        return content.removeprefix(self.mark).decode(self.codec, self.errors)

    def encode(self, text: str) -> bytes:
        return self.mark + text.encode(self.codec, self.errors)


def _in_markup(error: UnicodeError) -> tuple[str | bytes, int]:
    """Read the bytes that Windows leaves undefined as controls, write them back, and write references for the rest."""
    if isinstance(error, UnicodeDecodeError):
        byte = error.object[error.start]
        if error.encoding == "charmap" and 0x80 <= byte < 0xA0:
            return chr(byte), error.start + 1
    elif isinstance(error, UnicodeEncodeError):
        code = ord(error.object[error.start])
        if error.encoding == "charmap" and 0x80 <= code < 0xA0:
            return bytes([code]), error.start + 1
        return codecs.xmlcharrefreplace_errors(error)
    raise error


codecs.register_error("headway-markup", _in_markup)


def decoded_document(content: bytes, name: str, kind: str, undeclared: str | None = None) -> tuple[str, Encoding]:
    """A document's text and its encoding: that of its mark, the declared one, `undeclared`, or UTF-8.

    Raises UserError if there is no such encoding, or the document has another one.
    """
    codec, mark = next(((codec, mark) for codec, mark in MARKS.items() if content.startswith(mark)), ("", b""))
    declared = DECLARED[kind].search(COMMENT.sub(b"", content[:HEAD])) if kind in DECLARED and not mark else None
    label = next(filter(None, declared.groups())).decode("ascii") if declared else "CHARSET"
    if label.lower().startswith("utf-16"):  # such a declaration could not be read here
        label = "utf-8"
    label = codec or (undeclared or "utf-8" if label == "CHARSET" else label)
    errors = "headway-markup" if kind in ("html", "xliff", "tmx") else "strict"
    try:
        encoding = Encoding(label if kind in LITERAL else web_codec(label), mark, errors)
        return encoding.decode(content), encoding
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UserError(f"this is not {label} ({error.reason})", where=f"{name}:{line}") from error
    except (LookupError, UnicodeError) as error:
        raise UserError("this encoding is not known", where=f"{name}:1", received=label) from error


def web_codec(label: str) -> str:
    """The codec by which browsers read an encoding, such as cp1252 for iso-8859-1. Raises LookupError if unknown."""
    bare = AFFIXES.sub("", label)
    for name in (label, bare, f"cp{bare}".replace("31j", "932")):
        with suppress(LookupError):
            codec = codecs.lookup(name).name
            return WEB.get(codec, codec)
    raise LookupError(label)
