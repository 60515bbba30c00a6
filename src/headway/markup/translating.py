"""Translation of segments by sentences. Placeholders occur exactly as often as in the source in every translation."""

import html
import re
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from headway.core.languages import WIDE
from headway.core.log import warn
from headway.core.processes import check_waited_for
from headway.markup.inline import MASK, Aligned, Piece, Places, Segment, Span, Target, masked, origins
from headway.markup.placeholders import PLACEHOLDERS
from headway.markup.placement import rendered
from headway.processing.text.sentences import between, sentences, warn_without_rules

Translate = Callable[[Sequence[str]], Sequence[Aligned]]
LONGEST = 2000  # the maximum number of characters of a sentence
ENTITY = re.compile(r"&#?\w+;?|.", re.DOTALL)
WORD = re.compile(rf"[^\W{WIDE}]")


def text_pieces(text: str, escape: Callable[[str], str] = str) -> Iterator[Piece]:
    """The pieces of a text."""
    return raw_pieces([(character, escape(character)) for character in text])


def raw_pieces(characters: Sequence[tuple[str, str]]) -> Iterator[Piece]:
    """`text_pieces` for characters, each with its form in the document."""
    check_waited_for()
    for character, written in characters:
        yield Piece("text", written, character)


def decoded(raw: str) -> list[tuple[str, str]]:
    """The characters of a text with entities, each with its form in the document. Some entities need no semicolon."""
    found = list[tuple[str, str]]()
    for part in ENTITY.findall(raw):
        text = html.unescape(part)
        first, tail = text[:1], text[1:]
        if not text or text == part:
            found += [(one, one) for one in part]
        elif part.endswith(tail):
            found += [(first, part.removesuffix(tail)), *((one, one) for one in tail)]
        else:
            found += [(first, part), *((one, "") for one in tail)]
    return found


def html_escape(text: str) -> str:
    return html.escape(text, quote=False)


