"""The text of HTML, whole pages and fragments, which browsers display even if it is ill-formed."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from html import unescape
from itertools import pairwise
from typing import NamedTuple

from headway.core.languages import base_language, is_right_to_left, same_writing
from headway.markup.documents import Languages, Parts, size
from headway.markup.inline import Piece, Segment, unpaired
from headway.markup.translating import decoded, html_escape, raw_pieces

INLINE = {
    "a", "abbr", "b", "bdi", "bdo", "big", "cite", "data", "del", "dfn", "em", "font", "i", "ins", "label",
    "mark", "q", "s", "small", "span", "strike", "strong", "sub", "sup", "time", "u",
}  # fmt: skip
ALONE, CODE = {"img", "wbr", "input"}, {"acronym", "code", "kbd", "samp", "tt", "var"}
FOREIGN, SCRIPTS = {"svg", "math"}, {"script", "style", "template", "noscript"}
NO_TEXT = FOREIGN | SCRIPTS | {"canvas", "dir", "iframe", "object", "pre", "textarea"}
EMPTY = {
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr",
}  # fmt: skip
# The elements that a start tag ends if their end is not written, and the elements that these are looked for in.
PARAGRAPH_ENDS = {
    "address", "article", "aside", "blockquote", "center", "details", "dialog", "dir", "div", "dl", "fieldset",
    "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hgroup", "hr", "main",
    "menu", "nav", "ol", "p", "pre", "section", "summary", "table", "ul",
}  # fmt: skip
CELLS, ROWS = {"td", "th", "caption"}, {"tbody", "thead", "tfoot"}
IMPLIED: dict[str, tuple[set[str], set[str]]] = {
    **dict.fromkeys(PARAGRAPH_ENDS, ({"p"}, {"button", "object", "table", "td", "th", "caption"})),
    "li": ({"li"}, {"ul", "ol", "menu", "dir"}),
    **dict.fromkeys(("dt", "dd"), ({"dt", "dd"}, {"dl"})),
    **dict.fromkeys(("option", "optgroup"), ({"option"}, {"select", "datalist"})),
    **dict.fromkeys(("rt", "rp", "rb", "rtc"), ({"rt", "rp", "rb"}, {"ruby"})),
    **dict.fromkeys(("td", "th"), (CELLS, {"table"})),
    "tr": (CELLS | {"tr", "colgroup"}, {"table"}),
    **dict.fromkeys(ROWS, (CELLS | ROWS | {"tr", "colgroup"}, {"table"})),
}


# A tag, as browsers parse it: quotes only have a meaning after "=".
TAG = re.compile(r"<(/?)([a-zA-Z][^\s/>]*)((?:[^=>]++|=\s*+(?:\"[^\"]*+\"|'[^']*+')?)*+)>")
TRANSLATED = {"title", "alt", "placeholder", "aria-label"}  # attributes
ROOT = re.compile(r"<html(?=[\s>])[^>]*>", re.IGNORECASE)
LANGUAGE = re.compile(r"(\s(?:xml:)?lang\s*=\s*[\"']?)([\w-]+)", re.IGNORECASE)
DIRECTION = re.compile(r"(\sdir\s*=\s*[\"']?)\w+", re.IGNORECASE)
ATTRIBUTE = re.compile(r"([^\s=>\"'/]+)(?:\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'>]+)))?")
BEGINS = re.compile(r"<(?:(/?[a-zA-Z])|[!?/])")
XHTML = re.compile(r"\s*<\?xml|[^<]*(?:<[!?][^>]*>[^<]*)*<html[^>]+xmlns\s*=", re.IGNORECASE)
RAW_TEXT = {
    name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE) for name in ("script", "style", "textarea", "iframe")
}


class Token(NamedTuple):
    """A part of a page: a start tag, an end tag, a whole element, text, or something else such as a comment."""

    kind: str
    raw: str
    name: str = ""
    kept: bool = False


def tokens(text: str) -> Iterator[Token]:
    """Split a page into tokens whose raw texts concatenate to it. An unclosed tag or comment runs to the page's end."""
    at, last, absent, is_xml, foreign = 0, text.rfind(">"), set[str](), bool(XHTML.match(text)), 0

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
            token = _tag(tag, is_xml=is_xml or foreign > 0) if tag else Token("other", text[begin:])
            if token.kind == "begin" and token.name in RAW_TEXT and token.name not in SCRIPTS:
                hides = token.name not in absent and RAW_TEXT[token.name].search(text, begin)
                absent.update([] if hides else [token.name])
                token = token if hides else token._replace(kind="alone")
        elif text.startswith("<!--", begin):
            token = Token("other", text[begin : end_of("-->", begin + 2)])
        else:
            data = end_of("]]>", begin) if text.startswith("<![CDATA[", begin) else None
            token = Token("other", text[begin : data or end_of(">", begin)])
        if at < begin:
            yield Token("text", text[at:begin])
        yield token
        at = begin + len(token.raw)
        if token.name in FOREIGN and token.kind != "alone":
            foreign = max(0, foreign + (1 if token.kind == "begin" else -1))
        if token.kind == "begin" and token.name in RAW_TEXT and not foreign:
            end = RAW_TEXT[token.name].search(text, at)
            yield Token("text", text[at : end.start() if end else len(text)])
            at = end.start() if end else len(text)
    if at < len(text):
        yield Token("text", text[at:])


