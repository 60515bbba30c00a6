"""Long sources cut to their beginning."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from headway.processing.text.vocabulary import Vocabulary


@dataclass(frozen=True)
class Truncation:
    """How much of a text is read: its first `length` tokens, or words as they stand before the vocabulary cuts them."""

    length: int
    unit: Literal["pieces", "words"] = "pieces"

    def __str__(self) -> str:
        return f"{self.length:,} {self.unit}"


def encode_beginnings(
    vocabulary: Vocabulary, prepared: Sequence[str], truncation: Truncation | None
) -> tuple[list[list[int]], list[bool]]:
    """The ids of prepared lines, without BOS and EOS, and of which lines something was left out."""
    if truncation is None:
        return vocabulary.encode_lines(prepared), [False] * len(prepared)
    if truncation.unit == "words":
        beginnings = [first_words(line, truncation.length) for line in prepared]
        cut = [len(part) < len(line.rstrip()) for part, line in zip(beginnings, prepared, strict=True)]
        return vocabulary.encode_lines(beginnings), cut
    encoded = vocabulary.encode_lines(prepared)
    return [ids[: truncation.length] for ids in encoded], [len(ids) > truncation.length for ids in encoded]


def first_words(text: str, count: int) -> str:
    """The text up to the end of its first `count` words, which white space separates."""
    beginning = _words(count).match(text)
    assert beginning is not None
    return beginning[0]


@cache
def _words(count: int) -> re.Pattern[str]:
    return re.compile(rf"(?:\s*\S+){{0,{count}}}")
