"""The markup of a segment in its translation: each tag once, pairs of tags around the translation of their content."""

import re
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from headway.markup.inline import UNIT, Mark, Places, Segment, Span, Target, masked, unpaired

SPACES = re.compile(r"\s+")
HARMLESS = re.compile(r"<(?![\w/!?])|(?<!--)(?<!\]\])>")  # signs that are markup nowhere but in XML


@dataclass
class _Node:
    """A tag, alone or around the source characters `span`, with the tags inside it."""

    span: Span
    begin: str = ""
    end: str = ""
    children: "list[_Node]" = field(default_factory=list)
    depth: int = 0


@dataclass
class _Part:
    """The source characters from `begin` to `end`, between two cuts, with their tags.

    Attributes:
        before: the tags and white space before its text, and the first tags of pairs around all of it.
        behind: those behind its text.
    """

    segment: Segment
    begin: int
    end: int
    marks: list[Mark]
    before: list[str] = field(default_factory=list)
    behind: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.partner, begun, lone = dict[int, int](), list[int](), unpaired([mark.piece for mark in self.marks])
        for number, mark in enumerate(self.marks):
            if mark.piece.kind == "open" and number not in lone:
                begun.append(number)
            elif mark.piece.kind == "close" and number not in lone:
                self.partner[number] = begun[-1]
                self.partner[begun.pop()] = number
        self.first, self.last = 0, len(self.marks)
        self._peel()

    def _peel(self) -> None:
        """Move tags and white space at both ends of the text to `before` and `behind`."""
        text, written = self.segment.read.masked[self.begin : self.end], self.segment.read.written
        words, words_end = self.end - len(text.lstrip()), self.begin + len(text.rstrip())
        while True:
            first = self.marks[self.first] if self.first < self.last else None
            last = self.marks[self.last - 1] if self.first < self.last else None
            begins, ends = first and first.at == self.begin, last and last.at == self.end
            partner, other = self.partner.get(self.first), self.partner.get(self.last - 1)
            if first and begins and (first.piece.kind != "open" or partner is None or self.marks[partner].at <= words):
                self.before.append(first.piece.raw)
                self.first += 1
            elif last and ends and (last.piece.kind != "close" or other is None or self.marks[other].at >= words_end):
                self.behind.append(last.piece.raw)
                self.last -= 1
            elif first and last and begins and ends and partner == self.last - 1 and not first.piece.exact:
                self.before.append(first.piece.raw)
                self.behind.append(last.piece.raw)
                self.first, self.last = self.first + 1, self.last - 1
            elif not begins and self.begin < words:
                self.before.append(written[self.begin])
                self.begin += 1
            elif not ends and self.end > max(words_end, self.begin):
                self.end -= 1
                self.behind.append(written[self.end])
            else:
                return

    def tree(self) -> _Node:
        """The tree of the tags. Tags without a partner are leaves, and pairs around the same text are joined."""
        stack = [_Node((self.begin, self.end))]
        for number in range(self.first, self.last):
            at, piece = self.marks[number]
            if number not in self.partner:
                stack[-1].children.append(_Node((at, at), piece.raw))
            elif piece.kind == "open":
                stack.append(_Node((at, at), piece.raw))
            else:
                node = stack.pop()
                node.span, node.end = (node.span[0], at), piece.raw
                if len(node.children) == 1 and node.children[0].span == node.span and node.children[0].end:
                    (inner,) = node.children
                    node.begin, node.end, node.children = node.begin + inner.begin, inner.end + node.end, inner.children
                node.depth = 1 + max((child.depth for child in node.children), default=0)
                stack[-1].children.append(node)
        return stack[0]


def _parts(segment: Segment) -> Iterator[_Part]:
    """The parts of a segment between its cuts."""
    read, begin, first = segment.read, 0, 0
    for end in [*read.cuts, len(read.text)]:
        last = bisect_left(read.marks, (end + 1,))
        yield _Part(segment, begin, end, read.marks[first:last])
        begin, first = end + 1, last


def depth(segment: Segment) -> int:
    """The nesting depth of tags around different text."""
    return max(child.depth for part in _parts(segment) for child in [*part.tree().children, _Node((0, 0))])


