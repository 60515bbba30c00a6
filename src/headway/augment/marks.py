"""Apertium's marks of words in outputs: `*` unknown to the dictionary, `@` without translation, `#` not inflected."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from headway.augment.teacher import DecodedLine

MARKED = re.compile(r"([*@#]?)([*@#])(\w*[^\W\d_]\w*)")  # another sign, the mark, and a word with a letter
MOST = 1  # marked lower-case words of an output that is kept


class Unmarked(Iterable[DecodedLine]):
    """Lines whose outputs have no marks. Lines with more than `MOST` marked lower-case words are `unknown`.

    Capitalised words are mostly names, which are the same in both languages.
    """

    def __init__(self, lines: Iterable[DecodedLine]) -> None:
        self.lines, self.words, self.marked = lines, 0, 0

    def __iter__(self) -> Iterator[DecodedLine]:
        for line in self.lines:
            written, marked = unmarked(line.read, line.written)
            self.words += len(line.written.split())
            self.marked += len(marked)
            yield line._replace(written=written, unknown=sum(word[0].islower() for word in marked) > MOST)

    def record(self) -> dict[str, Any]:
        """The share of marked words in all outputs that were read."""
        return {"unknown_words": self.marked / max(1, self.words)}


def unmarked(read: str, written: str) -> tuple[str, list[str]]:
    """An output without marks, and the words that were marked. A sign that the line has before this word is no mark."""
    marked = list[str]()

    def replaced(found: re.Match[str]) -> str:
        other, mark, word = found.groups()
        if not other and f"{mark}{word}" in read:
            return found[0]
        marked.append(word)
        return f"{other}{word}"

    return MARKED.sub(replaced, written), marked