@dataclass(frozen=True)
class Sentence:
    """A sentence that begins at `begin` of its segment's text, and its placeholders, with spans relative to it."""

    text: str
    begin: int
    atoms: tuple[Span, ...]
    placeholders: re.Pattern[str] = PLACEHOLDERS

    @property
    def masked(self) -> str:
        return masked(self.text, self.atoms)

    def without_atoms(self) -> tuple[str, list[int]]:
        """The sentence without placeholders and extra spaces, and the original position of each character."""
        inside = {at for begin, end in self.atoms for at in range(begin, end)}
        kept, before = list[int](), " "
        for at, character in enumerate(self.text):
            if at not in inside and not (character.isspace() and before.isspace()):
                kept.append(at)
                before = character
        if kept and before.isspace():
            kept.pop()
        return "".join(self.text[at] for at in kept), kept

    @property
    def has_words(self) -> bool:
        return any(map(str.isalpha, self.without_atoms()[0]))

    def as_it_is(self) -> Target:
        """The unchanged sentence as its translation."""
        return Target(self.text, list(range(len(self.text))), [(span, span) for span in self.atoms])

    def whole(self, aligned: Aligned) -> Target | None:
        """A translation that contains the placeholders exactly as often, or None for any other translation."""
        if aligned.text == self.text:
            return self.as_it_is()
        spans = self._located(aligned) if aligned.text.strip() else None
        if spans is None:
            return None
        pairs = sorted(zip(spans, self.atoms, strict=True))
        theirs = masked(aligned.text, [span for span, _ in pairs])
        if self._alike(theirs) > self._alike(self.masked):
            return None
        target = Target(aligned.text, origins(self.masked, theirs, aligned.links), pairs)
        for (begin, end), span in pairs:
            target.origin[begin:end] = range(*span)
        return target

    def _located(self, aligned: Aligned) -> list[Span] | None:
        """The span of each placeholder in a translation, or None if that is unknown. Links tell twins apart."""
        origin, found = list[int](), dict[Span, Span]()
        for text in sorted({self.text[slice(*span)] for span in self.atoms}, key=len, reverse=True):
            atoms = [span for span in self.atoms if self.text[slice(*span)] == text]
            places = self._places(text, atoms, masked(aligned.text, sorted(found.values())))
            linked = dict[Span, Span]()
            has_twins = len(places) > len(atoms) or bool(self._places(text, atoms, self.masked))
            if has_twins or len(atoms) > 1:
                origin = origin or origins(self.text, aligned.text, aligned.links)
                for place in places:
                    one = max(origin[slice(*place)])
                    atom = atoms[bisect_right(atoms, (one, sys.maxsize)) - 1]
                    if atom[0] <= one < atom[1]:
                        linked.setdefault(atom, place)
            if len(places) < len(atoms) or (has_twins and len(linked) < len(atoms)):
                return None
            used = {*linked.values()}
            free = iter([place for place in places if place not in used])
            found |= {atom: linked.get(atom) or next(free) for atom in atoms}
        return [found[span] for span in self.atoms]

    def _places(self, text: str, atoms: Sequence[Span], translation: str) -> list[Span]:
        """The spans of a placeholder's text in a translation, in words only if the placeholder is in a word."""
        if self.placeholders.fullmatch(text):
            places = [match.span() for match in self.placeholders.finditer(translation) if match[0] == text]
            if len(places) >= len(atoms):
                return places
        before = {self.text[begin - 1 : begin] for begin, _ in atoms}
        after = {self.text[end : end + 1] for _, end in atoms}
        left = bool(WORD.match(text[0])) and not any(map(WORD.match, before))
        right = bool(WORD.match(text[-1])) and not any(map(WORD.match, after))
        found, end = list[Span](), 0
        while (begin := translation.find(text, end)) >= 0:
            end = begin + len(text)
            is_behind = left and WORD.match(translation[begin - 1 : begin])
            is_before = right and WORD.match(translation[end : end + 1])
            found += [] if is_behind or is_before else [(begin, end)]
        return found

    def _alike(self, text: str) -> int:
        """The number of stretches of a masked text that look like placeholders."""
        return sum(1 for _ in self.placeholders.finditer(text))

    def put_together(self, aligned: Aligned) -> Target | None:
        """A translation of `without_atoms` with the placeholders inserted by alignment, or None if this fails."""
        text, kept = self.without_atoms()
        written, links = aligned.text, aligned.links
        if self._alike(written) > self._alike(self.masked):
            if self._alike(self.masked):
                return None
            written, links = self.placeholders.sub(" ", written).strip(), ()
        if not written.strip():
            return None
        origin = [kept[at] if at >= 0 else at for at in origins(text, written, links)]
        where, whole = Places(self.masked, written, origin), ((0, len(self.text)), (0, len(written)))
        places = [where.point(begin, *whole) for begin, _ in self.atoms]
        found = {match.span() for match in self.placeholders.finditer(self.text)}
        for always in (False, True):
            target, at = Target(), 0
            for place, (begin, end) in sorted(zip(places, self.atoms, strict=True), key=lambda one: one[0]):
                target.add(written[at:place], origin[at:place])
                space_before, space_after = self.text[begin - 1 : begin].isspace(), self.text[end : end + 1].isspace()
                if target.text and not target.text[-1].isspace() and (space_before or always):
                    target.add(" ", [begin - 1 if space_before else -1])
                target.add(self.text[begin:end], range(begin, end), [((0, end - begin), (begin, end))])
                if written[place : place + 1].strip() and (space_after or always):
                    target.add(" ", [end if space_after else -1])
                at = place
            target.add(written[at:], origin[at:])
            shown = {match.span() for match in self.placeholders.finditer(target.text)}
            if all(place in shown for place, span in target.atoms if span in found):
                return target
        return None


