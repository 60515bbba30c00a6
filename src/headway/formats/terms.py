"""Terms with the translations that they are to have: found in sources, annotated for models, looked for in outputs."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from headway.core.errors import UserError
from headway.core.languages import WIDE
from headway.formats.lines import read_lines

BEGIN, MEANS, END = "⟦", "⇒", "⟧"  # around an annotated term, and between it and its translation
BEFORE, BEHIND = rf"(?<![^\W{WIDE}])", rf"(?![^\W{WIDE}])"  # where words begin and end
SENTENCE_BEGINS = r"(?:(?<=[.!?…。！？]\s)|\A)"


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
        self._targets = {_capital(term): target for term, target in self.terms.items()} | self.terms
        self._found = re.compile("|".join(map(_pattern, sorted(self.terms, key=len, reverse=True))) or r"(?!)")

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

    def found(self, text: str) -> Iterator[tuple[re.Match[str], str]]:
        """The terms of a text, longest first where they overlap, each with its translation."""
        for match in self._found.finditer(text):
            yield match, self._targets[match[0]]

    def annotated(self, text: str, target: str | None = None) -> str:
        """A source with the translation beside every term, inline (Dinu et al. 2019).

        Args:
            text: the source.
            target: its translation; only terms whose translation it has are annotated.
        """
        out, at = list[str](), 0
        for match, wanted in self.found(text):
            if target is None or _count(wanted, target):
                out += [text[at : match.start()], f"{BEGIN} {match[0]} {MEANS} {wanted} {END}"]
                at = match.end()
        return "".join([*out, text[at:]])

    def wanted(self, text: str) -> Counter[str]:
        """The translations that an output for a source should have, and how often."""
        return Counter(target for _, target in self.found(text))


def kept(wanted: Counter[str], output: str) -> int:
    """How many of the wanted translations an output has."""
    return sum(min(count, _count(term, output)) for term, count in wanted.items())


def _capital(term: str) -> str:
    return term[0].upper() + term[1:]


def _pattern(term: str) -> str:
    return rf"{BEFORE}{re.escape(term)}{BEHIND}|{SENTENCE_BEGINS}{re.escape(_capital(term))}{BEHIND}"


def _count(term: str, text: str) -> int:
    return len(re.findall(_pattern(term), text))
