"""PO files: messages without a translation, or with a fuzzy one, are translated."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from gettext import c2py
from typing import NamedTuple

from headway.core.errors import UserError
from headway.markup.documents import Languages, Parts, check_language
from headway.markup.inline import Piece, Segment
from headway.markup.translating import text_pieces

STRING = r'"((?:[^"\\\n]|\\.)*)"'
KEYWORD = re.compile(rf"\s*(msgctxt|msgid_plural|msgid|msgstr(?:\[\d+\])?)\s*{STRING}\s*")
CONTINUED = re.compile(rf"\s*{STRING}\s*")
PLURALS = re.compile(r"^Plural-Forms:.*\bplural\s*=\s*([^;\n]+)", re.M)
LANGUAGE = re.compile(r"^Language:[ \t]*(\S+)", re.M)
TAG = re.compile(r"</?([A-Za-z][\w:-]*)(?:\s[^<>]*)?/?>")
ESCAPES = {"\\n": "\n", "\\t": "\t", "\\r": "\r"}


class Field(NamedTuple):
    """The text of a keyword, and its lines [begin, end)."""

    text: str
    begin: int
    end: int


@dataclass
class Message:
    """A message: its fields by keyword, and the line of its flags, if any."""

    begin: int
    fields: dict[str, Field] = field(default_factory=dict)
    flags: int | None = None
    fuzzy: bool = False

    @property
    def translations(self) -> dict[str, Field]:
        """The fields of the translation, several for a message with a plural."""
        return {name: field for name, field in self.fields.items() if name.startswith("msgstr")}


def messages(lines: list[str]) -> Iterator[Message]:
    """The messages of a PO file, except obsolete ones. Raises UserError with the line if it is not a PO file."""
    message, name = Message(0), ""

    def complete(number: int) -> Message:
        if message.fields and not ("msgid" in message.fields and message.translations):
            raise UserError("this message is not complete", where=f"{number}")
        return message

    for number, line in enumerate(lines):
        text = line.strip()
        if text.startswith("#") or not text:
            if message.fields:
                yield complete(number)
                message, name = Message(number), ""
            if text.startswith("#,"):
                message.flags, message.fuzzy = number, "fuzzy" in re.split(r"[,\s]+", text)
            continue
        begun, more = KEYWORD.fullmatch(line), CONTINUED.fullmatch(line)
        if begun:
            if begun[1] in ("msgctxt", "msgid") and message.translations:
                yield complete(number)
                message = Message(number)
            name = begun[1]
            if name in message.fields:
                raise UserError(f"there is a second {name}", where=f"{number + 1}")
            message.fields[name] = Field(_unescaped(begun[2]), number, number + 1)
        elif more and name:
            text = message.fields[name].text + _unescaped(more[1])
            message.fields[name] = message.fields[name]._replace(text=text, end=number + 1)
        else:
            raise UserError("this is no line of a PO file", where=f"{number + 1}", received=text)
    if message.fields:
        yield complete(len(lines))


def _unescaped(text: str) -> str:
    return re.sub(r"\\.", lambda match: ESCAPES.get(match[0], match[0][1]), text)


def escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")


def plural_form(header: str, count: int) -> int:
    """The index of the header's plural form for a count. Raises UserError if the plural rule is invalid."""
    plural = PLURALS.search(header)
    try:
        return c2py(plural[1].strip())(count) if plural else int(count != 1)
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise UserError(f"this plural cannot be read ({error})", where="1") from error


def po_parts(text: str, languages: Languages) -> Parts:
    """The parts of a file, with segments for untranslated messages; the header determines which form is singular."""
    lines, at, singular = text.splitlines(keepends=True), 0, 0
    for message in messages(lines):
        source = message.fields["msgid"].text
        if not source:
            header = message.fields["msgstr"].text if "msgstr" in message.fields else ""
            declared = LANGUAGE.search(header)
            check_language(declared and declared[1], languages, "target", message.fields["msgid"].begin + 1)
            singular = plural_form(header, 1)
            continue
        open_ones = {name: one for name, one in message.translations.items() if message.fuzzy or not one.text}
        if open_ones and message.fuzzy and message.flags is not None:
            yield "".join(lines[at : message.flags])
            flags = [
                flag for flag in re.split(r"[,\s]+", lines[message.flags].strip()[2:]) if flag not in ("", "fuzzy")
            ]
            end = lines[message.flags][len(lines[message.flags].rstrip("\r\n")) :]
            yield f"#, {', '.join(flags)}{end}" if flags else ""
            at = message.flags + 1
        for name, one in open_ones.items():
            plural_source = message.fields.get("msgid_plural")
            chosen = message.fields["msgid"]
            if plural_source is not None and name != f"msgstr[{singular}]":
                chosen = plural_source
            yield "".join(lines[at : one.begin])
            yield from _string(name, chosen, lines)
            at = one.end
    yield "".join(lines[at:])


def _string(name: str, source: Field, lines: list[str]) -> Parts:
    """The lines of a translation, over several lines if the source has several."""
    last = lines[source.end - 1]
    end = last[len(last.rstrip("\r\n")) :] or "\n"
    texts = source.text.splitlines(keepends=True)
    yield f'{name} ""{end}' if source.end - source.begin > 1 else f"{name} "
    apart = source.end - source.begin > 1
    for number, text in enumerate(texts):
        body = text.rstrip("\r\n")
        yield '"' if apart or number == 0 else ""
        yield Segment(list(_message_pieces(body)), lambda text: escaped(TAG.sub("", text)))
        yield escaped(text[len(body) :])
        yield f'"{end}' if apart or number == len(texts) - 1 else ""


def _message_pieces(text: str) -> Iterator[Piece]:
    """The pieces of a message, with its tags."""
    at = 0
    for match in [*TAG.finditer(text), None]:
        yield from text_pieces(text[at : match.start() if match else len(text)], escaped)
        if match is not None:
            yield tag_piece(match[0], escaped(match[0]))
            at = match.end()


def tag_piece(tag: str, raw: str) -> Piece:
    """The piece of an HTML tag."""
    name = TAG.fullmatch(tag)
    if name and name[1].lower() == "br":
        return Piece("break", raw, " ")
    if name is None or tag.endswith("/>"):
        return Piece("void", raw)
    return Piece("close" if tag.startswith("</") else "open", raw, key=name[1])
