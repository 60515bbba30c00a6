"""The interface of a processor, which turns raw inputs into arrays that a model reads, with a label for every position.

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
        texts: the text of each word.
        of: for each token, the index of its word.
        tags: how many of the first words are tags such as `<2de>`, or belong to earlier sentences and their separators.
    """

    texts: tuple[str, ...]
    of: tuple[int, ...]
    tags: int = 0


NO_WORDS = Words((), ())


@dataclass(frozen=True)
class Truncation:
    """The maximum length of a text: its first `length` tokens, or its first `length` words before tokenization."""

    length: int
    unit: Literal["pieces", "words"] = "pieces"

    def __str__(self) -> str:
        return f"{self.length:,} {self.unit}"


class Encoded(NamedTuple):
    """An encoded input, as batches hold it.

    Attributes:
        values: ids without special tokens, frames (F, M), or other values that the model of the task reads.
        truncated: whether part of the input was cut off.
        silent: whether the input is a recording without any sound.
    """

    values: Any
    truncated: bool = False
    silent: bool = False


class Processor(ABC):
    """Converts the raw inputs of one side of a model into arrays. Processors can be pickled.

    Attributes:
        unit: the plural name of positions in messages.
        noun: the name of a raw input in messages.
    """

    unit: ClassVar[str]
    noun: ClassVar[str]

    @property
    @abstractmethod
    def size(self) -> int:
        """The vocabulary size, or the number of values of a frame."""

    def name(self, raw: Any) -> str:
        """The name of a raw input in messages and results. By default this is the text itself."""
        return str(raw)

    @abstractmethod
    def encode(self, raw: Any, truncation: Truncation | None = None) -> Encoded:
        """Encode a raw input, truncated if `truncation` is set. Raises UserError if the input cannot be read."""

    @abstractmethod
    def length(self, encoded: Any) -> int:
        """The number of positions that a model reads, including the end-of-sentence token if there is one."""

    @abstractmethod
    def labels(self, encoded: Any, positions: Sequence[int]) -> list[str]:
        """The names of the positions: tokens, or the start times of frames in seconds."""

    def words(self, encoded: Any, raw: Any = None) -> Words:
        """The words that the tokens belong to; none by default. Unknown words are spelled as in `raw`."""
        return NO_WORDS

    @abstractmethod
    def same(self, other: Processor) -> bool:
        """Whether both processors encode inputs into the same values, so that one model can read either."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write the processor into `folder`, which is created if it does not exist."""

    @classmethod
    @abstractmethod
    def load(cls, folder: Path) -> Self:
        """Load a processor that `save` wrote. Raises UserError if a file is missing or damaged."""


class Processors(NamedTuple):
    """The processors of both sides of a model."""

    source: Processor
    target: Processor


def encode_beginnings(
    vocabulary: Vocabulary, prepared: Sequence[str], truncation: Truncation | None
) -> tuple[list[list[int]], list[bool]]:
    """The ids of prepared lines up to a maximum length, without BOS and EOS, and whether each line was truncated."""
    if truncation is None:
        return vocabulary.encode_lines(prepared), [False] * len(prepared)
    if truncation.unit == "words":
        beginnings = [first_words(line, truncation.length) for line in prepared]
        cut = [len(part) < len(line.rstrip()) for part, line in zip(beginnings, prepared, strict=True)]
        return vocabulary.encode_lines(beginnings), cut
    encoded = vocabulary.encode_lines(prepared)
    return [ids[: truncation.length] for ids in encoded], [len(ids) > truncation.length for ids in encoded]


def first_words(text: str, count: int) -> str:
    """The text up to the end of its first `count` words, which are separated by white space."""
    beginning = _words(count).match(text)
    assert beginning is not None
    return beginning[0]


@cache
def _words(count: int) -> re.Pattern[str]:
    return re.compile(rf"(?:\s*\S+){{0,{count}}}")
