"""Text with inline markup. Tags, placeholders and line breaks are placed in the translation by word alignment.

A target character's origin is the offset of the source unit (a word, a punctuation mark, a placeholder) that it
translates, or -1. A tag is placed around the stretch of the target in which characters from its content prevail most.
"""

import re
import sys
from bisect import bisect_left, bisect_right, insort
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Literal, NamedTuple

from headway.core.languages import WIDE

DEEPEST = 100  # the maximum nesting of tags

Span = tuple[int, int]
Kind = Literal["text", "open", "close", "void", "atom", "space", "break", "cut"]
MASK = "\ue000\ue001"  # used alternately, so that adjacent placeholders stay separate
UNIT = re.compile(rf"{MASK[0]}+|{MASK[1]}+|[{WIDE}]|\d+|[^\W\d_{WIDE}]+(?:['’-][^\W\d_{WIDE}]+)*|[^\s{MASK}]")


class Aligned(NamedTuple):
    """A translation with aligned spans of source and target. Without links, equal words and positions are aligned."""

    text: str
    links: Sequence[tuple[Span, Span]] = ()


class Piece(NamedTuple):
    """A part of a segment: `raw` as written in the document, `text` as it is read.

    `open` and `close` with the same `key` are a pair of tags, `void` is a single tag, `atom` a placeholder. White space
    may be removed if it is `space`, but not if it is `break`. `cut` ends a part that no tag and no word crosses, such
    as a subtitle.
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
        escape: escapes text for the document.
        original: the segment as written in the document, if this differs from its pieces.
        accepts: whether a translation, as written in the document, keeps the markup.
    """

    pieces: Sequence[Piece]
    escape: Callable[[str], str] = str
    original: str = ""
    accepts: Callable[[str], bool] = bool

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)

    @property
    def raw(self) -> str:
        """The segment as written in the document."""
        return self.original or "".join(piece.raw for piece in self.pieces)

    def spans(self) -> Iterator[tuple[Piece, Span]]:
        """The pieces with their spans in `text`."""
        at = 0
        for piece in self.pieces:
            yield piece, (at, at + len(piece.text))
            at += len(piece.text)


@dataclass
class Target:
    """A translation under construction.

    Attributes:
        text: its characters.
        origin: the origin of each character.
        atoms: its placeholders, with their spans.
        sentences: the start of each sentence in the source and in `text`.
    """

    text: str = ""
    origin: list[int] = field(default_factory=list)
    atoms: list[tuple[Span, Piece]] = field(default_factory=list)
    sentences: list[tuple[int, int]] = field(default_factory=list)

    def add(self, text: str, origin: Sequence[int], atoms: Sequence[tuple[Span, Piece]] = ()) -> None:
        """Append a text with placeholders, whose spans are relative to it."""
        shift = len(self.text)
        self.text += text
        self.origin += origin
        self.atoms += [((begin + shift, end + shift), piece) for (begin, end), piece in atoms]

    def window(self, first: int, last: int) -> tuple[Span, Span]:
        """The spans, in the source and in `text`, of the sentences with source characters from `first` to `last`."""
        ends = [*self.sentences, (sys.maxsize, len(self.text))]
        begin = max(0, bisect_right(self.sentences, (first, sys.maxsize)) - 1)
        end = bisect_right(self.sentences, (max(first, last - 1), sys.maxsize))
        low, high = (ends[begin], ends[max(end, begin + 1)]) if self.sentences else ((0, 0), ends[0])
        return (low[0], high[0]), (low[1], high[1])


@dataclass
class _Node:
    """A tag, alone or around the source characters `span`, with the tags inside it."""

    span: Span
    begin: str = ""
    end: str = ""
    children: "list[_Node]" = field(default_factory=list)
    depth: int = 0


def masked(text: str, spans: Sequence[Span]) -> str:
    """Replace the placeholders of a text by `MASK`."""
    out, at = list[str](), 0
    for number, (begin, end) in enumerate(spans):
        out += [text[at:begin], MASK[number % 2] * (end - begin)]
        at = end
    return "".join([*out, text[at:]])


