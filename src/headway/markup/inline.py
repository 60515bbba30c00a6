"""The text of a segment with inline markup, and the alignment of its characters with those of a translation.

A segment is one text. Tags are boundaries between its characters, placeholders are spans of it, and white space is one
character, whatever tags divide it. A target character's origin is the offset of the source character it translates, or
of the unit (a word, a punctuation mark, a placeholder) if the unit has other characters, or -1.
"""

import re
import sys
from bisect import bisect_left, bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby, pairwise
from typing import Literal, NamedTuple

from headway.core.languages import WIDE, WIDE_CHARACTER
from headway.markup.placeholders import PLACEHOLDERS

DEEPEST = 100  # the maximum nesting of tags

Span = tuple[int, int]
Kind = Literal["text", "open", "close", "void", "atom", "space", "break", "cut"]
MASK = "\ufdd0\ufdd1"  # noncharacters, which no text has; used alternately, so that adjacent placeholders stay separate
UNIT = re.compile(rf"{MASK[0]}+|{MASK[1]}+|[{WIDE}]|\d+|[^\W\d_{WIDE}]+(?:['’-][^\W\d_{WIDE}]+)*|[^\s{MASK}]")
BREAKING = " \t\r\n\f\v"  # white space that is the same as a space
OPENING = "([{<«“‘„¿¡\"'"


class Aligned(NamedTuple):
    """A translation with aligned spans of source and target. Without links, equal words and positions are aligned."""

    text: str
    links: Sequence[tuple[Span, Span]] = ()


class Piece(NamedTuple):
    """A part of a segment: `raw` as written in the document, `text` as it is read.

    `open` and `close` with the same `key` are a pair of tags, `void` is a single tag, `atom` a placeholder. White space
    may be removed if it is `space`, but not if it is `break`. `cut` ends a part that no tag and no word crosses, such
    as a subtitle. A tag that `joins` can be inside a word, as `<wbr>` can. An `exact` pair is around only the signs
    that are aligned with its content, even if there are no others.
    """

    kind: Kind
    raw: str
    text: str = ""
    key: str = ""
    joins: bool = False
    exact: bool = False

    def characters(self) -> Iterator[tuple[str, str]]:
        """The characters of a text, each as it is written. The first has all of `raw` if this differs from `text`."""
        written = self.text if self.raw == self.text else [self.raw, *[""] * (len(self.text) - 1)]
        yield from zip(self.text, written, strict=True)


class Mark(NamedTuple):
    """A tag before the character `at` of a segment's text."""

    at: int
    piece: Piece


@dataclass
class Text:
    """The text of a segment, as a model reads it.

    Attributes:
        text: its characters. Elements without white space between them are separated by a space that is not written.
        written: how each character is written in the document.
        marks: the tags, and white space behind other white space.
        atoms: the spans of the placeholders.
        breaks: the offsets of white space that must not be removed.
        cuts: the offsets of cuts.
    """

    text: str = ""
    written: list[str] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    atoms: list[Span] = field(default_factory=list)
    breaks: set[int] = field(default_factory=set)
    cuts: list[int] = field(default_factory=list)

    @cached_property
    def masked(self) -> str:
        return masked(self.text, self.atoms)


class _Reader:
    """Reads pieces into a `Text`."""

    def __init__(self) -> None:
        self.read, self.characters, self.blank = Text(), list[str](), True

    def __call__(self, pieces: Sequence[Piece], placeholders: re.Pattern[str]) -> Text:
        for piece in _with_atoms(pieces, placeholders):
            if piece.kind in ("open", "close", "void"):
                self.read.marks.append(Mark(len(self.characters), piece))
            elif piece.kind == "cut":
                self.read.cuts.append(len(self.characters))
                self.add(" ", [piece.raw], blank=True)
            elif piece.kind != "atom" and piece.text.isspace():
                self.add_space(piece)
            else:
                self.separate(piece.text[0])
                if piece.kind == "atom":
                    self.read.atoms.append((len(self.characters), len(self.characters) + len(piece.text)))
                self.add(piece.text, [written for _, written in piece.characters()], blank=False)
        self.read.text = "".join(self.characters)
        return self.read

    def add(self, text: str, written: Sequence[str], *, blank: bool) -> None:
        self.characters += text
        self.read.written += written
        self.blank = blank

    def add_space(self, piece: Piece) -> None:
        """Add white space. Behind other white space it becomes part of this, or a tag if tags are in between."""
        end, shown = len(self.characters), " " if piece.text[0] in BREAKING else piece.text[0]
        tagged = bool(self.read.marks) and self.read.marks[-1].at == end
        cut = bool(self.read.cuts) and self.read.cuts[-1] == end - 1
        if end and self.blank and (tagged or cut):
            self.read.marks.append(Mark(end, Piece("void", piece.raw)))
        elif end and self.blank and shown == self.characters[-1] == " ":
            self.read.written[-1] += piece.raw
            self.read.breaks.update([end - 1] if piece.kind == "break" else [])
        else:
            self.read.breaks.update([end] if piece.kind == "break" else [])
            self.add(shown, [piece.raw], blank=True)

    def separate(self, following: str) -> None:
        """Add a space that is not written between two elements, or beside one without text, if there is no other."""
        end, marks = len(self.characters), self.read.marks
        first = bisect_left(marks, (end,))
        kinds = [mark.piece.kind for mark in marks[first:] if not mark.piece.joins]
        last = self.characters[-1] if self.characters else " "
        apart = len({*kinds}) > 1 or "void" in kinds
        between_words = (following.isalnum() or following in OPENING) and last not in OPENING
        if apart and not self.blank and between_words and not WIDE_CHARACTER.search(last + following):
            while marks[first].piece.kind == "close":
                first += 1
            marks[first:] = [Mark(end + 1, mark.piece) for mark in marks[first:]]
            self.add(" ", [""], blank=True)


