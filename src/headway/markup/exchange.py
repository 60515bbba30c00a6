"""XLIFF 1.2 and 2, and TMX: segments without a translation are translated."""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.parsers import expat

from headway.core.errors import UserError
from headway.core.languages import nearest_variant
from headway.markup.documents import Languages, Parts, check_language
from headway.markup.inline import DEEPEST, Piece, Segment
from headway.markup.translating import decoded, html_escape, raw_pieces

PART = re.compile(
    r"<!--.*?-->|<\?.*?\?>|<!\[CDATA\[(?P<data>.*?)\]\]>|<!DOCTYPE[^>]*>"
    r"|<(?P<slash>/?)(?P<name>[^\s/>!?]+)(?P<given>(?:[^>\"']|\"[^\"]*\"|'[^']*')*?)(?P<alone>/?)>|(?P<text>[^<]+)",
    re.DOTALL,
)
ATTRIBUTE = re.compile(r"([\w:.-]+)\s*=\s*(?:\"([^\"]*)\"|'([^']*)')")
AROUND = {"g", "mrk", "pc", "hi"}  # inline elements with translatable content
BEGINS, ENDS = {"bpt": "i", "bx": "rid", "sc": "id"}, {"ept": "i", "ex": "rid", "ec": "startRef"}
DONE = {"translated", "final", "signed-off", "reviewed"}


@dataclass
class Element:
    """A node of an XML document: an element with its child nodes, or text, comments and the like (without a name)."""

    raw: str
    name: str = ""
    attributes: dict[str, str] = field(default_factory=dict)
    text: str | None = None
    parts: "list[Element]" = field(default_factory=list)
    end: str = ""

    @property
    def whole(self) -> str:
        return "".join([self.raw, *(part.whole for part in self.parts), self.end])

    def of(self, *names: str) -> "list[Element]":
        return [part for part in self.parts if part.name in names]


def parse(text: str) -> Element:
    """Parse a document into a node around its root. Raises UserError if it is not XML, or declares entities."""
    parser = expat.ParserCreate("utf-8")

    def refuse(*given: object) -> None:
        raise UserError("entities of its own are not read in a document", where=f"{parser.CurrentLineNumber}")

    parser.EntityDeclHandler = refuse
    try:
        parser.Parse(text.encode("utf-8"), True)
    except expat.ExpatError as error:
        what = f"this is not XML ({expat.errors.messages.get(error.code, error)})"
        raise UserError(what, where=f"{error.lineno}") from error
    stack = [Element("")]
    for match in PART.finditer(text):
        if match["name"] is None:
            shown = match["data"] if match["data"] is not None else match["text"]
            stack[-1].parts.append(Element(match[0], text=shown))
        elif match["slash"]:
            stack.pop().end = match[0]
        else:
            given = {name: one or other for name, one, other in ATTRIBUTE.findall(match["given"])}
            element = Element(match[0], match["name"].rpartition(":")[2], given)
            stack[-1].parts.append(element)
            stack += [] if match["alone"] else [element]
            if len(stack) > DEEPEST:
                what, line = "elements are nested too deep", text.count("\n", 0, match.start()) + 1
                raise UserError(what, where=f"{line}", received=len(stack), allowed=f"up to {DEEPEST}")
    return stack[0]


def pieces(element: Element) -> Iterator[Piece]:
    """The pieces of a segment's content."""
    for part in element.parts:
        if part.text is not None:
            written = [(one, html_escape(one)) for one in part.text] if part.raw.startswith("<!") else decoded(part.raw)
            yield from raw_pieces(written)
        elif part.name in AROUND and part.end and part.attributes.get("translate") != "no":
            yield Piece("open", part.raw, key=part.name)
            yield from pieces(part)
            yield Piece("close", part.end, key=part.name)
        elif part.name in BEGINS or part.name in ENDS:
            kind, key = ("open", BEGINS[part.name]) if part.name in BEGINS else ("close", ENDS[part.name])
            yield Piece(kind, part.whole, key=part.attributes.get(key) or part.attributes.get("id", ""))  # type: ignore[arg-type]
        elif part.name in AROUND and "".join(one.text or "" for one in part.parts).strip():
            yield Piece("atom", part.whole, "".join(one.text or "" for one in part.parts).strip())
        else:
            yield Piece("void", part.whole)


def segment(element: Element) -> Segment:
    return Segment(list(pieces(element)), html_escape)


def _has_text(element: Element) -> bool:
    return any(part.text.strip() if part.text is not None else _has_text(part) for part in element.parts)


