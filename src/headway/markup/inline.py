"""Text with inline markup: tags, placeholders and line breaks find their places in a translation by its alignment.

A target character's origin is the offset of the source unit (a word, a punctuation mark, a placeholder) that it
translates, or -1. A tag goes around the stretch of the target in which characters of its own origin outnumber others.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import accumulate, pairwise
from typing import Literal, NamedTuple

from headway.core.languages import WIDE

Span = tuple[int, int]
Kind = Literal["text", "open", "close", "void", "atom", "space", "break", "cut"]
MASK = "\ue000\ue001"  # in turn for the placeholders of a text, so that neighbours stay two
UNIT = re.compile(rf"{MASK[0]}+|{MASK[1]}+|[{WIDE}]|\d+|[^\W\d_{WIDE}]+(?:['’-][^\W\d_{WIDE}]+)*|[^\s{MASK}]")


class Aligned(NamedTuple):
    """A translation, with the characters of source and target that belong together; without links it is aligned by
    equal words and positions.
    """

    text: str
    links: Sequence[tuple[Span, Span]] = ()


class Piece(NamedTuple):
    """A part of a segment: `raw` as the document has it, `text` as it is read.

    `open` and `close` with one `key` are a pair of tags, `void` is a tag alone, `atom` a placeholder. Of white space,
    `space` may be lost, `break` not, and `cut` ends a part that no tag and no word crosses, such as a subtitle.
    """

    kind: Kind
    raw: str
    text: str = ""
    key: str = ""


@dataclass(frozen=True)
class Segment:
    """Text that is translated together.

    Attributes:
        pieces: its parts.
        escape: writes text as the document has it.
        original: the segment as the document has it, where that is more than the pieces say.
        accepts: whether a translation, as the document would have it, keeps the markup.
    """

    pieces: Sequence[Piece]
    escape: Callable[[str], str] = str
    original: str = ""
    accepts: Callable[[str], bool] = bool

    @property
    def text(self) -> str:
        """The text without markup."""
        return "".join(piece.text for piece in self.pieces)

    @property
    def raw(self) -> str:
        """The segment as the document has it."""
        return self.original or "".join(piece.raw for piece in self.pieces)

    def spans(self) -> Iterator[tuple[Piece, Span]]:
        """The pieces with their characters of `text`."""
        at = 0
        for piece in self.pieces:
            yield piece, (at, at + len(piece.text))
            at += len(piece.text)


@dataclass
class Target:
    """A translation under construction: each character with its origin, and where its placeholders are."""

    text: str = ""
    origin: list[int] = field(default_factory=list)
    atoms: list[tuple[Span, Piece]] = field(default_factory=list)

    def add(self, text: str, origin: Sequence[int], atoms: Sequence[tuple[Span, Piece]] = ()) -> None:
        """Append a text with placeholders, which are counted from its beginning."""
        shift = len(self.text)
        self.text += text
        self.origin += origin
        self.atoms += [((begin + shift, end + shift), piece) for (begin, end), piece in atoms]


@dataclass
class _Node:
    """A tag, alone or around source characters `span`, with the tags in it."""

    span: Span
    begin: str = ""
    end: str = ""
    children: "list[_Node]" = field(default_factory=list)


def masked(text: str, spans: Sequence[Span]) -> str:
    """A text whose placeholders are `MASK`."""
    for number, (begin, end) in enumerate(spans):
        text = text[:begin] + MASK[number % 2] * (end - begin) + text[end:]
    return text


def unpaired(pieces: Sequence[Piece]) -> set[int]:
    """The numbers of tags whose partner is not there, or beyond the beginning or end of another pair, or of a part."""
    open_ones, lone = list[int](), set[int]()
    for number, piece in enumerate(pieces):
        if piece.kind == "open":
            open_ones.append(number)
        elif piece.kind == "cut":
            lone.update(open_ones)
            open_ones = []
        elif piece.kind == "close":
            partner = next((one for one in reversed(open_ones) if pieces[one].key == piece.key), None)
            if partner is None:
                lone.add(number)
                continue
            while (last := open_ones.pop()) != partner:
                lone.add(last)
    return lone | set(open_ones)


def origins(source: str, target: str, links: Sequence[tuple[Span, Span]]) -> list[int]:
    """The origin of each target character; source and target are masked."""
    origin = [-1] * len(target)
    units, theirs = ([match.span() for match in UNIT.finditer(text)] for text in (source, target))
    for (begin, end), (first, last) in links or _by_position(source, target, units, theirs):
        ours = [unit for unit in units if unit[0] < end and unit[1] > begin]
        words = [unit for unit in ours if source[unit[0]].isalnum()]
        inside = [unit for unit in theirs if unit[0] < last and unit[1] > first]
        count = sum(target[one].isalnum() for one, _ in inside)
        seen = 0
        for one, after in inside:
            same = [unit for unit in ours if source[slice(*unit)].casefold() == target[one:after].casefold()]
            is_word = target[one].isalnum()
            found = same[:1] or (words[seen * len(words) // count :][:1] if is_word and words else [])
            seen += is_word
            for unit in found:
                origin[one:after] = [unit[0]] * (after - one)
    return origin


def _by_position(
    source: str, target: str, units: Sequence[Span], theirs: Sequence[Span]
) -> Iterator[tuple[Span, Span]]:
    """Links between equal units in the same order, and between those around them as far along."""
    ours, others = [source[slice(*one)].casefold() for one in units], [target[slice(*one)].casefold() for one in theirs]
    for kind, begin, end, first, last in SequenceMatcher(None, ours, others, autojunk=False).get_opcodes():
        if kind == "equal":
            yield from zip(units[begin:end], theirs[first:last], strict=True)
        elif kind == "replace":
            for number in range(first, last):
                yield units[begin + (number - first) * (end - begin) // (last - first)], theirs[number]


def point(offset: int, source: str, target: str, origin: Sequence[int], low: int, high: int) -> int:
    """The place in a target for what stands at `offset` of the source, both masked, without text of its own.

    It goes before the translation of what follows it, or behind that of what it is attached to.
    """
    where, units = dict[int, Span](), [match.start() for match in UNIT.finditer(source)]
    for at in range(low, high):
        if origin[at] >= 0 and not target[at].isspace():
            where[origin[at]] = where.get(origin[at], (at, at))[0], at + 1
    cut = bisect_left(units, offset)
    after = [where[unit][0] for unit in units[cut:] if unit in where][:1]
    before = [where[unit][1] for unit in reversed(units[:cut]) if unit in where][:1]
    attached = offset > 0 and not source[offset - 1].isspace() and not source[offset : offset + 1].strip()
    return next(iter(before + after if attached else after + before), high if units[:cut] else low)


def rendered(segment: Segment, target: Target) -> str:
    """The translation with the markup of the segment: every tag once, every pair around what it was around."""
    source = segment.text
    if target.text == source:
        return segment.raw
    spans = list(segment.spans())
    placing = _Placing(segment, masked(source, [span for piece, span in spans if piece.kind == "atom"]), target)
    cuts, lone = placing.cuts(spans), unpaired(segment.pieces)
    out, begin, low, first = list[str](), 0, 0, 0
    for number, (piece, (at, after)) in enumerate([*spans, (Piece("cut", ""), (len(source), len(source)))]):
        if piece.kind == "cut":
            high, next_low = cuts.get(number, (len(target.text),) * 2)
            root = _tree(spans[first:number], [one in lone for one in range(first, number)], begin, at)
            out += [placing.text(root, low, high), piece.raw]
            begin, low, first = after, next_low, number + 1
    return "".join([*out, *placing.before.values()])


def _tree(spans: Sequence[tuple[Piece, Span]], lone: Sequence[bool], begin: int, end: int) -> _Node:
    """The tags among some pieces; one without a partner stands alone."""
    stack = [_Node((begin, end))]
    for (piece, (at, _)), alone in zip(spans, lone, strict=True):
        if piece.kind == "void" or (alone and piece.kind in ("open", "close")):
            stack[-1].children.append(_Node((at, at), piece.raw))
        elif piece.kind == "open":
            stack.append(_Node((at, at), piece.raw))
        elif piece.kind == "close":
            node = stack.pop()
            node.span, node.end = (node.span[0], at), piece.raw
            stack[-1].children.append(node)
    return stack[0]


class _Placing:
    """The places of one segment's markup in its translation.

    Attributes:
        before: what is written before a target character, by its number.
        instead: what is written in the place of target characters, by the number of the first, and where they end.
    """

    def __init__(self, segment: Segment, source: str, target: Target) -> None:
        self.segment, self.source, self.target = segment, source, target
        self.masked = masked(target.text, [span for span, _ in target.atoms])
        self.units = [match.start() for match in UNIT.finditer(source)]
        self.before = dict[int, str]()
        self.instead = {begin: (end, piece.raw) for (begin, end), piece in target.atoms}

    def cuts(self, spans: Sequence[tuple[Piece, Span]]) -> dict[int, Span]:
        """The white space that each cut takes, by its number; spaces and breaks are written as they come."""
        text, low, taken = self.masked, 0, dict[int, Span]()
        exact = {origin: at for at, origin in enumerate(self.target.origin) if origin >= 0 and text[at].isspace()}
        for number, (piece, (offset, _)) in enumerate(spans):
            if piece.kind not in ("space", "break", "cut"):
                continue
            at = exact[offset] if offset in exact else self._split(offset, low, piece.kind != "space", exact)
            if at is None:
                continue
            at = max(at, low)
            low = at + (at < len(text) and text[at].isspace())
            if piece.kind == "cut":
                taken[number] = at, low
            elif low > at:
                self.instead[at] = low, piece.raw
            else:
                self.before[at] = self.before.get(at, "") + piece.raw
        return taken

    def _split(self, offset: int, low: int, kept: bool, exact: dict[int, int]) -> int | None:
        """The place from `low` on with most of what comes before `offset` before it, and most of the rest behind it."""
        text, origin = self.masked, self.target.origin
        begin = max(low, max((at + 1 for one, at in exact.items() if one < offset), default=0))
        end = max(begin, min((at for one, at in exact.items() if one > offset), default=len(text)))
        places = [at for at in range(begin, end) if text[at].isspace()]
        if kept and not places:
            places = [match.end() for match in UNIT.finditer(text) if begin < match.end() < end] or [begin]
        scores = accumulate((0 <= one < offset) - (one >= offset) for one in origin[begin:end])
        so_far = dict(enumerate(scores, start=begin + 1))
        return max(places, key=lambda at: so_far.get(at, 0), default=None)

    def text(self, node: _Node, low: int, high: int) -> str:
        """The target from `low` to `high` with the tags of a node in it."""
        taken = list[tuple[Span, int]]()
        for number, child in sorted(enumerate(node.children), key=lambda one: one[1].span[0] - one[1].span[1]):
            taken.append((self._stretch(child, node, low, high, [span for span, _ in taken]), number))
        out, at = list[str](), low
        for (begin, end), number in sorted(taken):
            child = node.children[number]
            before, after = ("", "") if child.end else self._spaces_beside(child.span[0], begin)
            inside = self.text(child, begin, end)
            out += [self._copy(at, begin), before, child.begin, inside, child.end, after]
            at = end
        return "".join([*out, self._copy(at, high)])

    def _spaces_beside(self, offset: int, at: int) -> tuple[str, str]:
        """The spaces that keep a tag at `at` apart from the words beside it, where it is so in the source."""
        if not (self.source[max(0, offset - 1) : offset].isspace() and self.source[offset : offset + 1].isspace()):
            return "", ""
        return " " * bool(self.masked[max(0, at - 1) : at].strip()), " " * bool(self.masked[at : at + 1].strip())

    def _stretch(self, child: _Node, parent: _Node, low: int, high: int, taken: Sequence[Span]) -> Span:
        """The characters that a tag goes around."""
        (first, last), source, text = child.span, self.source, self.masked
        if bisect_left(self.units, first) == bisect_left(self.units, last) and source[first:last].strip():
            first = self.units[bisect_left(self.units, first) - 1]  # within a word: around all of it
        bounds = sorted([(low, low), *taken, (high, high)])
        gaps = [(before, after) for (_, before), (after, _) in pairwise(bounds)]
        begin = end = low
        if not (source[parent.span[0] : first] + source[last : parent.span[1]]).strip():
            begin, end = high - len(text[low:high].lstrip()), low + len(text[low:high].rstrip())
        elif source[first:last].strip():
            begin, end = max((self._densest(first, last, *gap) for gap in gaps), key=lambda found: found[0])[1]
        if source[first:last].strip() and begin < end:
            gap = next((gap for gap in gaps if gap[0] <= begin and end <= gap[1]), (begin, end))
            begin -= source[first].isspace() and begin > gap[0] and text[begin - 1].isspace()
            end += source[last - 1].isspace() and end < gap[1] and text[end].isspace()
            return begin, end
        at = point(first, source, text, self.target.origin, low, high)
        if source[first:last].strip():  # no tag around words goes around none
            words = [match.span() for match in UNIT.finditer(text, low, high)]
            free = [word for word in words if any(gap[0] <= word[0] and word[1] <= gap[1] for gap in gaps)]
            if free:
                return min(free, key=lambda word: (not text[word[0]].isalnum(), abs(word[0] - at)))
        inside = next((one for one in taken if one[0] < at < one[1]), (at,))
        at = min(inside, key=lambda edge: abs(edge - at))
        return at, at

    def _densest(self, first: int, last: int, low: int, high: int) -> tuple[int, Span]:
        """The stretch with the most characters of origins from `first` to `last` beyond others, and how many more."""
        best, total, begin = (0, (low, low)), 0, low
        for at in range(low, high):
            origin = -1 if self.masked[at].isspace() else self.target.origin[at]
            if total <= 0:
                total, begin = 0, at
            total += (first <= origin < last) - (origin >= last or 0 <= origin < first)
            if total > best[0]:
                best = total, (begin, at + 1)
        return best

    def _copy(self, begin: int, end: int) -> str:
        """Target characters as the document writes them."""
        out, run, at = list[str](), begin, begin
        while at < end:
            if at in self.before:
                out += [self._escaped(run, at), self.before.pop(at)]
                run = at
            if at in self.instead:
                after, raw = self.instead[at]
                out += [self._escaped(run, at), raw]
                run = at = after
            else:
                at += 1
        return "".join([*out, self._escaped(run, end)])

    def _escaped(self, begin: int, end: int) -> str:
        return self.segment.escape(self.target.text[begin:end]) if begin < end else ""
