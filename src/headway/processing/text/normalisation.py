"""Normalisation steps of a line, with character alignments (spans) between the original and the normalised line.

A list of spans holds, for each character of the normalised line, the range [start, end) of characters in the original
line that it came from. Starts and ends are both non-decreasing.
"""

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import permutations, product
from typing import TYPE_CHECKING, Literal

from headway.core.languages import base_language

Span = tuple[int, int]

# After a difference, two texts agree again when three characters match. The match is first searched nearby,
# then farther away, then with fewer characters. Each pair is the number of matching characters, and how many characters
# of each text may be skipped before the match. The cost of a line is at most its length times the far reach.
REACH, FAR = 48, 240
AGREEMENTS = ((3, REACH), (3, FAR), (2, REACH), (1, REACH))


def identity(length: int) -> list[Span]:
    return [(index, index + 1) for index in range(length)]


def compose(inner: list[Span], outer: list[Span], length: int) -> list[Span]:
    """The spans of two successive changes.

    Args:
        inner: spans from the line after the first change to the original line, which has `length` characters.
        outer: spans from the line after the second change to the line after the first.
    """
    ends = [0, *(end for _, end in inner)]
    starts = [*(start for start, _ in inner), length]
    composed = []
    for start, end in outer:
        if start < end:
            composed.append((starts[start], ends[end]))
        else:  # between two characters: the gap, or both characters if they come from the same ones
            composed.append((starts[start], max(starts[start], ends[start])))
    return composed


def align(before: str, after: str) -> list[Span]:
    """Align the characters of `after` to spans in `before`, for a change that keeps the order of most characters.

    White space may be inserted or removed anywhere; only the other characters are compared. Equal characters are
    aligned to each other. A stretch that was replaced ("…" by "...", "-" by "@-@") is aligned as a whole. A character
    that moves past others can get an empty span at its new position.
    """
    if before == after:
        return identity(len(before))
    positions = [position for position, character in enumerate(before) if not character.isspace()]
    visible = _align_visible("".join(before[position] for position in positions), "".join(after.split()))
    edges = [*positions, len(before)]
    aligned = iter([(edges[start], positions[end - 1] + 1 if start < end else edges[start]) for start, end in visible])
    spans: list[Span | None] = [None if character.isspace() else next(aligned) for character in after]
    return _fill(spans, len(before))


def _fill(spans: list[Span | None], length: int) -> list[Span]:
    """Fill in the spans of white space (None) with the gap between the spans of the neighbouring characters."""
    nexts, following = [length] * len(spans), length
    for index in range(len(spans) - 1, -1, -1):
        span = spans[index]
        following = following if span is None else span[0]
        nexts[index] = following
    filled: list[Span] = []
    last = 0
    for span, start in zip(spans, nexts, strict=True):
        if span is None:
            filled.append((min(last, start), max(last, start)))
        else:
            filled.append(span)
            last = span[1]
    return filled


def _align_visible(before: str, after: str) -> list[Span]:
    if before == after:
        return identity(len(before))
    spans: list[Span] = []
    position = 0
    while len(spans) < len(after):
        if position < len(before) and before[position] == after[len(spans)]:
            spans.append((position, position + 1))
            position += 1
        else:
            taken, given = _altered(before, position, after, len(spans))
            spans += [(position, position + taken)] * given
            position += taken
    return spans


def _altered(before: str, position: int, after: str, offset: int) -> tuple[int, int]:
    """The lengths of the differing stretches from `position` and `offset` on, until the texts agree again.

    The texts must differ at the first character.
    """
    for size, reach in AGREEMENTS:
        if (nearest := _nearest_agreement(before, position, after, offset, size, reach)) is not None:
            return nearest
    return len(before) - position, len(after) - offset


def _nearest_agreement(
    before: str, position: int, after: str, offset: int, size: int, reach: int
) -> tuple[int, int] | None:
    """The shortest stretches to skip in both texts so that the next `size` characters agree.

    Among equally short pairs, the one that skips least of `before` is chosen. None if there is no agreement in reach.
    """
    first: dict[str, int] = {}
    for given in range(min(reach, len(after) - offset + 1)):
        first.setdefault(after[offset + given : offset + given + size], given)
    best: tuple[int, int] | None = None
    for taken in range(min(reach, len(before) - position + 1)):
        if best is not None and taken >= sum(best):
            break
        given = first.get(before[position + taken : position + taken + size], reach)
        total = taken + given
        if 0 < total < reach and (best is None or total < sum(best)):
            best = taken, given
    return best


if TYPE_CHECKING:
    from sacremoses import MosesPunctNormalizer

