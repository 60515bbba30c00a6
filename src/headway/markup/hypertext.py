"""The text of HTML, whole pages and fragments, which browsers read whatever is wrong with it."""

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


# A tag by the rules of browsers: quotes mean something behind "=" alone.
TAG = re.compile(r"<(/?)([a-zA-Z][^\s/>]*)((?:[^=>]++|=\s*+(?:\"[^\"]*+\"|'[^']*+')?)*+)>")
ATTRIBUTE = re.compile(r"([^\s=>\"'/]+)(?:\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'>]+)))?")
BEGINS = re.compile(r"<(?:(/?[a-zA-Z])|[!?/])")
RAW_TEXT = {name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE) for name in ("script", "style")}


class Token(NamedTuple):
    """A part of a page: a tag that begins or ends an element, text, or something else such as a comment."""

    kind: str
    raw: str
    name: str = ""
    kept: bool = False


def tokens(text: str) -> Iterator[Token]:
    """The tokens of a page; their raw texts make the page. A tag or comment without an end extends to the end."""
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
    """A tag with what its attributes say of its element."""
    name, given = tag[2].lower(), {}
    if "translate" in tag[3].lower():
        given = {key.lower(): one or two or three for key, one, two, three in ATTRIBUTE.findall(tag[3])}
    kept = given.get("translate") == "no" or "notranslate" in given.get("class", "").split()
    alone = name in INLINE and tag[3].endswith("/") and not re.search(r"=[^\s\"']*$", tag[3])
    return Token("end" if tag[1] else "alone" if alone else "begin", tag[0], name, kept)


def html_parts(text: str, languages: Languages) -> Parts:
    """The text between the tags that begin and end blocks."""
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
    """The number of the token behind the element that begins there."""
    depth, name = 0, page[begin].name
    for at in range(begin, len(page)):
        if page[at].name == name and page[at].kind in ("begin", "end"):
            depth += 1 if page[at].kind == "begin" else -1
            if depth == 0:
                return at + 1
    return len(page)


def _segments(run: Sequence[Piece]) -> Iterator[str | Segment]:
    """Inline content, divided at tags without a partner, which stay where they are."""
    lone = sorted(unpaired(run))
    if not lone:
        yield Segment(list(run), html_escape)
        return
    for begin, end in pairwise([-1, *lone, len(run)]):
        yield from _segments(run[begin + 1 : end])
        if end < len(run):
            yield run[end].raw
