"""Accelerators: the marks of keys in labels, as in `&File` and `_Open`, which are taken out and put back."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from headway.core.languages import base_language
from headway.markup.placeholders import PLACEHOLDER

MARKS = "&_"
NOT_LETTERS = re.compile(rf"\\.|<[^<>]*>|&#?\w+;|{PLACEHOLDER}")
WORD = re.compile(r"[^\W_]+")
APPENDED = ("zh", "yue", "ja", "ko")  # languages whose labels have their key behind them, as in 文件(&F)
END = re.compile(r"(?:\.{3}|[\s.:…。：])*\Z")


class Accelerator(NamedTuple):
    """A mark before the letter at `offset` of the word `word`, which is number `order` of its kind in a label."""

    mark: str
    word: str
    offset: int
    order: int

    @property
    def letter(self) -> str:
        return self.word[self.offset]


def find(text: str, marks: str = "") -> tuple[int, int, Accelerator] | None:
    """The only accelerator of a label, and the span to leave out.

    `marks` are those that the document declares. Otherwise a sign within a word is one only if it is not a name.
    """
    masked = _masked(text)
    for mark in marks or MARKS:
        at = masked.find(mark)
        if at < 0 or masked.count(mark) > 1 or not text[at + 1 : at + 2].isalnum():
            continue
        before = re.search(r"[^\W_]*\Z", text[:at])[0]  # type: ignore[index]
        first = before[:1] or text[at + 1]
        if not marks and before and (text[at + 1].isupper() or (mark == "_" and not first.isupper())):
            continue  # AT&T, first_name
        behind = text[at - 1 : at] == "(" and text[at + 2 : at + 3] == ")"
        begin, end = (at - 1, at + 3) if behind else (at, at + 1)
        bare = text[:at] + text[at + 1 :]
        words = [(match.start(), match[0].casefold()) for match in WORD.finditer(bare)]
        start, word = next((start, word) for start, word in words if start <= at < start + len(word))
        order = sum(other == word and place < start for place, other in words)
        return begin, end, Accelerator(mark, word, at - start, order)
    return None


def put_back(accelerator: Accelerator, label: str, language: str) -> str:
    """A translated label with its mark: in the same word, at the beginning of one, before the letter, or first."""
    words = [(match.start(), match[0].casefold()) for match in WORD.finditer(_masked(label))]
    letter = accelerator.letter
    same = [start + accelerator.offset for start, word in words if word == accelerator.word]
    if not same and base_language(language) in APPENDED:
        end = END.search(label).start()  # type: ignore[union-attr]
        return f"{label[:end]}({accelerator.mark}{letter.upper()}){label[end:]}"
    begins = [start for start, word in words if word[0] == letter]
    within = [start + word.index(letter) for start, word in words if letter in word]
    places: Sequence[int] = same[accelerator.order :] or same or begins or within or [start for start, _ in words]
    return f"{label[: places[0]]}{accelerator.mark}{label[places[0] :]}" if places else label


def _masked(text: str) -> str:
    """The text with spaces instead of placeholders, tags, entities and escapes."""
    return NOT_LETTERS.sub(lambda match: " " * len(match[0]), text)
