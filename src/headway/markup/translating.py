"""Translation of segments by sentences. Placeholders occur exactly as often as in the source in every translation."""

import html
import re
from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from headway.core.log import warn
from headway.core.processes import check_waited_for
from headway.markup.inline import MASK, Aligned, Piece, Places, Segment, Span, Target, masked, origins, rendered
from headway.markup.placeholders import PLACEHOLDER
from headway.processing.text.sentences import sentences

Translate = Callable[[Sequence[str]], Sequence[Aligned]]
LONGEST = 2000  # the maximum number of characters of a sentence
ODD_SPACE = re.compile(r"([ \t\r\n\f\v]{2,}|[\t\r\n\f\v])")  # white space other than a single space


def text_pieces(text: str, escape: Callable[[str], str] = str) -> Iterator[Piece]:
    """The pieces of a text: placeholders, white space other than single spaces, and the text between."""
    return raw_pieces([(character, escape(character)) for character in text])


def raw_pieces(characters: Sequence[tuple[str, str]], placeholder: str = PLACEHOLDER) -> Iterator[Piece]:
    """`text_pieces` for characters, each with its form in the document."""
    check_waited_for()
    text, at = "".join(character for character, _ in characters), 0
    for index, part in enumerate(re.split(f"({placeholder})", text)):
        for number, run in enumerate([part] if index % 2 else ODD_SPACE.split(part)):
            raw = "".join(written for _, written in characters[at : at + len(run)])
            at += len(run)
            if index % 2:
                yield Piece("atom", raw, run)
            elif run:
                yield Piece("space", raw, " ") if number % 2 else Piece("text", raw, run)


def decoded(raw: str) -> list[tuple[str, str]]:
    """The characters of a text with entities, each with its form in the document."""
    parts = [(html.unescape(match[0]), match[0]) for match in re.finditer(r"&#?\w+;|.", raw, re.DOTALL)]
    return [(one, written if not at else "") for text, written in parts for at, one in enumerate(text)]


def html_escape(text: str) -> str:
    return html.escape(text, quote=False)


@dataclass(frozen=True)
class Sentence:
    """A sentence that begins at `begin` of its segment's text, and its placeholders, with spans relative to it."""

    text: str
    begin: int
    atoms: tuple[tuple[Span, Piece], ...]

    @property
    def shown(self) -> Counter[str]:
        return Counter(piece.text for _, piece in self.atoms)

    def found(self, text: str) -> list[Span]:
        """The spans in a text of this sentence's placeholders, and of anything that looks like a placeholder."""
        known = sorted(self.shown, key=len, reverse=True)
        words = [r"\b" * one[0].isalnum() + re.escape(one) + r"\b" * one[-1].isalnum() for one in known]
        return [match.span() for match in re.finditer("|".join([*words, PLACEHOLDER]), text)]

    def keeps(self, text: str) -> bool:
        return Counter(text[slice(*span)] for span in self.found(text)) == self.shown

    def without_atoms(self) -> tuple[str, list[int]]:
        """The sentence without placeholders and extra spaces, and the original position of each character."""
        inside = {at for (begin, end), _ in self.atoms for at in range(begin, end)}
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
        text = masked(self.text, [span for span, _ in self.atoms])
        own = [at if text[at].isspace() else origin for at, origin in enumerate(origins(text, text, ()))]
        return Target(self.text, own, list(self.atoms))

    def whole(self, aligned: Aligned) -> Target | None:
        """A translation that contains the placeholders exactly as often, or None for any other translation."""
        if (
            not aligned.text.strip()
            or not self.keeps(aligned.text)
            or self.found(self.text) != [span for span, _ in self.atoms]
        ):
            return None
        spans, left = self.found(aligned.text), defaultdict[str, deque[tuple[Span, Piece]]](deque)
        for span, piece in self.atoms:
            left[piece.text].append((span, piece))
        ours, theirs = masked(self.text, [span for span, _ in self.atoms]), masked(aligned.text, spans)
        target = Target(aligned.text, origins(ours, theirs, aligned.links))
        for begin, end in spans:
            (first, _), piece = left[aligned.text[begin:end]].popleft()
            target.origin[begin:end] = [first] * (end - begin)
            target.atoms.append(((begin, end), piece))
        return target

    def put_together(self, aligned: Aligned) -> Target | None:
        """A translation of `without_atoms` with the placeholders inserted by alignment, or None if this fails."""
        text, kept = self.without_atoms()
        if self.found(aligned.text):  # placeholders that are not in the source
            aligned = Aligned(re.sub(PLACEHOLDER, " ", aligned.text).strip())
        if not aligned.text.strip():
            return None
        written, source = aligned.text, masked(self.text, [span for span, _ in self.atoms])
        origin = [kept[at] if at >= 0 else at for at in origins(text, written, aligned.links)]
        where, whole = Places(source, written, origin), ((0, len(source)), (0, len(written)))
        places = [where.point(begin, *whole) for (begin, _), _ in self.atoms]
        for always in (False, True):
            target, at = Target(), 0
            for place, ((begin, end), piece) in sorted(zip(places, self.atoms, strict=True), key=lambda one: one[0]):
                target.add(written[at:place], origin[at:place])
                space_before, space_after = self.text[begin - 1 : begin].isspace(), self.text[end : end + 1].isspace()
                if target.text and not target.text[-1].isspace() and (space_before or always):
                    target.add(" ", [-1])
                target.add(piece.text, [begin] * len(piece.text), [((0, len(piece.text)), piece)])
                if written[place : place + 1].strip() and (space_after or always):
                    target.add(" ", [-1])
                at = place
            target.add(written[at:], origin[at:])
            if self.keeps(target.text):
                return target
        return None


