"""Normalisation steps of a line, each with the way of its characters."""

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from headway.languages import base_language
from headway.processing.text.spans import Span, align, identity

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


def _nfkc_spans(line: str, result: str) -> list[Span]:
    """Exact to the combining sequence: within one that changes, every new character comes from all the old ones."""
    if line == result:
        return identity(len(line))
    starts = [index for index, character in enumerate(line) if index == 0 or not _may_join(character)]
    spans: list[Span] = []
    for start, end in zip(starts, [*starts[1:], len(line)], strict=True):
        sequence = line[start:end]
        changed = unicodedata.normalize("NFKC", sequence)
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
    "nfkc": Step(lambda line, language: unicodedata.normalize("NFKC", line), _nfkc_spans),
    "punctuation": Step(lambda line, language: str(_punctuation_normaliser(language).normalize(line)), align),
    "lower": Step(lambda line, language: line.lower(), _lower_spans),
}