def _tag(tag: re.Match[str], *, is_xml: bool) -> Token:
    """The token of a tag, with the attributes that exclude its element from translation."""
    name, given = tag[2].lower(), {}
    if "translate" in tag[3].lower():
        given = {key.lower(): one or two or three for key, one, two, three in ATTRIBUTE.findall(tag[3])}
    kept = given.get("translate", "").lower() == "no" or "notranslate" in given.get("class", "").split()
    closed = tag[3].endswith("/") and not re.search(r"=[^\s\"']*$", tag[3])
    alone = name in EMPTY or (closed and (is_xml or name in INLINE | FOREIGN | {"iframe"}))
    return Token("end" if tag[1] else "alone" if alone else "begin", tag[0], name, kept)


def html_parts(text: str, languages: Languages) -> Parts:
    """Split a page into segments, one per block of text, and raw markup between them. `languages` is not used."""
    page, run, at = list(tokens(text)), list[Piece](), 0
    ends = _ends(page)
    while at < len(page):
        token, last = page[at], ends.get(at, at + 1)
        if token.kind == "text":
            run += raw_pieces(decoded(token.raw))
        elif token.kind == "begin" and (token.name in NO_TEXT | CODE or token.kept):
            inside = page[at:last]
            at, raw = last - 1, "".join(one.raw for one in inside)
            shown = "".join(character for one in inside if one.kind == "text" for character, _ in decoded(one.raw))
            if token.name in FOREIGN | SCRIPTS:
                run.append(Piece("void", raw, joins=token.name in SCRIPTS))
            elif token.name not in INLINE | CODE:
                yield from _segments(run)
                run = []
                yield raw
            else:
                shown = " ".join(shown.split())
                run.append(Piece("atom", raw, shown) if shown else Piece("void", raw))
        elif token.name in ALONE | FOREIGN | SCRIPTS or (token.name in INLINE | CODE and token.kind == "alone"):
            run.append(Piece("void", token.raw, joins=token.name in {"wbr"} | SCRIPTS))
        elif token.kind == "other" and token.raw.startswith("<!--"):
            run.append(Piece("void", token.raw, joins=True))
        elif token.name in INLINE:
            run.append(Piece("open" if token.kind == "begin" else "close", token.raw, key=token.name))
        else:
            yield from _segments(run)
            run = []
            yield token.raw
        at += 1
    yield from _segments(run)


def attribute_parts(text: str, languages: Languages) -> Parts:
    """Split a page into the texts in attributes, which readers see or hear, and all else. `languages` is not used."""
    page, at = list(tokens(text)), 0
    ends = _ends(page)
    while at < len(page):
        token, last = page[at], ends.get(at, at + 1)
        is_read = token.kind in ("begin", "alone") and not token.kept
        yield from _attributes(token) if is_read else [token.raw]
        if token.kept or (token.kind == "begin" and token.name in NO_TEXT):
            yield "".join(one.raw for one in page[at + 1 : last])
            at = last - 1
        at += 1


