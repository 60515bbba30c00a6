"""Terms with the translations that they are to have: found in sources, annotated for models, looked for in outputs."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from headway.core.errors import UserError
from headway.core.languages import WIDE
from headway.formats.lines import read_lines

BEGIN, MEANS, END = "⟦", "⇒", "⟧"  # around an annotated term, and between it and its translation
# Where words begin and end, and sentences.
BEFORE, BEHIND = re.compile(rf"(?<![^\W{WIDE}])"), re.compile(rf"(?![^\W{WIDE}])")
SENTENCE_BEGINS = re.compile(r"(?<=[.!?…。！？]\s)|\A")


@dataclass(frozen=True)
class TermCount:
    """How many terms a source has, how many of them the first output had, and how many the chosen one has."""

    asked: int = 0
    first: int = 0
    kept: int = 0

    def __add__(self, other: "TermCount") -> "TermCount":
        return TermCount(self.asked + other.asked, self.first + other.first, self.kept + other.kept)

    def record(self) -> dict[str, int | float | None]:
        """The counts and the term accuracy, in percent, as plain values."""
        accuracy = 100 * self.kept / self.asked if self.asked else None
        return {"asked": self.asked, "kept_at_first": self.first, "kept": self.kept, "term_accuracy": accuracy}


NO_TERMS = TermCount()


class Glossary:
    """Translations by term. A term is whole words as they are written, or with a capital where a sentence begins."""

    def __init__(self, terms: Mapping[str, str]) -> None:
        self.terms = {term: target for term, target in terms.items() if term.strip()}
        self._capitals = {_capital(term): target for term, target in self.terms.items()}
        lengths = defaultdict[str, set[int]](set)  # of the terms, by their first two characters
        for term in (*self.terms, *self._capitals):
            lengths[term[:2]].add(len(term))
        self._lengths = {prefix: sorted(some, reverse=True) for prefix, some in lengths.items()}

    @classmethod
    def read(cls, path: Path) -> "Glossary":
        """The glossary of a file, SOURCE TAB TARGET a line. Raises UserError for any other line, or a term in two."""
        terms = dict[str, str]()
        for number, line in enumerate(read_lines(path), start=1):
            cells = [cell.strip() for cell in line.split("\t")]
            if not line.strip():
                continue
            if len(cells) != 2 or not all(cells):
                what = "a line of a glossary is a term and its translation"
                raise UserError(what, where=f"{path}:{number}", received=line, allowed="SOURCE TAB TARGET")
            if terms.setdefault(cells[0], cells[1]) != cells[1]:
                what = "this term has another translation already"
                raise UserError(what, where=f"{path}:{number}", received=cells[0])
        return cls(terms)

    def found(self, text: str) -> Iterator[tuple[tuple[int, int], str]]:
        """The terms of a text, the longest of those that overlap, each with its translation."""
        end = 0
        for begin in range(len(text)):
            lengths = (*self._lengths.get(text[begin : begin + 2], ()), *self._lengths.get(text[begin], ()))
            for length in lengths if begin >= end else ():
                term = text[begin : begin + length]
                target = self.terms.get(term) if BEFORE.match(text, begin) else None
                if target is None and SENTENCE_BEGINS.match(text, begin):
                    target = self._capitals.get(term)
                if target is not None and BEHIND.match(text, begin + length):
                    end = begin + length
                    yield (begin, end), target
                    break

    def annotated(self, text: str, target: str | None = None) -> str:
        """A source with the translation beside every term, inline (Dinu et al. 2019).

        Args:
            text: the source.
            target: its translation; only terms whose translation it has are annotated.
        """
        out, at = list[str](), 0
        for (begin, end), wanted in self.found(text):
            if target is None or _count(wanted, target):
                out += [text[at:begin], f"{BEGIN} {text[begin:end]} {MEANS} {wanted} {END}"]
                at = end
        return "".join([*out, text[at:]])

    def wanted(self, text: str) -> Counter[str]:
        """The translations that an output for a source should have, and how often."""
        return Counter(target for _, target in self.found(text))


def kept(wanted: Counter[str], output: str) -> int:
    """How many of the wanted translations an output has."""
    return sum(min(count, _count(term, output)) for term, count in wanted.items())


def _capital(term: str) -> str:
    return term[0].upper() + term[1:]


def _count(term: str, text: str) -> int:
    return sum(1 for _ in Glossary({term: term}).found(text))
