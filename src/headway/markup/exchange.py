"""XLIFF 1.2 and 2, and TMX: segments without a translation are translated."""

import html
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from xml.parsers import expat

from headway.core.errors import UserError
from headway.core.languages import nearest_variant
from headway.markup.accelerators import find, put_back
from headway.markup.documents import Languages, Parts, Unit, check_language
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
COPIED = {"new", "initial"}  # states in which a target with the text of its source is no translation
REVIEW = "needs-review-translation"  # a state of XLIFF 1.2
QT = "urn:trolltech:names:ts:document:1.0"  # a namespace in XLIFF of Qt's tools, whose labels have accelerators


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

    @property
    def shown(self) -> str:
        """The text in it, without tags and entities."""
        own = self.text or ""
        return "".join([own if self.raw.startswith("<!") else html.unescape(own), *(part.shown for part in self.parts)])

    def of(self, *names: str) -> "list[Element]":
        return [part for part in self.parts if part.name in names]

    def holds(self, name: str, value: str) -> bool:
        """Whether it or an element in it has this value of an attribute."""
        return self.attributes.get(name) == value or any(part.holds(name, value) for part in self.parts)


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


def pieces(parts: Sequence[Element], *, translate: bool = True) -> Iterator[Piece]:
    """The pieces of a segment's content. What must not be translated is an atom."""
    at = 0
    while at < len(parts):
        part, at = parts[at], at + 1
        allowed = translated(part, translate)
        if part.text is not None:
            written = [(one, html_escape(one)) for one in part.text] if part.raw.startswith("<!") else decoded(part.raw)
            yield from raw_pieces(written) if translate else [_atom([part])]
        elif part.name in AROUND and part.end and (allowed or part.holds("translate", "yes")):
            yield Piece("open", part.raw, key=part.name)
            yield from pieces(part.parts, translate=allowed)
            yield Piece("close", part.end, key=part.name)
        elif part.name == "sm" and not allowed and (end := _end_of(parts, at - 1)):
            yield _atom(parts[at - 1 : end])
            at = end
        elif part.name in BEGINS or part.name in ENDS:
            kind, key = ("open", BEGINS[part.name]) if part.name in BEGINS else ("close", ENDS[part.name])
            yield Piece(kind, part.whole, key=part.attributes.get(key) or part.attributes.get("id", ""))  # type: ignore[arg-type]
        else:
            yield _atom([part]) if part.name in AROUND else Piece("void", part.whole)


def translated(element: Element, inherited: bool) -> bool:
    """Whether the content of an element is translated, by its own attribute or as that of the element around it."""
    own = element.attributes.get("translate")
    return own == "yes" or (own is None and inherited and element.attributes.get("mtype") != "protected")


def _end_of(parts: Sequence[Element], begin: int) -> int | None:
    """The index after the marker that ends the one at `begin`."""
    name = parts[begin].attributes.get("id")
    ends = (at + 1 for at, one in enumerate(parts) if one.name == "em" and one.attributes.get("startRef") == name)
    return next(ends, None)


def _atom(parts: Sequence[Element]) -> Piece:
    """Content that must not be translated: a placeholder, or a single tag if it has no text."""
    raw, text = "".join(part.whole for part in parts), "".join(part.shown for part in parts)
    return Piece("atom", raw, text.strip()) if text.strip() else Piece("void", raw)


def segment(element: Element) -> Segment:
    return Segment(list(pieces(element.parts)), html_escape)


def _has_text(element: Element) -> bool:
    return bool(element.shown.strip())


def xliff_parts(text: str, languages: Languages) -> Parts:
    """The parts of a document, with units for those without a target, or with one that is no translation."""
    root = parse(text)
    if not root.of("xliff"):
        raise UserError("this is no XLIFF", where="1", allowed="the root element xliff")
    for one in (xliff := root.of("xliff")[0], *xliff.of("file")):
        given, line = one.attributes, text[: text.find(one.raw)].count("\n") + 1
        check_language(given.get("source-language") or given.get("srcLang"), languages, "source", line)
        check_language(given.get("target-language") or given.get("trgLang"), languages, "target", line)
    unit = partial(_unit, language=languages.target, marks="&" * (QT in xliff.attributes.values()))
    parts = list(_units(root, unit, translate=True))
    if xliff.attributes.keys() & {"srcLang", "trgLang"} == {"srcLang"} and any(isinstance(one, Unit) for one in parts):
        parts[parts.index(xliff.raw)] = _with(xliff.raw, "trgLang", languages.target.replace("_", "-") or None)
    yield from parts


