"""Kinds of documents: which parts are translated, the encoding, and the translated document."""

import importlib
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import PurePath
from typing import Literal, NamedTuple

from headway.core.errors import UserError
from headway.core.languages import is_language, same_writing
from headway.core.log import counted, say, warn
from headway.markup.encodings import decoded_document
from headway.markup.inline import DEEPEST, Kind, Piece, Segment
from headway.markup.placement import depth
from headway.markup.translating import (
    Translate,
    decoded,
    html_escape,
    raw_pieces,
    text_pieces,
    translate_segments,
)


class Languages(NamedTuple):
    """The language codes of a document and of its translation."""

    source: str
    target: str


class Counts(NamedTuple):
    """The numbers of characters of a document's text that were seen, translated, and left as they are."""

    name: str
    seen: int
    translated: int
    left: int

    def tell(self) -> None:
        seen = f"{counted(self.seen, 'character')} of text"
        say(f"{self.name}: {seen}; {self.translated:,} translated, {self.left:,} left as they are")


class Unit(NamedTuple):
    """Segments that are written together, such as the plural forms of a message.

    Attributes:
        segments: the segments.
        write: writes the unit with their translations, which need no review if the second argument is True. None if
            the translations must not be used.
        original: the unit as written in the document.
    """

    segments: Sequence[Segment]
    write: Callable[[Sequence[str], bool], str | None]
    original: str


ENGLISH = Languages("en", "")
Parts = Iterator[str | Segment | Unit]


def check_language(declared: str | None, run: Languages, side: Literal["source", "target"], line: int) -> None:
    """Raise UserError if a document declares another language than the run has on that side.

    A missing or unknown code is ignored. A run with the same code on both sides may not know its languages.
    """
    own = getattr(run, side)
    known = run.target and run.source != run.target and declared and is_language(declared)
    if known and not same_writing(str(declared), own):
        what = f"this document is not of the {side} language of the run, {own}"
        allowed = f"a document in {own}, or another code there if that is what it is"
        raise UserError(what, where=f"{line}", received=declared, allowed=allowed)


Parser = Callable[[str, Languages], Parts]

# For each kind of document: the suffixes of its files, and its parser.
KINDS: dict[str, tuple[tuple[str, ...], str]] = {
    "text": ((".txt",), "documents:text_parts"),
    "html": ((".html", ".htm", ".xhtml"), "hypertext:html_parts"),
    "markdown": ((".md", ".markdown"), "marked:markdown_parts"),
    "po": ((".po", ".pot"), "gettext:po_parts"),
    "xliff": ((".xlf", ".xliff"), "exchange:xliff_parts"),
    "tmx": ((".tmx",), "exchange:tmx_parts"),
    "srt": ((".srt",), "documents:subtitle_parts"),
    "vtt": ((".vtt",), "documents:subtitle_parts"),
}
TIMES = re.compile(r"\s*((?:\d+:)?\d+:\d+[.,]\d+)\s+-->\s+((?:\d+:)?\d+:\d+[.,]\d+).*")
SPEAKER = re.compile(r"((?:\A|\r\n|\n|\r)[ \t]*(?:[-–—]|>>+|&gt;&gt;)[ \t]*)")
VOICE = re.compile(r"<v[. ][^>]*>")
SOUNDS = tuple("[]()♪#")  # around sounds that are not speech
PAUSE, LONGEST_SENTENCE = 3.0, 250  # seconds, characters
FEW_STOPS = 0.1  # share of cues that end with a full stop
CUE_TAG = re.compile(r"(</?(\w+)[^<>]*>|<[\d:.]+>|\{\\[^{}]*\})")
SENTENCE_END = re.compile(r"[.!?…。！？।؟۔။។።༎།][\"'”’」』）)\]]*\s*$")


def is_marked_up(path: PurePath) -> bool:
    """Whether a file name is that of a document with markup, rather than plain text."""
    return any(path.suffix.lower() in suffixes for kind, (suffixes, _) in KINDS.items() if kind != "text")


def kind_of(name: str, kind: str | None = None) -> str:
    """The kind of a document, by default from its name. Raises UserError if there is no such kind."""
    suffix = PurePath(name).suffix.lower()
    found = kind if kind in KINDS else next((one for one, (known, _) in KINDS.items() if suffix in known), None)
    if found is None or (kind is not None and kind not in KINDS):
        known = [*KINDS, *(suffix for suffixes, _ in KINDS.values() for suffix in suffixes)]
        raise UserError(
            "no such kind of document can be translated", where=name, received=kind or suffix, allowed=known
        )
    return found


