"""Normalisation steps of a line, each with the way of its characters: spans.

A list of spans holds, for each character of a changed line, the characters [start, end) of the line it came from. Spans
are monotone: neither starts nor ends ever go back.
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

# Two texts run together again where three characters agree: short enough for what stands between two marks. That is
# looked for nearby, then farther off; then fewer characters that agree are enough. Each pair is a number of characters,
# and how many may be left out of both texts before them. The cost of a line is at most its length times the far reach.
REACH, FAR = 48, 240
AGREEMENTS = ((3, REACH), (3, FAR), (2, REACH), (1, REACH))


def identity(length: int) -> list[Span]:
    """Every character from itself."""
    return [(index, index + 1) for index in range(length)]


def compose(inner: list[Span], outer: list[Span], length: int) -> list[Span]:
    """The way through two changes.

    Args:
        inner: spans of the line after the first change, in the first line, which has `length` characters.
        outer: spans of the line after the second change, in the line after the first.
    """
    ends = [0, *(end for _, end in inner)]
    starts = [*(start for start, _ in inner), length]
    composed = []
    for start, end in outer:
        if start < end:
            composed.append((starts[start], ends[end]))
        else:  # between two characters: the position of the gap, or both where they come from the same ones
            composed.append((starts[start], max(starts[start], ends[start])))
    return composed


def align(before: str, after: str) -> list[Span]:
    """Spans in `before` of the characters of `after`, for a change that keeps the order of most characters.

    White space may come and go anywhere: what remains is compared. Equal characters belong together; a stretch that
    was altered ("…" to "...", "-" to "@-@") belongs together as a whole. A character that jumps over others can come
    from nowhere: an empty span at its new position.
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
    """White space (None) comes from what lies between its neighbours' characters."""
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
    """How many characters from a position were replaced by how many from an offset, until the texts agree again.

    The first character of each is not that of the other.
    """
    for size, reach in AGREEMENTS:
        if (nearest := _nearest_agreement(before, position, after, offset, size, reach)) is not None:
            return nearest
    return len(before) - position, len(after) - offset


def _nearest_agreement(
    before: str, position: int, after: str, offset: int, size: int, reach: int
) -> tuple[int, int] | None:
    """The fewest characters to leave out of both texts, and of these of the first, for `size` to agree after them."""
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
    """`apply(line, language)` and, for each character of what it gave, `spans(line, result)` in `line`."""

    apply: Callable[[str, str], str]
    spans: Callable[[str, str], list[Span]]


@lru_cache
def _punctuation_normaliser(language: str) -> "MosesPunctNormalizer":
    from sacremoses import MosesPunctNormalizer  # half a second, which most commands do not need

    return MosesPunctNormalizer(base_language(language))


def _lower_spans(line: str, result: str) -> list[Span]:
    # "İ" becomes two characters. Lengths do not depend on neighbours; the final sigma, which does, stays one.
    spans = [(index, index + 1) for index, character in enumerate(line) for _ in character.lower()]
    assert len(spans) == len(result)
    return spans


# White space but the space itself; and signs that Unicode calls default-ignorable, but for those that change what is
# beside them: U+200C and U+200D (Persian, Hindi, emoji), the selectors of Mongolian letters, and the tags of flags.
_SPACES = r"\t-\r\x1c-\x1f\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_SIGNS = (
    r"\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff"
    r"\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e001f\U000e0080-\U000e0fff"
)
_SPACE, _SIGN = (re.compile(f"[{kind}]") for kind in (_SPACES, _SIGNS))
_PLANES = (*range(0xD800), *range(0xE000, 0x30000), *range(0xE0000, 0xE1000))  # all else is not assigned, or private


def _visible(line: str) -> str:
    return line if line.isascii() and line.isprintable() else _SIGN.sub("", _SPACE.sub(" ", line))


def cleaned(line: str) -> str:
    """The line with a space for each other white space, without invisible signs, and in Unicode's form NFC."""
    return unicodedata.normalize("NFC", _visible(line))


def _cleaned_spans(line: str, result: str) -> list[Span]:
    kept = [(index, index + 1) for index, character in enumerate(line) if not _SIGN.match(character)]
    return compose(kept, _composed_spans("NFC", _visible(line), result), len(line))


@lru_cache(maxsize=1)
def clean_rules() -> dict[str, str]:
    """The text that `cleaned` makes of each character or composed sequence; unchanged ones are left out."""
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
    """Exact to the combining sequence: within one that changes, every new character comes from all the old ones."""
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
    """Whether a character can change, or change its position, with those before it (Unicode Standard Annex 15)."""
    first = unicodedata.normalize("NFKD", character)[0]
    return unicodedata.combining(first) != 0 or first in _second_of_composites()


@lru_cache(maxsize=1)
def _second_of_composites() -> frozenset[str]:
    """All characters that compose with one before them: those of canonical pairs, and Hangul vowels and finals."""
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