PUNCTUATION_RULES = ("cs", "de", "en", "es", "fr")  # languages with rules for quotation marks and numbers


@dataclass(frozen=True)
class Step:
    """A normalisation step: `apply(line, language)`, and `spans(line, result)`, the spans of its result in `line`."""

    apply: Callable[[str, str], str]
    spans: Callable[[str, str], list[Span]]


@lru_cache
def _punctuation_normaliser(language: str) -> "MosesPunctNormalizer":
    from sacremoses import MosesPunctNormalizer  # imported late: it takes half a second

    return MosesPunctNormalizer(base_language(language))


def _lower_spans(line: str, result: str) -> list[Span]:
    # "İ" becomes two characters. Only a final sigma depends on its neighbours, and it stays one character.
    spans = [(index, index + 1) for index, character in enumerate(line) for _ in character.lower()]
    assert len(spans) == len(result)
    return spans


# White space except the space itself; and Unicode's default-ignorable characters, except those that change adjacent
# characters: U+200C and U+200D (Persian, Hindi, emoji), the selectors of Mongolian letters, and the tags of flags.
_SPACES = r"\t-\r\x1c-\x1f\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_SIGNS = (
    r"\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff"
    r"\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e001f\U000e0080-\U000e0fff"
)
_SPACE, _SIGN = (re.compile(f"[{kind}]") for kind in (_SPACES, _SIGNS))
_PLANES = (*range(0xD800), *range(0xE000, 0x30000), *range(0xE0000, 0xE1000))  # the others are unassigned or private


def _visible(line: str) -> str:
    return line if line.isascii() and line.isprintable() else _SIGN.sub("", _SPACE.sub(" ", line))


def cleaned(line: str) -> str:
    """Replace all white space with spaces, remove invisible characters, and convert the line to Unicode's form NFC."""
    return unicodedata.normalize("NFC", _visible(line))


def _cleaned_spans(line: str, result: str) -> list[Span]:
    kept = [(index, index + 1) for index, character in enumerate(line) if not _SIGN.match(character)]
    return compose(kept, _composed_spans("NFC", _visible(line), result), len(line))


@lru_cache(maxsize=1)
def clean_rules() -> dict[str, str]:
    """The result of `cleaned` for each character and composed sequence that it changes."""
    rules = dict[str, str]()
    for character in map(chr, _PLANES):
        if (changed := cleaned(character)) != character:
            rules[character] = changed
        base, *marks = [*unicodedata.normalize("NFD", character)]
        for order, count in product(permutations(marks) if marks else (), range(len(marks))):
            written = cleaned(base + "".join(order[:count])) + "".join(order[count:])
            if cleaned(written) == changed != written:
                rules[written] = changed
    return rules


def _composed_spans(form: Literal["NFC", "NFKC"], line: str, result: str) -> list[Span]:
    """Spans for Unicode composition. The characters of a changed combining sequence come from all of the sequence."""
    if line == result:
        return identity(len(line))
    starts = [index for index, character in enumerate(line) if index == 0 or not _may_join(character)]
    spans: list[Span] = []
    for start, end in zip(starts, [*starts[1:], len(line)], strict=True):
        sequence = line[start:end]
        changed = unicodedata.normalize(form, sequence)
        if changed == sequence:
            spans += [(index, index + 1) for index in range(start, end)]
        else:
            spans += [(start, end)] * len(changed)
    assert len(spans) == len(result)
    return spans


def _may_join(character: str) -> bool:
    """Whether a character can change, or move, together with preceding characters (Unicode Standard Annex 15)."""
    first = unicodedata.normalize("NFKD", character)[0]
    return unicodedata.combining(first) != 0 or first in _second_of_composites()


@lru_cache(maxsize=1)
def _second_of_composites() -> frozenset[str]:
    """All characters that compose with a preceding one: those in canonical pairs, Hangul vowels and finals."""
    decompositions = (unicodedata.decomposition(chr(code)).split() for code in range(0x110000))
    seconds = (parts[1] for parts in decompositions if len(parts) == 2 and not parts[0].startswith("<"))
    hangul = (*range(0x1161, 0x1176), *range(0x11A8, 0x11C3))
    return frozenset(chr(int(second, 16)) for second in seconds) | frozenset(map(chr, hangul))


STEPS: dict[str, Step] = {
    "clean": Step(lambda line, language: cleaned(line), _cleaned_spans),
    "nfkc": Step(lambda line, language: unicodedata.normalize("NFKC", line), partial(_composed_spans, "NFKC")),
    "punctuation": Step(lambda line, language: str(_punctuation_normaliser(language).normalize(line)), align),
    "lower": Step(lambda line, language: line.lower(), _lower_spans),
}
