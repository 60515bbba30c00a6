"""Sentences in, trees out: the form of a parser's lines."""

from collections import Counter
from collections.abc import Callable

from headway.errors import UserError
from headway.predictors.formatter import Form
from headway.trees.drawing import draw
from headway.trees.linear_form import KINDS, mend
from headway.trees.tree import Tree, escape

STYLES: dict[str, Callable[[Tree], str]] = {"brackets": Tree.write, "drawing": lambda tree: f"{draw(tree)}\n"}
LINEAR = "linear"  # what the model writes, as it is


class Trees(Form):
    """Every line is a sentence, its words separated by spaces; every output a tree over exactly these words.

    Args:
        style: a name in `STYLES`, or `LINEAR`.
        tagged: whether words come with their parts of speech, `dog_NN`, which the trees then have.

    Raises:
        UserError: an unknown style.
    """

    def __init__(self, style: str = "brackets", *, tagged: bool = False) -> None:
        if style not in (*STYLES, LINEAR):
            raise UserError("unknown format", where="--format", received=style, allowed=(*STYLES, LINEAR))
        self.style, self.tagged = style, tagged
        self.trees, self.mended, self.counts = 0, 0, Counter[str]()

    def source(self, line: str) -> str:
        return " ".join(self._read(line)[0])

    def output(self, line: str, text: str) -> str:
        if self.style == LINEAR:
            return text
        found = mend(text, *self._read(line))
        self.trees += 1
        self.mended += bool(found.counts)
        self.counts += found.counts
        return STYLES[self.style](found.tree)

    def notes(self) -> list[str]:
        return [mending(self.trees, self.mended, self.counts)] if self.trees else []

    def _read(self, line: str) -> tuple[list[str], list[str] | None]:
        if not self.tagged:
            return line.split(), None
        words, tags = list[str](), list[str]()
        for token in line.split():
            word, _, tag = token.rpartition("_")
            if not word or not tag:
                raise UserError("a word comes with its tag", where="--tagged", received=token, allowed="WORD_TAG")
            words.append(word)
            tags.append(escape(tag))
        return words, tags


def mending(trees: int, mended: int, counts: Counter[str]) -> str:
    """How many trees were mended, and what was amiss."""
    kinds = ", ".join(f"{kind}: {counts[kind]:,}" for kind in KINDS if counts[kind])
    return f"{mended:,} of {trees:,} trees were mended ({mended / trees:.1%})" + (f"; {kinds}" if kinds else "")
