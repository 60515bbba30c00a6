"""Characters that stand in a text and in no text of training: no model can have learned anything of them."""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headway.formats.corpus_format import Pair
from headway.log import counted

SHOWN = 20  # characters that are named in a text


@dataclass(frozen=True)
class UnseenCharacters:
    """How often characters of dev stand there that no text of training has on the same side."""

    source: Mapping[str, int]
    target: Mapping[str, int]

    def text(self) -> list[str]:
        """A line for each side that has such characters."""
        sides = (("source", self.source), ("target", self.target))
        return [f"data.dev: in the {side}s, {described(counts)}" for side, counts in sides if counts]


def described(counts: Mapping[str, int]) -> str:
    """Counts of characters in words, the most frequent first, with their names in Unicode."""
    total, different = sum(counts.values()), len(counts)
    first = sorted(counts, key=lambda character: (-counts[character], character))[:SHOWN]
    named = ", ".join(f"{character_name(character)} {counts[character]:,}" for character in first)
    more = ", ..." if different > SHOWN else ""
    return f"{counted(total, 'character')} ({different:,} different: {named}{more}) that no text of training has"


def character_name(character: str) -> str:
    """A character as people find it: itself where it can be seen, its code point and its name."""
    shown = f"{character} " if character.isprintable() and not character.isspace() else ""
    return f"{shown}U+{ord(character):04X} {unicodedata.name(character, 'without a name')}"


def unseen_characters(train: Iterable[Pair], dev: Iterable[Pair], *, sources: bool = True) -> UnseenCharacters:
    """Count the characters of dev that training has not; both are read once.

    Args:
        train: the pairs of training.
        dev: the pairs of dev.
        sources: whether sources are texts.
    """
    seen: tuple[set[str], set[str]] = set(), set()
    for pair in train:
        seen[0].update(pair.source if sources else "")
        seen[1].update(pair.target)
    counts = Counter[str](), Counter[str]()
    for pair in dev:
        counts[0].update(pair.source if sources else "")
        # The references of a treebank are trees, and no texts of the kind that is learned.
        for text in pair.references if pair.target in pair.references else (pair.target,):
            counts[1].update(text)
    source, target = (
        {character: count for character, count in counted.items() if character not in known}
        for counted, known in zip(counts, seen, strict=True)
    )
    return UnseenCharacters(source, target)
