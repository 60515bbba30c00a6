"""A task of the length-generalization suite: a way of drawing examples of a given length, in variants."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import NamedTuple


class LengthExample(NamedTuple):
    """A prompt and its answer, tokens separated by spaces, and the length that results are reported by."""

    prompt: str
    answer: str
    length: int


Draw = Callable[[Random, int], tuple[str, str]]


@dataclass(frozen=True)
class LengthTask:
    """A family of examples.

    Args:
        name: its name on the command line.
        variants: by name, what draws a prompt and an answer of a given length; the first is the default.
        trained: the longest examples of training, unless asked otherwise.
        tested: the longest examples of the test, unless asked otherwise.
        longest: the longest examples that there can be, if there is a limit.
    """

    name: str
    variants: Mapping[str, Draw]
    trained: int
    tested: int
    longest: int | None = None


@dataclass(frozen=True)
class Sizes:
    """How much is drawn: examples of `train` and `dev` in all, and of `test` for each length."""

    train: int = 20_000
    dev: int = 500
    test: int = 100


DEFAULT_SIZES = Sizes()


@dataclass(frozen=True)
class LengthData:
    """The parts, no prompt of which is in another, and the longest length in training."""

    train: list[LengthExample]
    dev: list[LengthExample]
    test: list[LengthExample]
    trained: int
