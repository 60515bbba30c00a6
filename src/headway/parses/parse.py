"""A dependency parse of one line, with the characters of each token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import quote, unquote


class Token(NamedTuple):
    """A token: its characters [start, end) in the raw line, the index of its head (its own for a root), its label."""

    start: int
    end: int
    head: int
    label: str


@dataclass(frozen=True)
class Parse:
    """The tokens of a line, with a tree for each sentence; no tokens if the parser has no parse.

    Attributes:
        tokens: in the parser's order; the parts of a contraction may share characters.
        depths: the number of edges from each token to its root.

    Raises:
        ValueError: the heads do not form trees.
    """

    tokens: tuple[Token, ...]
    depths: tuple[int, ...]

    def __init__(self, tokens: Sequence[Token]) -> None:
        object.__setattr__(self, "tokens", tuple(tokens))
        object.__setattr__(self, "depths", tuple(depths([token.head for token in tokens])))

    def write(self) -> str:
        """The parse as one line of text without tabs."""
        return " ".join(f"{start}:{end}:{head}:{quote(label)}" for start, end, head, label in self.tokens)

    @classmethod
    def read(cls, text: str) -> Parse:
        """The parse from the result of `write`. Raises ValueError for other texts."""
        fields = [token.split(":") for token in text.split()]
        return cls([Token(int(start), int(end), int(head), unquote(label)) for start, end, head, label in fields])


def depths(heads: Sequence[int]) -> list[int]:
    """The number of edges from each token to its root. Raises ValueError if there is no root."""
    levels: dict[int, int] = {}
    for token in range(len(heads)):
        path, token_above = list[int](), token
        while token_above not in levels:
            head = heads[token_above]
            if not 0 <= head < len(heads) or len(path) > len(heads):
                raise ValueError(f"word {token_above + 1} has no way to a root (its head is {head + 1})")
            if head == token_above:
                levels[token_above] = 0
            else:
                path.append(token_above)
                token_above = head
        for step, below in enumerate(reversed(path), start=levels[token_above] + 1):
            levels[below] = step
    return [levels[token] for token in range(len(heads))]