def is_short(text: str) -> bool:
    return len(text) <= LONGEST_SENTENCE


def translate_document(
    content: bytes,
    name: str,
    translate: Translate,
    languages: Languages = ENGLISH,
    kind: str | None = None,
    *,
    attributes: bool = True,
    final: bool = True,
    encoding: str | None = None,
    report: Callable[[Counts], object] = Counts.tell,
    fits: Callable[[str], bool] = is_short,
) -> bytes:
    """Translate the text of a document. Its encoding and everything else stay unchanged.

    Args:
        content: the document.
        name: its file name, for its kind and for messages.
        translate: returns the translations of sentences, in order.
        languages: the languages of the document and of its translation.
        kind: one of `KINDS`.
        attributes: whether the texts in attributes of HTML, such as `title`, are translated.
        final: False marks the translations of PO and XLIFF as to be reviewed.
        encoding: the encoding of a document that declares none; by default UTF-8.
        report: is called with the numbers of characters; by default they are logged.
        fits: whether a text is short enough to be translated as one sentence; subtitles are joined up to there.

    Raises:
        UserError: with its line, the document is not of its kind; or there is no such kind.
    """
    kind = kind_of(name, kind)
    file, _, function = KINDS[kind][1].partition(":")
    module = importlib.import_module(f"headway.markup.{file}")
    text, encoded = decoded_document(content, name, kind, encoding)
    result, all_of, done = text, 0, 0
    if kind == "html" and attributes:
        result, all_of, done = _translated(result, name, module.attribute_parts, translate, languages)
    parser = partial(subtitle_parts, fits=fits) if kind in ("srt", "vtt") else getattr(module, function)
    result, found, changed = _translated(result, name, parser, translate, languages, final=final)
    seen = all_of + (module.visible(text) if kind == "html" else found)
    report(Counts(name, seen, done + changed, seen - done - changed))
    if kind == "html" and result != text:
        result = module.relabelled(result, languages)
    if result == text:
        return content
    try:
        return encoded.encode(result)
    except UnicodeEncodeError as error:
        what = f"the translation has a character that {encoded.codec}, the encoding of this document, has not"
        raise UserError(what, where=name, received=result[error.start], allowed="the document in UTF-8") from error


def _translated(
    text: str, name: str, parser: Parser, translate: Translate, languages: Languages, *, final: bool = True
) -> tuple[str, int, int]:
    """A text with the translations of the segments that a parser finds, and their characters, all and changed."""
    try:
        parts = list(parser(text, languages))
    except UserError as error:
        where = f"{name}:{error.where}"
        raise UserError(error.what, where=where, received=error.received, allowed=error.allowed) from error
    segments = [segment for part in parts for segment in _segments(part)]
    for number, part in enumerate(parts):
        found = max((depth(one) for one in _segments(part) if len(one.pieces) > DEEPEST), default=0)
        if found > DEEPEST:
            line = 1 + "".join(map(_raw, parts[:number])).count("\n")
            what = "tags are nested too deep"
            raise UserError(what, where=f"{name}:{line}", received=found, allowed=f"up to {DEEPEST}")
    translations = iter(translate_segments(segments, translate, *languages))
    out, changed, refused = list[str](), 0, 0
    for part in parts:
        given = [(segment, *next(translations)) for segment in _segments(part)]
        texts, written = [text for _, text, _ in given], _raw(part)
        if isinstance(part, Segment):
            written = texts[0]
        elif isinstance(part, Unit) and all(complete for *_, complete in given):
            filled = part.write(texts, final)
            refused += filled is None
            written = written if filled is None else filled
        out.append(written)
        changed += sum(size(one.text) for one, text, _ in given if text != one.raw and written != _raw(part))
    if refused:
        units = sum(isinstance(part, Unit) for part in parts)
        warn(f"{refused:,} of {units:,} messages stay as they are: their translations have other arguments")
    return "".join(out), sum(size(segment.text) for segment in segments), changed


def size(text: str) -> int:
    """The number of characters that are not white space."""
    return sum(map(len, text.split()))


def _segments(part: str | Segment | Unit) -> Sequence[Segment]:
    return part.segments if isinstance(part, Unit) else [part] if isinstance(part, Segment) else []


def _raw(part: str | Segment | Unit) -> str:
    return part if isinstance(part, str) else part.raw if isinstance(part, Segment) else part.original


def lines(text: str) -> list[str]:
    """The lines of a text with their ends, which are LF, CR LF and CR. Other separators are characters of a line."""
    return re.findall(r"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+\Z", text)


