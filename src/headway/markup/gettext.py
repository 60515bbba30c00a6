"""PO files: messages without a translation, or with a fuzzy one, are translated."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from gettext import c2py
from itertools import chain
from typing import NamedTuple

from headway.core.errors import UserError
from headway.markup.accelerators import find, put_back
from headway.markup.documents import Languages, Parts, Unit, check_language, lines
from headway.markup.inline import Piece, Segment
from headway.markup.placeholders import CONTROL, flagged, same_arguments
from headway.markup.translating import raw_pieces

STRING = r'"((?:[^"\\\n]|\\.)*)"'
KEYWORD = re.compile(rf"\s*(msgctxt|msgid_plural|msgid|msgstr(?:\[\d+\])?)\s*{STRING}\s*")
CONTINUED = re.compile(rf"\s*{STRING}\s*")
PLURALS = re.compile(r"^Plural-Forms:.*\bplural\s*=\s*([^;\n]+)", re.M)
LANGUAGE = re.compile(r"^Language:[ \t]*(\S+)", re.M)
MARKER = re.compile(r"^X-Accelerator-Marker:[ \t]*(\S)", re.M)
TAG = re.compile(rf"</?([A-Za-z][\w:-]*)(?:\s[^<>]*)?/?>|{CONTROL}")
# Escaped bytes that form characters together, a single escape, or text.
WRITTEN = re.compile(
    r"(?:\\(?:[23][0-7]{2}|x[89a-fA-F][0-9a-fA-F]))+|\\(?:[0-7]{1,3}|x[0-9a-fA-F]+|.)|[^\\]+", re.DOTALL
)
NUMBER = re.compile(r"\\(?:x([0-9a-fA-F]+)|([0-7]+))")
ESCAPES = dict(zip('abfnrtv"\\', '\a\b\f\n\r\t\v"\\', strict=True))
ESCAPED = {code: f"\\{code:03o}" for code in (*range(32), 127)} | {ord(one): f"\\{by}" for by, one in ESCAPES.items()}
Characters = list[tuple[str, str]]


class Field(NamedTuple):
    """The characters of a keyword's string, each with its form in the file, and its lines [begin, end)."""

    characters: Characters
    begin: int
    end: int

    @property
    def text(self) -> str:
        return "".join(character for character, _ in self.characters)


@dataclass
class Message:
    """A message that begins at a line: its fields by keyword, and its flags by line."""

    begin: int
    fields: dict[str, Field] = field(default_factory=dict)
    flags: dict[int, list[str]] = field(default_factory=dict)

    @property
    def translations(self) -> dict[str, Field]:
        """The fields of the translation, several for a message with a plural."""
        return {name: field for name, field in self.fields.items() if name.startswith("msgstr")}

    @property
    def fuzzy(self) -> bool:
        return "fuzzy" in chain(*self.flags.values())


def messages(rows: Sequence[str]) -> Iterator[Message]:
    """The messages of a PO file, except obsolete ones. Raises UserError with the line if it is not a PO file."""
    message, name = Message(0), ""

    def complete(number: int) -> Message:
        if message.fields and not ("msgid" in message.fields and message.translations):
            raise UserError("this message is not complete", where=f"{number}")
        return message

    for number, row in enumerate(rows):
        text = row.strip()
        if text.startswith("#") or not text:
            if message.fields:
                yield complete(number)
                message, name = Message(number), ""
            if text.startswith("#,"):
                message.flags[number] = [flag.strip() for flag in text[2:].split(",") if flag.strip()]
            continue
        begun, more = KEYWORD.fullmatch(row), CONTINUED.fullmatch(row)
        if begun:
            if begun[1] in ("msgctxt", "msgid") and message.translations:
                yield complete(number)
                message = Message(number)
            name = begun[1]
            if name in message.fields:
                raise UserError(f"there is a second {name}", where=f"{number + 1}")
            message.fields[name] = Field([*_characters(begun[2])], number, number + 1)
        elif more and name:
            message.fields[name].characters.extend(_characters(more[1]))
            message.fields[name] = message.fields[name]._replace(end=number + 1)
        else:
            raise UserError("this is no line of a PO file", where=f"{number + 1}", received=text)
    if message.fields:
        yield complete(len(rows))


def _characters(string: str) -> Iterator[tuple[str, str]]:
    """The characters of a string, each with its form in the file. The backslash of an unknown escape is one of them."""
    for match in WRITTEN.finditer(string):
        text = written = match[0]
        if numbers := NUMBER.findall(written):
            codes = bytes((int(six, 16) if six else int(eight, 8)) & 0xFF for six, eight in numbers)
            text = codes.decode("utf-8" if len(codes) > 1 else "latin-1", "replace")
        elif written[0] == "\\" and written[1:] in ESCAPES:
            text = ESCAPES[written[1:]]
        yield from zip(text, written if text == written else [written, *[""] * (len(text) - 1)], strict=True)


def escaped(text: str) -> str:
    return text.translate(ESCAPED)


def plural_form(header: str, count: int) -> int:
    """The index of the header's plural form for a count. Raises UserError if the plural rule is invalid."""
    plural = PLURALS.search(header)
    try:
        return c2py(plural[1].strip())(count) if plural else int(count != 1)
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise UserError(f"this plural cannot be read ({error})", where="1") from error


