"""The interface of a teacher, which writes an output for each line. Each kind of teacher is one file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

from headway.augment.bulk_options import Marks
from headway.core.languages import look_unspaced
from headway.processing.text.line_ends import on_one_line


class DecodedLine(NamedTuple):
    """A line and the teacher's output for it.

    Attributes:
        score: the mean log probability per token, including the end mark; 0 if it is not known.
        lengths: the numbers of tokens of both.
        truncated: whether the model could only read a part of the line.
        at_limit: whether the output has the maximum length, so that its end may be missing.
        unknown: whether the teacher did not know several words of the line.
    """

    read: str
    written: str
    score: float
    lengths: tuple[int, int]
    truncated: bool
    at_limit: bool
    unknown: bool = False


class Teacher(ABC):
    """Writes an output for each line, in order.

    Attributes:
        scores: whether the probabilities of the outputs are known.
        identity: what the outputs depend on, as JSON; part of the manifest.
        marks: how words that the teacher did not know are marked in its outputs.
    """

    scores: ClassVar[bool] = False
    identity: dict[str, Any]
    marks: Marks = "none"

    @abstractmethod
    def check(self, chunks: Iterable[list[str]]) -> int:
        """Check all lines before any is decoded, and return their number. Raises UserError."""

    @abstractmethod
    def write(self, chunks: Iterable[list[str]], first_line: int) -> Iterator[list[DecodedLine]]:
        """Yield the outputs for each chunk of lines, of which the first line has the number `first_line`.

        Raises HeadwayError if the teacher fails.
        """


def without_scores(read: Sequence[str], written: Sequence[str]) -> list[DecodedLine]:
    """Pair lines with outputs of unknown probability.

    Lengths are counted in words, or in characters if the texts of a side have no spaces.
    """
    sides = [[on_one_line(text) for text in side] for side in (read, written)]
    counts = [[len(text) if unspaced else len(text.split()) for text in side]
              for side, unspaced in zip(sides, map(look_unspaced, sides), strict=True)]  # fmt: skip
    rows = zip(*sides, *counts, strict=True)
    return [DecodedLine(source, target, 0, (count, other), False, False) for source, target, count, other in rows]