def sentences_of(segment: Segment, language: str) -> list[Sentence]:
    """The sentences of a segment. Placeholders are never split."""
    text, atoms = segment.text, [(span, piece) for piece, span in segment.spans() if piece.kind == "atom"]
    at, found, begins = 0, list[Sentence](), [begin for (begin, _), _ in atoms]
    hidden = masked(text, [span for span, _ in atoms]).replace(MASK[0], "X").replace(MASK[1], "X")
    first = -1
    for sentence in chain.from_iterable(map(_bounded, sentences(hidden, language))):
        at = hidden.index(sentence, at)
        first, at = at if first < 0 else first, at + len(sentence)
        own = atoms[bisect_left(begins, first) : bisect_left(begins, at)]
        if not own or own[-1][0][1] <= at:
            inside = [((begin - first, end - first), piece) for (begin, end), piece in own]
            found.append(Sentence(text[first:at], first, tuple(inside)))
            first = -1
    return found


def _bounded(sentence: str) -> Iterator[str]:
    """Split a sentence at white space if it is longer than `LONGEST`."""
    while len(sentence) > LONGEST:
        cut = sentence.rfind(" ", 1, LONGEST) + 1 or LONGEST
        yield sentence[:cut].rstrip()
        sentence = sentence[cut:].lstrip()
    yield sentence


def translate_segments(segments: Sequence[Segment], translate: Translate, language: str) -> list[str]:
    """The translations of segments, as written in the document.

    If the model changes placeholders, the sentence is translated without them, and they are inserted by alignment.
    """
    split = [sentences_of(segment, language) for segment in segments]
    wanted = [sentence for some in split for sentence in some if sentence.has_words]
    first = _translated([sentence.text for sentence in wanted], translate)
    done = {id(sentence): sentence.whole(first[sentence.text]) for sentence in wanted}
    again = {id(sentence): sentence.without_atoms()[0] for sentence in wanted if done[id(sentence)] is None}
    second = _translated(list(again.values()), translate)
    for sentence in wanted:
        if id(sentence) in again:
            done[id(sentence)] = sentence.put_together(second[again[id(sentence)]])
    results = [_joined(segment, some, done) for segment, some in zip(segments, split, strict=True)]
    refused = [not segment.accepts(result) for segment, result in zip(segments, results, strict=True)]
    kept = sum(
        sentence.has_words and (no or done[id(sentence)] is None)
        for some, no in zip(split, refused, strict=True)
        for sentence in some
    )
    if kept:
        warn(f"{kept:,} of {len(wanted):,} sentences stay as they are: no translation of them keeps their markup")
    return [segment.raw if no else result for segment, result, no in zip(segments, results, refused, strict=True)]


def _translated(texts: Sequence[str], translate: Translate) -> dict[str, Aligned]:
    """Translate each distinct text once."""
    unique = list(dict.fromkeys(texts))
    return dict(zip(unique, translate(unique), strict=True)) if unique else {}


def _joined(segment: Segment, some: Sequence[Sentence], done: Mapping[int, Target | None]) -> str:
    """Join the translations of a segment's sentences and the text between them, as written in the document."""
    check_waited_for()
    text, whole, at = segment.text, Target(), 0
    for sentence in some:
        part = done.get(id(sentence)) or sentence.as_it_is()
        whole.add(text[at : sentence.begin], range(at, sentence.begin))
        whole.sentences.append((sentence.begin, len(whole.text)))
        shifted = [one + sentence.begin if one >= 0 else one for one in part.origin]
        whole.add(part.text, shifted, part.atoms)
        at = sentence.begin + len(sentence.text)
    whole.add(text[at:], range(at, len(text)))
    return rendered(segment, whole)
