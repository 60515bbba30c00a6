"""The text of HTML, whole pages and fragments, which browsers read whatever is wrong with it."""

from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from itertools import accumulate, pairwise
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


class Token(NamedTuple):
    """A part of a page: a tag that begins or ends an element, text, or something else such as a comment."""

    kind: str
    raw: str
    name: str = ""
    kept: bool = False


class _Tokens(HTMLParser):
    """The tokens of a page with their places."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=False)
        self.lines = [0, *accumulate(len(line) + 1 for line in text.split("\n"))]
        self.found = list[tuple[int, str, str, bool]]()
        self.feed(text)
        self.close()

    def _add(self, kind: str, name: str = "", kept: bool = False) -> None:
        line, column = self.getpos()
        self.found.append((self.lines[line - 1] + column, kind, name, kept))

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        kept = given.get("translate") == "no" or "notranslate" in (given.get("class") or "").split()
        self._add("begin", tag, kept)

    def handle_endtag(self, tag: str) -> None:
        self._add("end", tag)

    def handle_startendtag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self._add("alone" if tag in INLINE else "begin", tag)

    def _add_text(self, text: str) -> None:
        self._add("text")

    def _add_other(self, text: str) -> None:
        self._add("other")

    handle_data = handle_charref = handle_entityref = _add_text  # type: ignore[assignment]  # names of arguments
    handle_comment = handle_decl = handle_pi = unknown_decl = _add_other  # type: ignore[assignment]


def tokens(text: str) -> list[Token]:
    """The tokens of a page; their raw texts make the page."""
    found = [*_Tokens(text).found, (len(text), "", "", False)]
    result = [Token("other", text[: found[0][0]])]
    for (begin, kind, name, kept), (end, *_) in pairwise(found):
        if kind == "text" == result[-1].kind:
            result[-1] = Token("text", result[-1].raw + text[begin:end])
        else:
            result.append(Token(kind, text[begin:end], name, kept))
    return result


def html_parts(text: str, languages: Languages) -> Parts:
    """The text between the tags that begin and end blocks."""
    page, run, at = tokens(text), list[Piece](), 0
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
