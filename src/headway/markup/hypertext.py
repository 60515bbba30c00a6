"""The text of HTML, whole pages and fragments, which browsers display even if it is ill-formed."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from headway.markup.documents import Languages, Parts
from headway.markup.inline import Piece, Segment, unpaired
from headway.markup.translating import decoded, html_escape, raw_pieces

INLINE = {
    "a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "data", "del", "dfn", "em", "font", "i", "ins", "label",
    "mark", "q", "s", "small", "span", "strike", "strong", "sub", "sup", "time", "u", "var",
}  # fmt: skip
ALONE, CODE = {"img", "wbr", "input"}, {"code", "kbd", "samp", "tt"}
NO_TEXT = {
    "script", "style", "pre", "textarea", "template", "svg", "math", "iframe", "object", "canvas", "noscript",
}  # fmt: skip
EMPTY = {
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr",
}  # fmt: skip


# A tag, as browsers parse it: quotes only have a meaning after "=".
TAG = re.compile(r"<(/?)([a-zA-Z][^\s/>]*)((?:[^=>]++|=\s*+(?:\"[^\"]*+\"|'[^']*+')?)*+)>")
ATTRIBUTE = re.compile(r"([^\s=>\"'/]+)(?:\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'>]+)))?")
BEGINS = re.compile(r"<(?:(/?[a-zA-Z])|[!?/])")
RAW_TEXT = {name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE) for name in ("script", "style")}


class Token(NamedTuple):
    """A part of a page: a start tag, an end tag, text, or something else such as a comment."""

    kind: str
    raw: str
    name: str = ""
    kept: bool = False


def tokens(text: str) -> Iterator[Token]:
    """Split a page into tokens whose raw texts concatenate to it. An unclosed tag or comment runs to the page's end."""
    at, last, absent = 0, text.rfind(">"), set[str]()

    def end_of(mark: str, begin: int) -> int | None:
        found = -1 if mark in absent else text.find(mark, begin)
        absent.update([mark] if found < 0 else [])
        return found + len(mark) if found >= 0 else None

    for match in BEGINS.finditer(text, 0, last + 1):
        begin = match.start()
        if begin < at:
            continue
        if match[1]:
            tag = TAG.match(text, begin)
            token = _tag(tag) if tag else Token("other", text[begin:])
        elif text.startswith("<!--", begin):
            token = Token("other", text[begin : end_of("-->", begin + 2)])
        else:
            data = end_of("]]>", begin) if text.startswith("<![CDATA[", begin) else None
            token = Token("other", text[begin : data or end_of(">", begin)])
        if at < begin:
            yield Token("text", text[at:begin])
        yield token
        at = begin + len(token.raw)
        if token.kind == "begin" and token.name in RAW_TEXT:
            end = RAW_TEXT[token.name].search(text, at)
            yield Token("text", text[at : end.start() if end else len(text)])
            at = end.start() if end else len(text)
    if at < len(text):
        yield Token("text", text[at:])


def _tag(tag: re.Match[str]) -> Token:
    """The token of a tag, with the attributes that exclude its element from translation."""
    name, given = tag[2].lower(), {}
    if "translate" in tag[3].lower():
        given = {key.lower(): one or two or three for key, one, two, three in ATTRIBUTE.findall(tag[3])}
    kept = given.get("translate") == "no" or "notranslate" in given.get("class", "").split()
    alone = name in INLINE and tag[3].endswith("/") and not re.search(r"=[^\s\"']*$", tag[3])
    return Token("end" if tag[1] else "alone" if alone else "begin", tag[0], name, kept)


def html_parts(text: str, languages: Languages) -> Parts:
    """Split a page into segments, one per block of text, and raw markup between them. `languages` is not used."""
    page, run, at = list(tokens(text)), list[Piece](), 0
    while at < len(page):
        token = page[at]
        at += 1
        if token.kind == "text":
            run += raw_pieces(decoded(token.raw))
        elif token.kind == "begin" and (token.name in NO_TEXT | CODE or (token.kept and token.name not in EMPTY)):
            last = _end(page, at - 1)
            inside = page[at - 1 : last]
            raw, at = "".join(one.raw for one in inside), last
            shown = "".join(character for one in inside if one.kind == "text" for character, _ in decoded(one.raw))
            if token.name in NO_TEXT or token.name not in INLINE | CODE:
                yield from _segments(run)
                run = []
                yield raw
            else:
                run.append(Piece("atom", raw, shown) if shown.strip() == shown != "" else Piece("void", raw))
        elif token.name in ALONE or token.kind == "alone" or (token.kind == "other" and token.raw.startswith("<!--")):
            run.append(Piece("void", token.raw))
        elif token.name in INLINE:
            run.append(Piece("open" if token.kind == "begin" else "close", token.raw, key=token.name))
        else:
            yield from _segments(run)
            run = []
            yield token.raw
    yield from _segments(run)


def _end(page: Sequence[Token], begin: int) -> int:
    """The index of the token after the element that begins at the token `begin`."""
    depth, name = 0, page[begin].name
    for at in range(begin, len(page)):
        if page[at].name == name and page[at].kind in ("begin", "end"):
            depth += 1 if page[at].kind == "begin" else -1
            if depth == 0:
                return at + 1
    return len(page)


def _segments(run: Sequence[Piece]) -> Iterator[str | Segment]:
    """The segments of inline content, which is split at tags without a partner."""
    lone = sorted(unpaired(run))
    if not lone:
        yield Segment(list(run), html_escape)
        return
    for begin, end in pairwise([-1, *lone, len(run)]):
        yield from _segments(run[begin + 1 : end])
        if end < len(run):
            yield run[end].raw