def text_parts(text: str, languages: Languages) -> Parts:
    """The lines of plain text, each as a paragraph."""
    for line in re.split(r"(\r\n|\n|\r)", text):
        yield Segment(list(text_pieces(line))) if line.strip() else line


class Cue(NamedTuple):
    """A subtitle: the lines before its text, the text, the white space after it, and its times in seconds."""

    before: list[str]
    text: str
    behind: str
    begin: float
    end: float

    @property
    def plain(self) -> str:
        return CUE_TAG.sub("", self.text).strip()


def subtitle_parts(text: str, languages: Languages, fits: Callable[[str], bool] = is_short) -> Parts:
    """Segments of as many cues as form a sentence. Raises UserError if there are no subtitles, or a time is invalid.

    A sentence also ends at a pause, a speaker, a sound in brackets or a comment, and if it `fits` no longer. If few
    cues of a file end with a full stop, each cue is a sentence.
    """
    web = text.startswith("WEBVTT")
    escape = html_escape if web else partial(CUE_TAG.sub, "")
    *cues, rest = _cues(lines(text))
    if text.strip() and not (cues or web):
        raise UserError("there are no subtitles", where="1", received=text.strip()[:40])
    stopped = sum(bool(SENTENCE_END.search(cue.plain)) for cue in cues) > FEW_STOPS * len(cues)
    pieces, last = list[Piece](), rest
    for cue in cues:
        begun = "".join(piece.text for piece in pieces)
        if pieces and (not stopped or _is_apart(last, cue) or not fits(f"{begun} {cue.plain}")):
            yield Segment(pieces, escape)
            pieces = []
        between = [last.behind if cue is not cues[0] else "", *cue.before]
        if pieces:
            pieces.append(Piece("cut", "".join(between), " "))
        else:
            yield from between
        for number, turn in enumerate(SPEAKER.split(cue.text)):
            if number % 2:
                yield from [Segment(pieces, escape)] if pieces else []
                yield turn
                pieces = []
            else:
                pieces += _cue_pieces(turn, web)
        if SENTENCE_END.search(cue.plain):
            yield Segment(pieces, escape)
            pieces = []
        last = cue
    yield from [Segment(pieces, escape)] if pieces else []
    yield from [last.behind if cues else "", *rest.before]


def _cues(lines: Sequence[str]) -> Iterator[Cue]:
    """The subtitles that have text, followed by one without text. Raises UserError with the line of an invalid time."""
    before, at = list[str](), 0
    while at < len(lines):
        times = TIMES.fullmatch(lines[at].rstrip("\r\n"))
        if "-->" in lines[at] and times is None:
            raise UserError("these are no times of a subtitle", where=f"{at + 1}", received=lines[at].strip())
        before.append(lines[at])
        at += 1
        if times is None:
            continue
        first = at
        while at < len(lines) and lines[at].strip():
            at += 1
        text = "".join(lines[first:at])
        if shown := text.rstrip():
            yield Cue(before, shown, text[len(shown) :], *map(_seconds, times.groups()))
            before = []
        else:
            before.append(text)
    yield Cue(before, "", "", 0, 0)


def _seconds(time: str) -> float:
    """The number of seconds of a time such as 00:01:02,500."""
    return sum(float(part) * 60.0**place for place, part in enumerate(reversed(time.replace(",", ".").split(":"))))


def _is_apart(last: Cue, cue: Cue) -> bool:
    """Whether a cue begins a sentence although the preceding one has no full stop."""
    sounds = cue.plain.startswith(SOUNDS) or last.plain.endswith(SOUNDS)
    voices = [VOICE.search(each.text) for each in (last, cue)]
    is_other = voices[1] is not None and (voices[0] is None or voices[0][0] != voices[1][0])
    has_comment = any(line.startswith("NOTE") for line in cue.before)
    return sounds or is_other or has_comment or cue.begin - last.end >= PAUSE


def _cue_pieces(cue: str, web: bool) -> Iterator[Piece]:
    """The text of a subtitle with its tags and, in WebVTT, its entities."""
    at = 0
    for match in [*CUE_TAG.finditer(cue), None]:
        text = cue[at : match.start() if match else len(cue)]
        yield from raw_pieces(decoded(text) if web else [(one, one) for one in text])
        if match is not None:
            kind: Kind = "void" if not match[2] else "close" if match[0].startswith("</") else "open"
            yield Piece(kind, match[0], key=match[2] or "")
            at = match.end()