def unpaired(pieces: Sequence[Piece]) -> set[int]:
    """The indices of tags without a partner, or whose pair crosses another pair or the end of a part."""
    open_ones, lone, by_key = list[int](), set[int](), defaultdict[str, int](int)
    for number, piece in enumerate(pieces):
        if piece.kind == "open":
            open_ones.append(number)
            by_key[piece.key] += 1
        elif piece.kind == "cut":
            lone.update(open_ones)
            open_ones = []
            by_key.clear()
        elif piece.kind == "close" and not by_key[piece.key]:
            lone.add(number)
        elif piece.kind == "close":
            while pieces[last := open_ones.pop()].key != piece.key:
                by_key[pieces[last].key] -= 1
                lone.add(last)
            by_key[piece.key] -= 1
    return lone | set(open_ones)


def origins(source: str, target: str, links: Sequence[tuple[Span, Span]]) -> list[int]:
    """The origin of each target character. Placeholders of source and target are masked.

    White space between the translations of neighbouring units originates in the white space between these.
    """
    origin = [-1] * len(target)
    units, theirs = ([match.span() for match in UNIT.finditer(text)] for text in (source, target))
    ends, their_ends = [end for _, end in units], [end for _, end in theirs]
    for (begin, end), (first, last) in links or _by_position(source, target, units, theirs):
        ours = units[bisect_right(ends, begin) : bisect_left(units, (end,))]
        words = [unit for unit in ours if source[unit[0]].isalnum()]
        inside = theirs[bisect_right(their_ends, first) : bisect_left(theirs, (last,))]
        count = sum(target[one].isalnum() for one, _ in inside)
        seen = 0
        for one, after in inside:
            same = [unit for unit in ours if source[slice(*unit)].casefold() == target[one:after].casefold()]
            is_word = target[one].isalnum()
            found = same[:1] or (words[seen * len(words) // count :][:1] if is_word and words else [])
            seen += is_word
            for unit in found:
                origin[one:after] = [unit[0]] * (after - one)
    spaces = {(begin, after): end for (begin, end), (after, _) in pairwise(units) if end < after}
    for (one, end), (after, _) in pairwise(theirs):
        if end < after:
            origin[end] = spaces.get((origin[one], origin[after]), -1)
    return origin


def _by_position(
    source: str, target: str, units: Sequence[Span], theirs: Sequence[Span]
) -> Iterator[tuple[Span, Span]]:
    """Links between equal units in the same order, and between the units around them at the same relative positions."""
    equal = _in_order(
        *([text[slice(*one)].casefold() for one in ones] for text, ones in ((source, units), (target, theirs)))
    )
    at, other = 0, 0
    for begin, first in [*equal, (len(units), len(theirs))]:
        if at < begin:
            for number in range(other, first):
                yield units[at + (number - other) * (begin - at) // (first - other)], theirs[number]
        if begin < len(units):
            yield units[begin], theirs[first]
        at, other = begin + 1, first + 1


def _in_order(ours: Sequence[str], others: Sequence[str]) -> list[tuple[int, int]]:
    """The longest chain of equal words. The nth occurrence of a word is paired with the nth in the other text."""
    places = defaultdict[str, deque[int]](deque)
    for number, word in enumerate(others):
        places[word].append(number)
    pairs = [(number, places[word].popleft()) for number, word in enumerate(ours) if places[word]]
    ends, numbers, before = list[int](), list[int](), list[int]()  # for each length, the best last word and its pair
    for number, (_, other) in enumerate(pairs):
        length = bisect_left(ends, other)
        before.append(numbers[length - 1] if length else -1)
        ends[length : length + 1], numbers[length : length + 1] = [other], [number]
    chain, number = list[tuple[int, int]](), numbers[-1] if numbers else -1
    while number >= 0:
        chain.append(pairs[number])
        number = before[number]
    return chain[::-1]


class Places:
    """The positions of the units of a masked source in a target, whose characters have the given `origin`."""

    def __init__(self, source: str, target: str, origin: Sequence[int]) -> None:
        self.source = source
        self.units = [match.start() for match in UNIT.finditer(source)]
        self.spans = dict[int, Span]()
        for at, one in enumerate(origin):
            if one >= 0 and not target[at].isspace():
                self.spans[one] = self.spans.get(one, (at, at))[0], at + 1
        self.mapped = sorted(self.spans)

    def hull(self, first: int, last: int) -> Span:
        """The smallest span of target characters with all translations of the source from `first` to `last`."""
        spans = [
            self.spans[one] for one in self.mapped[bisect_left(self.mapped, first) : bisect_left(self.mapped, last)]
        ]
        return min((begin for begin, _ in spans), default=0), max((end for _, end in spans), default=0)

    def point(self, offset: int, source: Span, target: Span) -> int:
        """The position within `target` for markup without text at `offset` of the source, within `source`.

        It is before the translation of what follows, or after the translation of what the markup is attached to.
        """
        begin, cut, end = (bisect_left(self.mapped, at) for at in (source[0], offset, source[1]))
        low, high = target
        behind = (self.spans[self.mapped[at]] for at in range(cut, end))
        ahead = (self.spans[self.mapped[at]] for at in range(cut - 1, begin - 1, -1))
        after = next((max(low, one) for one, last in behind if one < high and last > low), None)
        before = next((min(high, last) for one, last in ahead if one < high and last > low), None)
        attached = offset > 0 and not self.source[offset - 1].isspace() and not self.source[offset : offset + 1].strip()
        for place in (before, after) if attached else (after, before):
            if place is not None:
                return place
        return high if bisect_left(self.units, source[0]) < bisect_left(self.units, offset) else low


def rendered(segment: Segment, target: Target) -> str:
    """The translation with the markup of the segment: each tag once, pairs around the translation of their content."""
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
    """The tree of tags among pieces. Tags without a partner are leaves, and pairs around the same text are joined."""
    stack = [_Node((begin, end))]
    for (piece, (at, _)), alone in zip(spans, lone, strict=True):
        if piece.kind == "void" or (alone and piece.kind in ("open", "close")):
            stack[-1].children.append(_Node((at, at), piece.raw))
        elif piece.kind == "open":
            stack.append(_Node((at, at), piece.raw))
        elif piece.kind == "close":
            node = stack.pop()
            node.span, node.end = (node.span[0], at), piece.raw
            if len(node.children) == 1 and node.children[0].span == node.span and node.children[0].end:
                (inner,) = node.children
                node.begin, node.end, node.children = node.begin + inner.begin, inner.end + node.end, inner.children
            node.depth = 1 + max((child.depth for child in node.children), default=0)
            stack[-1].children.append(node)
    return stack[0]


def depth(segment: Segment) -> int:
    """The nesting depth of tags around different text."""
    spans, lone = list(segment.spans()), unpaired(segment.pieces)
    root = _tree(spans, [number in lone for number in range(len(spans))], 0, 0)
    return max((child.depth for child in root.children), default=0)


def _gaps(taken: Sequence[Span], low: int, high: int) -> list[Span]:
    """The spans from `low` to `high` that are not taken by tags."""
    begin = bisect_left(taken, (low, low))
    if begin and taken[begin - 1][1] > low:
        low = min(taken[begin - 1][1], high)
    bounds = [(low, low), *taken[begin : bisect_right(taken, (high, high))], (high, high)]
    return [(before, after) for (_, before), (after, _) in pairwise(bounds)]


class _Placing:
    """Places the markup of a segment in its translation.

    Attributes:
        before: the text to insert before a target character, by its index.
        instead: the replacements of target characters: by the index of the first, the end and the text.
    """

    def __init__(self, segment: Segment, source: str, target: Target) -> None:
        self.segment, self.source, self.target = segment, source, target
        self.masked = masked(target.text, [span for span, _ in target.atoms])
        self.places = Places(source, self.masked, target.origin)
        self.written = [0, *accumulate(not character.isspace() for character in source)]
        self.before = dict[int, str]()
        self.instead = {begin: (end, piece.raw) for (begin, end), piece in target.atoms}

    def cuts(self, spans: Sequence[tuple[Piece, Span]]) -> dict[int, Span]:
        """The span of white space for each cut, by its index. Spaces and breaks are replaced directly."""
        text, low, taken = self.masked, 0, dict[int, Span]()
        exact = {origin: at for at, origin in enumerate(self.target.origin) if origin >= 0 and text[at].isspace()}
        self.exact = sorted(exact)
        self.ends = list(accumulate((exact[one] + 1 for one in self.exact), max))
        self.begins = list(accumulate((exact[one] for one in reversed(self.exact)), min))[::-1]
        for number, (piece, (offset, _)) in enumerate(spans):
            if piece.kind not in ("space", "break", "cut"):
                continue
            at = exact[offset] if offset in exact else self._split(offset, low, piece.kind != "space")
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

    def _split(self, offset: int, low: int, kept: bool) -> int | None:
        """The position from `low` on that best separates translations of the text before and after `offset`."""
        text, origin, number = self.masked, self.target.origin, bisect_left(self.exact, offset)
        _, (first, last) = self.target.window(offset, offset)
        begin = max(low, first, self.ends[number - 1] if number else 0)
        end = max(begin, min(last, self.begins[number] if number < len(self.exact) else last))
        places = [at for at in range(begin, end) if text[at].isspace()]
        if kept and not places:
            places = [match.end() for match in UNIT.finditer(text, begin, end) if match.end() < end] or [begin]
        scores = accumulate((0 <= one < offset) - (one >= offset) for one in origin[begin:end])
        so_far = dict(enumerate(scores, start=begin + 1))
        return max(places, key=lambda at: so_far.get(at, 0), default=None)

    def text(self, node: _Node, low: int, high: int) -> str:
        """The target from `low` to `high` with the tags inside a node."""
        places, taken = list[tuple[Span, int]](), list[Span]()
        for number, child in sorted(enumerate(node.children), key=lambda one: one[1].span[0] - one[1].span[1]):
            span = self._stretch(child, node, low, high, taken)
            places.append((span, number))
            if child.span[0] < child.span[1]:
                insort(taken, span)
        out, at = list[str](), low
        for (begin, end), number in sorted(places):
            child = node.children[number]
            before, after = ("", "") if child.end else self._spaces_beside(child.span[0], begin)
            inside = self.text(child, begin, end)
            out += [self._copy(at, begin), before, child.begin, inside, child.end, after]
            at = end
        return "".join([*out, self._copy(at, high)])

    def _spaces_beside(self, offset: int, at: int) -> tuple[str, str]:
        """The spaces that separate a tag at `at` from adjacent words, if it is separated in the source."""
        if not (self.source[max(0, offset - 1) : offset].isspace() and self.source[offset : offset + 1].isspace()):
            return "", ""
        return " " * bool(self.masked[max(0, at - 1) : at].strip()), " " * bool(self.masked[at : at + 1].strip())

    def _is_blank(self, begin: int, end: int) -> bool:
        """Whether the source between `begin` and `end` is only white space."""
        return self.written[begin] == self.written[end]

    def _stretch(self, child: _Node, parent: _Node, low: int, high: int, taken: Sequence[Span]) -> Span:
        """The target characters that a tag is placed around, within the translations of its sentences."""
        (first, last), text, has_text = child.span, self.masked, not self._is_blank(*child.span)
        if has_text and bisect_left(self.places.units, first) == bisect_left(self.places.units, last):
            first = self.places.units[bisect_left(self.places.units, first) - 1]  # within a word: take all of it
        sentences, (least, most) = self.target.window(first, last)
        begin, end = high - len(text[low:high].lstrip()), low + len(text[low:high].rstrip())
        alone = self._is_blank(parent.span[0], first) and self._is_blank(last, parent.span[1])
        if not alone:
            low, high = min(max(low, least), high), max(min(high, most), low)
            begin = end = low
        if has_text and not alone:
            hull = self.places.hull(first, last)
            gaps = _gaps(taken, min(max(low, hull[0]), high), max(min(high, hull[1]), low))
            begin, end = max((self._densest(first, last, *gap) for gap in gaps), key=lambda found: found[0])[1]
        if has_text and begin < end:
            number, after = bisect_left(taken, (begin, begin)), bisect_left(taken, (end, end))
            least = max(low, taken[number - 1][1]) if number else low
            most = min(high, taken[after][0]) if after < len(taken) else high
            begin -= self.source[first].isspace() and begin > least and text[begin - 1].isspace()
            end += self.source[last - 1].isspace() and end < most and text[end].isspace()
            return begin, end
        at = self.places.point(first, sentences, (low, high))
        if has_text:  # a tag around words must not become empty
            gaps = _gaps(taken, low, high)
            words = [match.span() for match in UNIT.finditer(text, low, high)]
            free = [word for word in words if any(gap[0] <= word[0] and word[1] <= gap[1] for gap in gaps)]
            if free:
                return min(free, key=lambda word: (not text[word[0]].isalnum(), abs(word[0] - at)))
        before = taken[bisect_left(taken, (at, at)) - 1] if taken else (at, at)
        if before[0] < at < before[1]:
            at = min(before, key=lambda edge: abs(edge - at))
        return at, at

    def _densest(self, first: int, last: int, low: int, high: int) -> tuple[int, Span]:
        """The stretch with the largest excess of characters with origins in `first` to `last`, and this excess."""
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
        """Target characters as written in the document."""
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