def po_parts(text: str, languages: Languages) -> Parts:
    """The parts of a file, with units for untranslated messages; the header determines which form is singular."""
    rows, at, singular, marks = lines(text), 0, 0, ""
    for message in messages(rows):
        if not message.fields["msgid"].text:
            header = message.fields["msgstr"].text if "msgstr" in message.fields else ""
            declared, marker = LANGUAGE.search(header), MARKER.search(header)
            check_language(declared and declared[1], languages, "target", message.fields["msgid"].begin + 1)
            singular, marks = plural_form(header, 1), marker[1] if marker else ""
        elif any(message.fuzzy or not one.text for one in message.translations.values()):
            unit = _Untranslated(message, rows, singular, marks, languages.target)
            yield "".join(rows[at : unit.begin])
            yield Unit(unit.segments, unit.write, unit.original)
            at = unit.end
    yield "".join(rows[at:])


class _Text:
    """The source of a translation, without its accelerator: a segment a line, with the line's end."""

    def __init__(self, source: Field, placeholders: re.Pattern[str], marks: str) -> None:
        self.source, characters = source, source.characters
        found = None if "\n" in source.text else find(source.text, marks)
        self.accelerator = found and found[2]
        if found:
            characters = characters[: found[0]] + characters[found[1] :]
        self.lines, begin = list[tuple[Segment, str]](), 0
        for end in [*(at for at, (one, _) in enumerate(characters) if one == "\n"), len(characters)]:
            pieces = list(_message_pieces(characters[begin:end]))
            close = "".join(written for _, written in characters[end : end + 1])
            segment = Segment(pieces, lambda text: escaped(TAG.sub("", text)), placeholders=placeholders)
            self.lines += [(segment, close)] if pieces or close else []
            begin = end + 1


class _Untranslated:
    """A message, from its flags to the last of its translations that are missing or fuzzy.

    `singular` is the index of the plural form for 1, and `marks` are the accelerators that the header declares.
    """

    def __init__(self, message: Message, rows: Sequence[str], singular: int, marks: str, language: str) -> None:
        self.message, self.rows, self.language = message, rows, language
        self.open = {name: one for name, one in message.translations.items() if message.fuzzy or not one.text}
        self.flags = [*chain(*message.flags.values())]
        first = min(one.begin for one in message.fields.values())
        previous = [number for number in range(message.begin, first) if rows[number].lstrip().startswith("#|")]
        self.begin = min([*message.flags, *previous, first])
        self.end = max(one.end for one in self.open.values())
        self.original = "".join(rows[self.begin : self.end])
        plural = message.fields.get("msgid_plural", message.fields["msgid"])
        sources = {f"msgstr[{singular}]": message.fields["msgid"]}
        self.texts = {name: _Text(sources.get(name, plural), flagged(self.flags), marks) for name in self.open}
        self.segments = [segment for text in self.texts.values() for segment, _ in text.lines]

    def write(self, translations: Sequence[str], final: bool) -> str | None:
        """The message with translations, fuzzy unless they are final; None if a program's arguments differ."""
        remaining, replaced = iter(translations), self._flag_rows(final)
        for name, text in self.texts.items():
            bodies = [next(remaining) + close for _, close in text.lines]
            if text.accelerator:
                bodies = [put_back(text.accelerator, "".join(bodies), self.language)]
            if not same_arguments(self.flags, escaped(text.source.text), "".join(bodies)):
                return None
            replaced[self.open[name].begin] = self.open[name].end, self._string(name, text.source, bodies)
        out, at = "" if final or self.message.flags else f"#, fuzzy{_line_end(self.rows[self.begin])}", self.begin
        while at < self.end:
            at, written = replaced.get(at, (at + 1, self.rows[at]))
            out += written
        return out

    def _flag_rows(self, final: bool) -> dict[int, tuple[int, str]]:
        """The lines of flags by number, each with the next number. They have the flag `fuzzy` once, unless final."""
        rows = dict[int, tuple[int, str]]()
        for number, flags in self.message.flags.items():
            wanted = [*([] if final or rows else ["fuzzy"]), *(flag for flag in flags if flag != "fuzzy")]
            written = f"#, {', '.join(wanted)}{_line_end(self.rows[number])}" if wanted else ""
            rows[number] = number + 1, self.rows[number] if sorted(wanted) == sorted(flags) else written
        return rows

    def _string(self, name: str, source: Field, bodies: Sequence[str]) -> str:
        """The lines of a translation, over several lines if the source has several."""
        end = _line_end(self.rows[source.end - 1])
        if source.end - source.begin == 1:
            return f'{name} "{"".join(bodies)}"{end}'
        return f'{name} ""{end}' + "".join(f'"{body}"{end}' for body in bodies)


def _line_end(row: str) -> str:
    return row[len(row.rstrip("\r\n")) :] or "\n"


def _message_pieces(characters: Characters) -> Iterator[Piece]:
    """The pieces of a message, with its tags. Names in angle brackets of arguments, as in `%<name>s`, are none."""
    at, text = 0, "".join(character for character, _ in characters)
    tags = [tag for tag in TAG.finditer(text) if text[tag.start() - 1 : tag.start()] != "%" or f"</{tag[1]}>" in text]
    for match in [*tags, None]:
        yield from raw_pieces(characters[at : match.start() if match else len(text)])
        if match is not None:
            yield tag_piece(match[0], "".join(written for _, written in characters[match.start() : match.end()]))
            at = match.end()


def tag_piece(tag: str, raw: str) -> Piece:
    """The piece of an HTML tag, or of a terminal's control."""
    match = TAG.fullmatch(tag)
    name = (match and match[1]) or ""
    if name.lower() == "br":
        return Piece("break", raw, " ")
    if not name or tag.endswith("/>"):
        return Piece("void", raw)
    return Piece("close" if tag.startswith("</") else "open", raw, key=name)