def _units(element: Element, unit: Callable[[Element, bool], Unit], *, translate: bool) -> Parts:
    yield element.raw
    for part in element.parts:
        allowed = translated(part, translate)
        if not part.name:
            yield part.raw
        elif part.name in ("trans-unit", "segment") and part.of("source"):
            yield unit(part, allowed) if _is_open(part, allowed) else part.whole
        else:
            yield from _units(part, unit, translate=allowed)
    yield element.end


def _is_open(unit: Element, translate: bool) -> bool:
    """Whether a unit is to be translated. A target with another text than its source is a person's."""
    source, target = unit.of("source")[0], next(iter(unit.of("target")), None)
    state = (target if unit.name == "trans-unit" and target else unit).attributes.get("state")
    if unit.attributes.get("approved") == "yes" or not (translate or source.holds("translate", "yes")):
        return False
    copied = state in COPIED and target is not None and target.shown.split() == source.shown.split()
    return _has_text(source) and (target is None or not _has_text(target) or copied or state == "needs-translation")


def _unit(unit: Element, translate: bool, language: str, marks: str) -> Unit:
    """A unit whose target is filled. A new target has the place and the segments that the schemas ask for.

    Its label may have an accelerator of `marks`, which is put back as in labels of `language`.
    """
    target, last = next(iter(unit.of("target")), None), unit.of("source", "seg-source")[-1]
    contents, found = list(_contents(last.parts, translate)), None
    if marks and len(last.parts) == 1 and last.parts[0].text is not None and (found := find(last.shown, marks)):
        characters = decoded(last.parts[0].raw)
        contents = [Segment(list(raw_pieces(characters[: found[0]] + characters[found[1] :])), html_escape)]

    def write(translations: Sequence[str], final: bool) -> str:
        remaining, begin, close = iter(translations), unit.raw, unit.of("source")[0].end.replace("source", "target")
        opened = _begun(target) if target else close.replace("</", "<")
        if unit.name == "segment":
            begin = _with(begin, "state", "translated", add=not final)
            begin = _with(begin, "subState", None if final else f"headway:{REVIEW}")
        else:
            opened = _with(opened, "state", "translated" if final else REVIEW, add=not final)
            opened = _with(opened, "state-qualifier", None)
        inside = "".join(next(remaining) if isinstance(one, Segment) else one for one in contents)
        if found:
            inside = put_back(found[2]._replace(mark=html_escape(found[2].mark)), inside, language)
        filled, out = f"{opened}{inside}{close}", begin
        for number, part in enumerate(unit.parts):
            out += filled if part is target else part.whole
            if part is last and target is None:
                indent = unit.parts[number - 1] if number else part
                out += (indent.raw if indent.text is not None else "") + filled
        return out + unit.end

    return Unit([one for one in contents if isinstance(one, Segment)], write, unit.whole)


def _contents(parts: Sequence[Element], translate: bool) -> Iterator[str | Segment]:
    """The content of a target: a segment for each `<mrk mtype="seg">`, or for all of it."""
    within = list[Element]()
    for part in [*parts, None]:
        if part is not None and not part.holds("mtype", "seg"):
            within.append(part)
            continue
        raw = "".join(one.whole for one in within)
        yield Segment(list(pieces(within, translate=translate)), html_escape) if any(map(_has_text, within)) else raw
        within = []
        if part is not None:
            yield part.raw
            yield from _contents(part.parts, translated(part, translate))
            yield part.end


def _begun(element: Element) -> str:
    """The start tag of an element that gets content."""
    return element.raw if element.end else element.raw.rstrip("/>").rstrip() + ">"


def _with(tag: str, name: str, value: str | None, *, add: bool = True) -> str:
    """A start tag with another value of an attribute, or without it. An attribute that is not there is added."""
    there = re.search(rf"\s+{name}\s*=\s*(?:\"[^\"]*\"|'[^']*')", tag)
    end = len(tag.rstrip("/>").rstrip())
    begin, end = there.span() if there else (end, end)
    written = f' {name}="{html.escape(value)}"' if value is not None and (there or add) else ""
    return tag[:begin] + written + tag[end:]


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
                        yield _begun(inner) if inner.name == "seg" else inner.whole
                        if inner.name == "seg":
                            yield segment(source.of("seg")[0])
                            yield source.of("seg")[0].end
                    yield one.end
                    continue
                yield one.whole
                if one is source and target is None:
                    before = part.parts[number - 1] if number else None
                    yield before.raw if before is not None and before.text is not None else ""
                    seg = one.of("seg")[0]
                    name = "xml:lang" if "xml:lang" in one.attributes else "lang"
                    yield _with(one.end.replace("</", "<"), name, languages.target.replace("_", "-")) + seg.raw
                    yield segment(seg)
                    yield seg.end + one.end
            yield part.end
        elif part.name in ("tmx", "body"):
            yield from _memory(part, languages)
        else:
            yield part.whole
    yield element.end