def rendered(segment: Segment, target: Target, escape: Callable[[str], str], *, reuse: bool = True) -> str:
    """The translation with the markup of the segment.

    Args:
        segment: the segment.
        target: its translation.
        escape: escapes text for the document.
        reuse: write signs between the same neighbours as in the source as they are written there, not escaped.
    """
    parts = list(_parts(segment))
    placing, out, low = _Placing(segment, target, escape, reuse=reuse), list[str](), 0
    cuts = placing.spaces(parts)
    for number, part in enumerate(parts):
        (high, after), last = cuts[number], number == len(parts) - 1
        source, text = segment.read.text[part.begin : part.end], placing.masked[low:high]
        begin = low if source[:1].isspace() else high - len(text.lstrip())  # white space inside a tag stays there
        end = high if source[-1:].isspace() else low + len(text.rstrip())
        out += [*part.before, placing.text(part.tree(), begin, max(begin, end)), *reversed(part.behind)]
        out += [] if last else [segment.read.written[segment.read.cuts[number]]]
        low = after
    return "".join(out)


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

    def __init__(self, segment: Segment, target: Target, escape: Callable[[str], str], *, reuse: bool) -> None:
        self.target, self.escape, self.reuse = target, escape, reuse
        self.read, self.source = segment.read, segment.read.masked
        self.masked = masked(target.text, [span for span, _ in target.atoms])
        self.places = Places(self.source, self.masked, target.origin)
        self.visible = [0, *accumulate(not character.isspace() for character in self.source)]
        self.before = dict[int, str]()
        self.instead = {begin: (end, "".join(self.read.written[slice(*span)])) for (begin, end), span in target.atoms}

    def spaces(self, parts: Sequence[_Part]) -> list[Span]:
        """The span of target characters for each cut, and the end. The white space of each part is placed directly."""
        low, cuts, exact = 0, list[Span](), self.places.spaces
        self.exact = sorted(exact)
        self.ends = list(accumulate((exact[one] + 1 for one in self.exact), max))
        self.begins = list(accumulate((exact[one] for one in reversed(self.exact)), min))[::-1]
        for number, part in enumerate(parts):
            for run in SPACES.finditer(self.source, part.begin, part.end):
                begins = [run.start(), *(one for one in range(run.start() + 1, run.end()) if one in exact), run.end()]
                for begin, end in pairwise(begins):
                    low = self._space(begin, end, low)
            if number < len(parts) - 1:
                at = self._position(self.read.cuts[number], low, kept=True)
                assert at is not None
                low = at + self.masked[at : at + 1].isspace()
                cuts.append((at, low))
        return [*cuts, (len(self.masked),) * 2]

    def _space(self, begin: int, end: int, low: int) -> int:
        """Place white space of the source. White space that must stay is placed from `low` on; return its end."""
        kept = not self.read.breaks.isdisjoint(range(begin, end))
        written = "".join(
            one if space == " " or one.endswith(";") else self.escape(space)
            for space, one in zip(self.source[begin:end], self.read.written[begin:end], strict=True)
        )
        is_soft = self.source[begin] == " " and written.strip(" ") != ""
        at = self._position(begin, low, kept=kept) if kept or is_soft else self.places.spaces.get(begin)
        if at is None:
            return low
        after = at + self.masked[at : at + 1].isspace()
        if after > at:
            self.instead[at] = after, written
        else:
            self.before[at] = self.before.get(at, "") + written
        return after if kept else low

    def _position(self, offset: int, low: int, *, kept: bool) -> int | None:
        """The position of white space in the target, from `low` on if it must stay. None if it may be left out."""
        at = self.places.spaces.get(offset)
        at = self._split(offset, low, kept) if at is None else at
        return max(at, low) if at is not None and kept else at

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
            out += [self._copy(at, begin), child.begin, self.text(child, begin, end), child.end]
            at = end
        return "".join([*out, self._copy(at, high)])

    def _is_blank(self, begin: int, end: int) -> bool:
        """Whether the source between `begin` and `end` is only white space."""
        return self.visible[begin] == self.visible[end]

    def _stretch(self, child: _Node, parent: _Node, low: int, high: int, taken: Sequence[Span]) -> Span:
        """The target characters that a tag is placed around, within the translations of its sentences."""
        (first, last), text, has_text = child.span, self.masked, not self._is_blank(*child.span)
        place = self._exact if first < last else self._exact_point
        exact = place(child.span, parent.span, low, high)
        if exact is not None and not self._is_taken(exact, taken):
            return exact
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

    def _exact(self, span: Span, around: Span, low: int, high: int) -> Span | None:
        """The translations of a span, if these are all of the target between the translations of its neighbours."""
        begin = self.places.exact(span[0], behind=False)
        end = self.places.exact(span[1], behind=True)
        begin = self.places.starts.get(span[0]) if span[0] == around[0] else begin
        end = self.places.ends.get(span[1]) if span[1] == around[1] else end
        if begin is None or end is None or not low <= begin < end <= high:
            return None
        inside = all(one < 0 or span[0] <= one < span[1] for one in self.target.origin[begin:end])
        return (begin, end) if inside else None

    def _exact_point(self, span: Span, around: Span, low: int, high: int) -> Span | None:
        """The position of a tag without text: at the same end of its parent, or between the same neighbours."""
        if (offset := span[0]) in around:
            at = low if offset == around[0] else high
            return at, at
        attached = not self.source[offset - 1].isspace() and self.source[offset].isspace()
        found = self.places.exact(offset, behind=attached)
        return (found, found) if found is not None and low <= found <= high else None

    def _is_taken(self, span: Span, taken: Sequence[Span]) -> bool:
        """Whether other tags at the same level are around a part of the span."""
        number = bisect_left(taken, (span[1],)) - 1
        return number >= 0 and taken[number][1] > span[0]

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
        """Target characters, as in the source if they are between the same neighbours, or escaped."""
        out, run, text = list[str](), begin, self.target.text
        for at in range(begin, end):
            if self.reuse and self._stays(at):
                out += [self.escape(text[run:at]), self.read.written[self.target.origin[at]]]
                run = at + 1
        return "".join([*out, self.escape(text[run:end])])

    def _stays(self, at: int) -> bool:
        """Whether a target character is the same as in the source, and escaped or between the same neighbours."""
        origin, ours, theirs = self.target.origin[at], self.read.text, self.target.text
        if origin < 0 or theirs[at] != ours[origin]:
            return False
        written = self.read.written[origin]
        is_escaped = written[1:].endswith(";") or written[:-1] == "\\" or HARMLESS.match(theirs, at)
        return bool(is_escaped) or all(_at(theirs, at + step) == _at(ours, origin + step) for step in (-1, 1))


def _at(text: str, index: int) -> str:
    """A character of a text, or a space outside of it and for other white space."""
    character = text[index] if 0 <= index < len(text) else " "
    return " " if character.isspace() else character
