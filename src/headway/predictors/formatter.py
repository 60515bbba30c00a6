"""Formatters convert lines into the model's input text, and its output text into outputs, such as trees of a parser."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from headway.core.errors import UserError, option
from headway.trees.linear_form import KINDS, repair
from headway.trees.tree import Tree, draw, escape, unescape

LINEAR = "linear"  # the text of the model, unchanged


class Formatted(NamedTuple):
    """A formatted output.

    Attributes:
        text: the output.
        repairs: the number of repairs of the model's text, by kind. None if outputs are never repaired.
    """

    text: str
    repairs: Mapping[str, int] | None = None


class Formatter:
    """Converts lines to the model's input text, and the model's text to outputs. This one changes neither.

    A formatter stores nothing about the lines, so threads may share it.

    Attributes:
        in_lines: whether every output is a single line.
    """

    in_lines: bool = True

    def check(self, line: str, where: str) -> None:
        """Raise UserError, located at `where`, if the line is not a valid input."""

    def check_target(self, line: str, where: str) -> None:
        """Raise UserError, located at `where`, if the line is not a valid target to score."""

    def source(self, line: str) -> str:
        """The text that the model reads for a line. Raises UserError if the line is not valid."""
        return line

    def output(self, line: str, text: str) -> Formatted:
        """The output for an input line, made from the text that the model wrote."""
        return Formatted(text)


STYLES: dict[str, Callable[[Tree], str]] = {"brackets": Tree.write, "drawing": lambda tree: f"{draw(tree)}\n"}


class TreeFormatter(Formatter):
    """Every line is a sentence, its words separated by spaces; every output is a tree over exactly these words.

    Words may be escaped as in a treebank: `-LRB-` is read as a bracket, as in training.

    Args:
        style: a name in `STYLES`, or `LINEAR`.
        tagged: whether words have part-of-speech tags, as in `dog_NN`, which the trees keep.
    """

    def __init__(self, style: str = "brackets", *, tagged: bool = False) -> None:
        self.style, self.tagged, self.in_lines = style, tagged, style != "drawing"

    def check(self, line: str, where: str) -> None:
        self._read(line, where)

    def check_target(self, line: str, where: str) -> None:
        if line.rstrip().endswith(")"):  # in the linear form, a closing bracket has a label
            allowed = f"linear forms, as `headway data make trees` writes them with format={LINEAR}"
            raise UserError("this is a tree in brackets", where=where, received=line, allowed=allowed)

    def source(self, line: str) -> str:
        return " ".join(self._read(line)[0])

    def output(self, line: str, text: str) -> Formatted:
        if self.style == LINEAR:
            return Formatted(text)
        words, tags = self._read(line)
        if not words:
            return Formatted("")
        repaired = repair(text, words, tags)
        return Formatted(STYLES[self.style](repaired.tree), repaired.counts)

    def _read(self, line: str, where: str | None = None) -> tuple[list[str], list[str] | None]:
        if not self.tagged:
            return [unescape(word) for word in line.split()], None
        words, tags = list[str](), list[str]()
        for token in line.split():
            word, _, tag = token.rpartition("_")
            if not word or not tag:
                what = f"with {option('tagged')}, a word comes with its tag"
                raise UserError(what, where=where, received=token, allowed="WORD_TAG")
            words.append(unescape(word))
            tags.append(escape(tag))
        return words, tags


@dataclass
class RepairCount:
    """The number of repaired trees, and of repairs by kind."""

    trees: int = 0
    repaired: int = 0
    kinds: Counter[str] = field(default_factory=Counter)

    def add(self, repairs: Mapping[str, int] | None) -> None:
        """Count one output. None stands for an output that is not a tree."""
        if repairs is not None:
            self.trees += 1
            self.repaired += bool(repairs)
            self.kinds.update(repairs)

    def text(self) -> str:
        """The number of repaired trees and of repairs by kind, in words. Empty if no tree was counted."""
        if not self.trees:
            return ""
        kinds = ", ".join(f"{kind}: {self.kinds[kind]:,}" for kind in KINDS if self.kinds[kind])
        share = f"{self.repaired:,} of {self.trees:,} trees were repaired ({self.repaired / self.trees:.1%})"
        return share + (f"; {kinds}" if kinds else "")
