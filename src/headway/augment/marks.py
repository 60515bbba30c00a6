"""Apertium's marks of words in outputs: `*` unknown to the dictionary, `@` without translation, `#` not inflected."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from headway.augment.teacher import DecodedLine

MARK = re.compile(r"(?<!\w)[*@#](?=\w*[^\W\d_])")
MARKED = re.compile(rf"{MARK.pattern}(\w+)")
MOST = 1  # marked lower-case words of an output that is kept


class Unmarked(Iterable[DecodedLine]):
    """Lines whose outputs have no marks. Lines with more than `MOST` marked lower-case words are `unknown`.

    Capitalised words are mostly names, which are the same in both languages.
    """

    def __init__(self, lines: Iterable[DecodedLine]) -> None:
        self.lines, self.words, self.marked = lines, 0, 0

    def __iter__(self) -> Iterator[DecodedLine]:
        for line in self.lines:
            marked = MARKED.findall(line.written)
            self.words += len(line.written.split())
            self.marked += len(marked)
            unknown = sum(word[0].islower() for word in marked) > MOST
            yield line._replace(written=MARK.sub("", line.written), unknown=unknown)

    def record(self) -> dict[str, Any]:
        """The share of marked words in all outputs that were read."""
        return {"unknown_words": self.marked / max(1, self.words)}