def _attributes(token: Token) -> Parts:
    """The texts of a tag's attributes, and what is between them."""
    at, found = 0, [(one[1].lower(), one) for one in ATTRIBUTE.finditer(token.raw, len(token.name) + 1)]
    is_described = any(
        name == "name" and "description" in map(str.lower, filter(None, one.groups()[1:])) for name, one in found
    )
    for name, one in found:
        number = one.lastindex or 1
        if number > 1 and (name in TRANSLATED or (token.name == "meta" and name == "content" and is_described)):
            yield token.raw[at : one.start(number)]
            yield _value(one[number], "" if number == 4 else "\"'"[number - 2])
            at = one.end(number)
    yield token.raw[at:]


def _value(value: str, quote: str) -> Segment:
    """The value of an attribute in these quotes. A translation of a value without quotes gets some."""

    def escaped(text: str) -> str:
        return html_escape(text).replace(quote or '"', "&#39;" if quote == "'" else "&quot;")

    mended = None if quote else '"{}"'.format
    return Segment(list(raw_pieces(decoded(value))), escaped, value, least=escaped, mended=mended)


def visible(text: str) -> int:
    """The number of characters of the texts of a page, without white space and scripts."""
    page = list(tokens(text))
    pairs = zip([Token("other", ""), *page], page, strict=False)
    return sum(size(unescape(one.raw)) for before, one in pairs if one.kind == "text" and before.name not in SCRIPTS)


def relabelled(text: str, languages: Languages) -> str:
    """A translated page whose root declares the target language if it declared the source language."""
    root, own = ROOT.search(text), base_language(languages.source)
    if root is None or not languages.target:
        return text

    def declared(match: re.Match[str]) -> str:
        changes = base_language(match[2]) == own and not same_writing(match[2], languages.target)
        return match[1] + (languages.target if changes else match[2])

    tag, direction = LANGUAGE.sub(declared, root[0]), "rtl" if is_right_to_left(languages.target) else "ltr"
    if DIRECTION.search(tag):
        tag = DIRECTION.sub(rf"\g<1>{direction}", tag)
    elif direction == "rtl":
        tag = f'{tag[:-1]} dir="rtl">'
    return text[: root.start()] + tag + text[root.end() :]


def _ends(page: Sequence[Token]) -> dict[int, int]:
    """The index of the token after each element, by the index of its start tag, as browsers find it.

    An element whose end tag is missing ends where another element begins that it cannot contain, or with its parent.
    """
    ends, stack, count = dict[int, int](), list[int](), Counter[str]()

    def close(number: int, end: int) -> None:
        """End the elements from `number` of the stack on."""
        for begin in stack[number:]:
            ends[begin] = end
            count[page[begin].name] -= 1
        del stack[number:]

    def innermost(names: set[str], around: set[str]) -> int | None:
        """The element of the stack with one of the names, but not outside an element of `around`."""
        if not any(count[name] for name in names):
            return None
        for number in range(len(stack) - 1, -1, -1):
            if (name := page[stack[number]].name) in names:
                return number
            if name in around:
                break
        return None

    for at, token in enumerate(page):
        if token.kind in ("begin", "alone"):
            names, around = IMPLIED.get(token.name, (set(), set()))
            while (number := innermost(names, around)) is not None:
                close(number, at)
            if token.kind == "begin":
                stack.append(at)
                count[token.name] += 1
        elif token.kind == "end":
            around = {"table"} if token.name not in ("table", "body", "html") else set()
            number = innermost({token.name}, around - {token.name})
            if number is not None and token.name in INLINE | CODE:
                blocks = [one for one in stack[number + 1 :] if page[one].name not in INLINE | CODE]
                if blocks:  # inline elements end without the blocks in them
                    ends[stack[number]] = at + 1
                    count[token.name] -= 1
                    del stack[number]
                    continue
            if number is not None:
                closed = stack[number]
                close(number, at)
                ends[closed] = at + 1
    close(0, len(page))
    return ends


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
