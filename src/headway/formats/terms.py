"""Terminology: terms with required translations, matched in sources, annotated for models, and counted in outputs."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from headway.core.errors import UserError
from headway.core.languages import WIDE
from headway.formats.lines import read_lines

BEGIN, MEANS, END = "⟦", "⇒", "⟧"  # before a term, between term and translation, and after it
# The beginnings and ends of words, and the beginnings of sentences.
BEFORE, BEHIND = re.compile(rf"(?<![^\W{WIDE}])"), re.compile(rf"(?![^\W{WIDE}])")
SENTENCE_BEGINS = re.compile(r"(?<=[.!?…。！？]\s)|\A")


@dataclass(frozen=True)
class TermCount:
    """The number of terms in a source, and how many of their translations are in the first and in the chosen output."""

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
    """The translation of each term. A term matches whole words, also with a capital at the beginning of a sentence."""

    def __init__(self, terms: Mapping[str, str]) -> None:
        self.terms = {term: target for term, target in terms.items() if term.strip()}
        self._capitals = {_capital(term): target for term, target in self.terms.items()}
        lengths = defaultdict[str, set[int]](set)  # lengths of terms, by their first two characters
        for term in (*self.terms, *self._capitals):
            lengths[term[:2]].add(len(term))
        self._lengths = {prefix: sorted(some, reverse=True) for prefix, some in lengths.items()}

    @classmethod
    def read(cls, path: Path) -> "Glossary":
        """Read a file with lines SOURCE TAB TARGET.

        Raises UserError for other lines, or a term with two translations.
        """
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
        """The terms in a text, preferring the longest of overlapping terms, each with its span and translation."""
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
        """Annotate the terms of a source inline with their translations (Dinu et al. 2019).

        Args:
            text: the source.
            target: its translation; only terms whose translations occur in it are annotated.
        """
        out, at = list[str](), 0
        for (begin, end), wanted in self.found(text):
            if target is None or _count(wanted, target):
                out += [text[at:begin], f"{BEGIN} {text[begin:end]} {MEANS} {wanted} {END}"]
                at = end
        return "".join([*out, text[at:]])

    def wanted(self, text: str) -> Counter[str]:
        """The translations that the output for a source should contain, with their counts."""
        return Counter(target for _, target in self.found(text))


def kept(wanted: Counter[str], output: str) -> int:
    """The number of `wanted` translations in an output."""
    return sum(min(count, _count(term, output)) for term, count in wanted.items())


def _capital(term: str) -> str:
    return term[0].upper() + term[1:]


def _count(term: str, text: str) -> int:
    return sum(1 for _ in Glossary({term: term}).found(text))