def sentences_of(segment: Segment, language: str) -> list[Sentence]:
    """The sentences of a segment. Placeholders are never split."""
    read, at, found, first = segment.read, 0, list[Sentence](), -1
    begins = [begin for begin, _ in read.atoms]
    hidden = read.masked.replace(MASK[0], "X").replace(MASK[1], "X")
    for sentence in chain.from_iterable(map(_bounded, sentences(hidden, language))):
        at = hidden.index(sentence, at)
        first, at = at if first < 0 else first, at + len(sentence)
        own = read.atoms[bisect_left(begins, first) : bisect_left(begins, at)]
        if not own or own[-1][1] <= at:
            inside = tuple((begin - first, end - first) for begin, end in own)
            found.append(Sentence(read.text[first:at], first, inside, segment.placeholders))
            first = -1
    return found


def _bounded(sentence: str) -> Iterator[str]:
    """Split a sentence at white space if it is longer than `LONGEST`."""
    while len(sentence) > LONGEST:
        cut = sentence.rfind(" ", 1, LONGEST) + 1 or LONGEST
        yield sentence[:cut].rstrip()
        sentence = sentence[cut:].lstrip()
    yield sentence


def translate_segments(
    segments: Sequence[Segment], translate: Translate, source: str, target: str
) -> list[tuple[str, bool]]:
    """The translations of segments between two languages, as written in the document, and whether each is complete.

    If the model changes placeholders, the sentence is translated without them, and they are inserted by alignment.
    """
    split = [sentences_of(segment, source) for segment in segments]
    wanted = [sentence for some in split for sentence in some if sentence.has_words]
    if wanted:
        warn_without_rules(source)
    first = _translated([sentence.text for sentence in wanted], translate)
    done = {id(sentence): sentence.whole(first[sentence.text]) for sentence in wanted}
    again = {id(sentence): sentence.without_atoms()[0] for sentence in wanted if done[id(sentence)] is None}
    second = _translated(list(again.values()), translate)
    for sentence in wanted:
        if id(sentence) in again:
            done[id(sentence)] = sentence.put_together(second[again[id(sentence)]])
    results, kept = list[tuple[str, bool]](), 0
    for segment, some in zip(segments, split, strict=True):
        whole = _joined(segment, some, done, source, target)
        result = next((form for form in _forms(segment, whole) if form is not None), None)
        lacking = sum(one.has_words and (result is None or done[id(one)] is None) for one in some)
        results.append((segment.raw if result is None else result, not lacking))
        kept += lacking
    if kept:
        warn(f"{kept:,} of {len(wanted):,} sentences stay as they are: no translation of them keeps their markup")
    return results


def _forms(segment: Segment, target: Target) -> Iterator[str | None]:
    """The translation as written in the document, or None: as few signs as possible are escaped first, then more."""
    if target.text == segment.text and target.origin == list(range(len(target.text))):
        yield segment.raw
    elif segment.mended is None:
        yield rendered(segment, target, segment.escape)
    else:
        for escape, reuse in ((segment.least, True), (segment.escape, True), (segment.escape, False)):
            yield segment.mended(rendered(segment, target, escape, reuse=reuse))


def _translated(texts: Sequence[str], translate: Translate) -> dict[str, Aligned]:
    """Translate each distinct text once."""
    unique = list(dict.fromkeys(texts))
    return dict(zip(unique, translate(unique), strict=True)) if unique else {}


def _joined(
    segment: Segment, some: Sequence[Sentence], done: Mapping[int, Target | None], source: str, target: str
) -> Target:
    """Join the translations of a segment's sentences and what is between them."""
    check_waited_for()
    text, whole, at = segment.text, Target(), 0
    for number, sentence in enumerate(some):
        part, gap = done.get(id(sentence)) or sentence.as_it_is(), text[at : sentence.begin]
        plain = not gap or (gap == " " == segment.read.written[at] and at not in segment.read.cuts)
        shown = between(gap, source, target) if number and plain else gap
        whole.add(shown, range(at, sentence.begin) if shown == gap else [-1] * len(shown))
        whole.sentences.append((sentence.begin, len(whole.text)))
        whole.add(part.text, part.origin, part.atoms, sentence.begin)
        at = sentence.begin + len(sentence.text)
    whole.add(text[at:], range(at, len(text)))
    return whole
