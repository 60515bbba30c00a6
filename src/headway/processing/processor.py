"""The contract of a processor: from raw inputs to arrays that a model reads, with a label for every position.

A position is a token of a text or a frame of a recording.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Self

from headway.processing.text.vocabulary import Vocabulary


@dataclass(frozen=True)
class Words:
    """The words of an encoded input.

    Attributes:
        texts: their texts.
        of: for each token the index of its word.
        tags: how many of them, which come first, are tags such as `<2de>`, or of earlier sentences with the marks after
            these.
    """

    texts: tuple[str, ...]
    of: tuple[int, ...]
    tags: int = 0


NO_WORDS = Words((), ())


@dataclass(frozen=True)
class Truncation:
    """How much of a text is read: its first `length` tokens, or words as they stand before the vocabulary cuts them."""

    length: int
    unit: Literal["pieces", "words"] = "pieces"

    def __str__(self) -> str:
        return f"{self.length:,} {self.unit}"


class Encoded(NamedTuple):
    """An input as batches hold it.

    Attributes:
        values: ids without special tokens, frames (F, M), or what else the model of the task reads.
        truncated: whether the input has more than was encoded.
        silent: whether it is a recording without any sound.
    """

    values: Any
    truncated: bool = False
    silent: bool = False


class Processor(ABC):
    """The way from the raw inputs of one side of a model to arrays. Can be sent to another process.

    Attributes:
        unit: what positions are called in messages, in the plural.
        noun: what one raw input is called in messages.
    """

    unit: ClassVar[str]
    noun: ClassVar[str]

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of tokens in the vocabulary, or of values a frame."""

    def name(self, raw: Any) -> str:
        """The name of a raw input in messages and results; a text is its own name."""
        return str(raw)

    @abstractmethod
    def encode(self, raw: Any, truncation: Truncation | None = None) -> Encoded:
        """A raw input, or as much of it as `truncation` says. Raises UserError where it cannot be read."""

    @abstractmethod
    def length(self, encoded: Any) -> int:
        """The number of positions that a model reads of encoded values, an end mark included where there is one."""

    @abstractmethod
    def labels(self, encoded: Any, positions: Sequence[int]) -> list[str]:
        """The names of positions of encoded values: tokens, or the seconds at which frames begin."""

    def words(self, encoded: Any, raw: Any = None) -> Words:
        """The words that tokens are parts of, unknown ones as they stand in `raw`; none where inputs have no words."""
        return NO_WORDS

    @abstractmethod
    def same(self, other: Processor) -> bool:
        """Whether a model of the other processor can read what this one encodes."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write all that `load` needs into `folder`, which is made where it does not exist."""

    @classmethod
    @abstractmethod
    def load(cls, folder: Path) -> Self:
        """The processor that `save` wrote. Raises UserError where a file is missing or damaged."""


class Processors(NamedTuple):
    """The processors of both sides of a model."""

    source: Processor
    target: Processor


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