def xliff_parts(text: str, languages: Languages) -> Parts:
    """The parts of a document, with segments for units without a target, or with an unfinished one."""
    root = parse(text)
    if not root.of("xliff"):
        raise UserError("this is no XLIFF", where="1", allowed="the root element xliff")
    for one in (xliff := root.of("xliff")[0], *xliff.of("file")):
        given, line = one.attributes, text[: text.find(one.raw)].count("\n") + 1
        check_language(given.get("source-language") or given.get("srcLang"), languages, "source", line)
        check_language(given.get("target-language") or given.get("trgLang"), languages, "target", line)
    yield from _units(root)


def _units(element: Element) -> Parts:
    yield element.raw
    for part in element.parts:
        if part.attributes.get("translate") == "no" or not part.name:
            yield part.whole
        elif part.name in ("trans-unit", "segment") and part.of("source"):
            yield from _unit(part)
        else:
            yield from _units(part)
    yield element.end


def _unit(unit: Element) -> Parts:
    source, target = unit.of("source")[0], next(iter(unit.of("target")), None)
    state = (target.attributes if unit.name == "trans-unit" and target else unit.attributes).get("state")
    kept = unit.attributes.get("approved") == "yes" or not _has_text(source)
    if kept or (target is not None and _has_text(target) and (state is None or state in DONE)):
        yield unit.whole
        return
    yield unit.raw if unit.name == "trans-unit" else _translated(unit.raw)
    for number, part in enumerate(unit.parts):
        if part is target:
            yield from _filled(target, source)
            continue
        yield part.whole
        if part is source and target is None:
            before = unit.parts[number - 1] if number else None
            yield before.raw if before is not None and before.text is not None else ""
            end = source.end.replace("source", "target")
            yield end.replace("</", "<")
            yield segment(source)
            yield end
    yield unit.end


def _filled(target: Element, source: Element) -> Parts:
    """The target element with the content of the source element as a segment."""
    name = re.match(r"<([^\s/>]+)", target.raw)
    assert name
    yield _translated(target.raw if target.end else target.raw.rstrip("/>").rstrip() + ">")
    yield segment(source)
    yield target.end or f"</{name[1]}>"


def _translated(tag: str) -> str:
    """A tag with its `state` attribute, if any, set to `translated`."""
    return re.sub(r"(\sstate\s*=\s*)(\"[^\"]*\"|'[^']*')", r'\1"translated"', tag)


def language_of(variant: Element) -> str:
    return variant.attributes.get("xml:lang") or variant.attributes.get("lang", "")


def variant(unit: Element, language: str, *, with_base: bool) -> Element | None:
    """The variant of a unit in a language (see `nearest_variant`), preferably one with text, or None."""
    all_of = [one for one in unit.of("tuv") if one.of("seg")]
    for some in ([one for one in all_of if _has_text(one.of("seg")[0])], all_of):
        code = nearest_variant(map(language_of, some), language, with_base=with_base)
        if code is not None:
            return next(one for one in some if language_of(one) == code)
    return None


def tmx_parts(text: str, languages: Languages) -> Parts:
    """The parts of a document, with segments for units that have the source but not the target language."""
    root = parse(text)
    if not root.of("tmx"):
        raise UserError("this is no TMX", where="1", allowed="the root element tmx")
    yield from _memory(root, languages)


def _memory(element: Element, languages: Languages) -> Parts:
    yield element.raw
    for part in element.parts:
        unit = part.name == "tu"
        source = variant(part, languages.source, with_base=True) if unit else None
        target = variant(part, languages.target, with_base=False) if unit else None
        if source and _has_text(source.of("seg")[0]) and not (target and _has_text(target.of("seg")[0])):
            yield part.raw
            for number, one in enumerate(part.parts):
                if one is target:
                    yield one.raw
                    for inner in one.parts:
                        yield from _filled(inner, source.of("seg")[0]) if inner.name == "seg" else [inner.whole]
                    yield one.end
                    continue
                yield one.whole
                if one is source and target is None:
                    before = part.parts[number - 1] if number else None
                    yield before.raw if before is not None and before.text is not None else ""
                    seg = one.of("seg")[0]
                    name = "xml:lang" if "xml:lang" in one.attributes else "lang"
                    yield f'{one.end.replace("</", "<")[:-1]} {name}="{html.escape(languages.target)}">{seg.raw}'
                    yield segment(seg)
                    yield seg.end + one.end
            yield part.end
        elif part.name in ("tmx", "body"):
            yield from _memory(part, languages)
        else:
            yield part.whole
    yield element.end