def _with_atoms(pieces: Sequence[Piece], placeholders: re.Pattern[str]) -> Iterator[Piece]:
    """The pieces, with text split into characters and placeholders. These are searched in all text between tags."""
    for is_text, some in groupby(pieces, lambda piece: piece.kind in ("text", "space")):
        if not is_text:
            yield from some
            continue
        characters, at = [one for piece in some for one in piece.characters()], 0
        singles = [Piece("void" if one in MASK else "text", raw, one * (one not in MASK)) for one, raw in characters]
        for match in placeholders.finditer("".join(one for one, _ in characters)):
            begin, end = match.span()
            yield from singles[at:begin]
            yield Piece("atom", "".join(raw for _, raw in characters[begin:end]), match[0])
            at = end
        yield from singles[at:]


@dataclass(frozen=True)
class Segment:
    """Text that is translated together.

    Attributes:
        pieces: its parts.
        escape: escapes text for the document.
        original: the segment as written in the document, if this differs from its pieces.
        placeholders: what is copied unchanged.
        least: escapes what `mended` cannot check.
        mended: returns a translation, as written in the document, with its markup intact, or None if that is not
            possible. It is first tried without `escape`.
    """

    pieces: Sequence[Piece]
    escape: Callable[[str], str] = str
    original: str = ""
    placeholders: re.Pattern[str] = PLACEHOLDERS
    least: Callable[[str], str] = str
    mended: Callable[[str], str | None] | None = None

    @cached_property
    def read(self) -> Text:
        return _Reader()(self.pieces, self.placeholders)

    @property
    def text(self) -> str:
        return self.read.text

    @property
    def raw(self) -> str:
        """The segment as written in the document."""
        return self.original or "".join(piece.raw for piece in self.pieces)


@dataclass
class Target:
    """A translation under construction.

    Attributes:
        text: its characters.
        origin: the origin of each character.
        atoms: the spans of its placeholders, with their spans in the source.
        sentences: the start of each sentence in the source and in `text`.
    """

    text: str = ""
    origin: list[int] = field(default_factory=list)
    atoms: list[tuple[Span, Span]] = field(default_factory=list)
    sentences: list[tuple[int, int]] = field(default_factory=list)

    def add(self, text: str, origin: Sequence[int], atoms: Sequence[tuple[Span, Span]] = (), begin: int = 0) -> None:
        """Append a text, whose origins and placeholders are relative to it, and to `begin` of the source."""
        shift = len(self.text)
        self.text += text
        self.origin += [one + begin if one >= 0 else one for one in origin]
        self.atoms += [
            ((first + shift, last + shift), (one + begin, other + begin)) for (first, last), (one, other) in atoms
        ]

    def window(self, first: int, last: int) -> tuple[Span, Span]:
        """The spans, in the source and in `text`, of the sentences with source characters from `first` to `last`."""
        ends = [*self.sentences, (sys.maxsize, len(self.text))]
        begin = max(0, bisect_right(self.sentences, (first, sys.maxsize)) - 1)
        end = bisect_right(self.sentences, (max(first, last - 1), sys.maxsize))
        low, high = (ends[begin], ends[max(end, begin + 1)]) if self.sentences else ((0, 0), ends[0])
        return (low[0], high[0]), (low[1], high[1])


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
        inside = theirs[bisect_right(their_ends, first) : bisect_left(theirs, (last,))]
        for is_word in (True, False):
            sides = (ours, source), (inside, target)
            units_of, others = ([unit for unit in some if text[unit[0]].isalnum() == is_word] for some, text in sides)
            for number, (one, after) in enumerate(others):
                same = [unit for unit in units_of if source[slice(*unit)].casefold() == target[one:after].casefold()]
                for first_at, last_at in same[:1] or units_of[number * len(units_of) // len(others) :][:1]:
                    exact = bool(same) and last_at - first_at == after - one
                    origin[one:after] = range(first_at, last_at) if exact else [first_at] * (after - one)
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
    """The positions of the characters of a masked source in a target, whose characters have the given `origin`."""

    def __init__(self, source: str, target: str, origin: Sequence[int]) -> None:
        self.source, self.target, self.origin = source, target, origin
        units = [match.span() for match in UNIT.finditer(source)]
        self.units = [begin for begin, _ in units]
        self.spans, counts, self.spaces = dict[int, Span](), defaultdict[int, int](int), dict[int, int]()
        for at, one in enumerate(origin):
            if one >= 0 and target[at].isspace():
                self.spaces[one] = at
            elif one >= 0:
                self.spans[one] = self.spans.get(one, (at, at))[0], at + 1
                counts[one] += 1
        self.mapped = sorted(self.spans)
        self.starts, self.ends = dict(self.spaces), dict[int, int]()
        for one, at in self.spaces.items():
            end = one + 1
            while source[end : end + 1].isspace() and end not in self.spaces:  # white space that the target lacks
                end += 1
            self.ends[end] = at + 1
        for begin, end in units:
            parts = [at for at in range(begin, end) if at in self.spans]
            for at in parts:
                first, last = self.spans[at]
                if last - first == counts[at]:
                    self.starts[at], self.ends[end if len(parts) == 1 else at + 1] = first, last

    def exact(self, offset: int, *, behind: bool) -> int | None:
        """The position between the translations of the characters before and after `offset`, if these are neighbours.

        Characters between them that translate nothing are behind the position, or before it.
        """
        before, after = self.ends.get(offset), self.starts.get(offset)
        if before is None or after is None or any(one >= 0 for one in self.origin[before:after]) or before > after:
            return None
        return before if behind else after

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
