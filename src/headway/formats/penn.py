"""Trees in Penn Treebank brackets, over any number of lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from headway.errors import UserError
from headway.formats.lines import read_lines
from headway.trees.tree import Leaf, Tree, unescape

TOKEN = re.compile(r"[()]|[^\s()]+", re.ASCII)  # other white space, such as a no-break space, may be part of a word


class TreeAtLine(NamedTuple):
    """A tree and the line that it begins at; None for a sentence without one, such as `(())`."""

    line: int
    tree: Tree | None


@dataclass
class _Bracket:
    """An open bracket: its label once that is read, then either a word or further brackets."""

    line: int
    label: str | None = None
    word: str | None = None
    children: list[Tree | Leaf] = field(default_factory=list)
    holds_brackets: bool = False


def read_penn(path: Path) -> Iterator[TreeAtLine]:
    """The trees of a file, plain or compressed, as they stand there.

    Raises:
        UserError: with file and line: brackets that do not match or hold no tree, text outside of them.
    """
    return parse_penn(read_lines(path), str(path))


def parse_penn(lines: Iterable[str], where: str) -> Iterator[TreeAtLine]:
    """The trees of some lines, which errors call `where`."""
    reader = _Reader(where)
    for number, line in enumerate(lines, start=1):
        for token in TOKEN.findall(line):
            if (tree := reader.take(token, number)) is not None:
                yield tree
    if reader.open:
        raise UserError("this bracket is never closed", where=f"{where}:{reader.open[-1].line}")


def parse_tree(text: str, where: str | None = None) -> Tree:
    """The one tree of some text, as it stands there. Raises UserError, at `where`, where it is not one."""
    try:
        trees = [tree for _, tree in parse_penn([text], "") if tree is not None]
    except UserError as error:
        raise UserError(f"this is not one tree: {error.what}", where=where, received=text) from error
    if len(trees) != 1:
        raise UserError("this is not one tree", where=where, received=text)
    return trees[0]


class _Reader:
    """Puts trees together from brackets and the text between them."""

    def __init__(self, where: str) -> None:
        self.where, self.open = where, list[_Bracket]()

    def take(self, token: str, line: int) -> TreeAtLine | None:
        """Read one bracket or text; gives a tree that it completes."""
        if token == "(":  # noqa: S105
            self._begin(line)
        elif token == ")":  # noqa: S105
            return self._end(line)
        else:
            self._text(token, line)
        return None

    def _begin(self, line: int) -> None:
        if self.open:
            above = self.open[-1]
            if above.word is not None:
                raise self._error("a bracket holds a word or brackets, not both", line, above.word)
            above.holds_brackets = True
        self.open.append(_Bracket(line))

    def _text(self, text: str, line: int) -> None:
        """Read a label or a word, or both with other white space between them; within a word that becomes _."""
        parts = text.split()
        if not parts:
            return
        if not self.open:
            raise self._error("text outside of brackets", line, text)
        bracket = self.open[-1]
        if bracket.holds_brackets or bracket.word is not None:
            raise self._error("every word needs a bracket, (TAG word)", line, text)
        if bracket.label is None:
            bracket.label, *parts = parts
        if parts:
            bracket.word = unescape("_".join(parts))

    def _end(self, line: int) -> TreeAtLine | None:
        if not self.open:
            raise self._error("this bracket closes nothing", line, ")")
        bracket = self.open.pop()
        node: Tree | Leaf | None = None
        if bracket.word is not None:
            assert bracket.label is not None
            node = Leaf(bracket.label, bracket.word)
        elif bracket.children:
            if bracket.label is None and self.open:
                raise self._error("only the outermost bracket has no label", bracket.line, "((")
            node = Tree(bracket.label or "", tuple(bracket.children))
        elif bracket.label is not None:
            raise self._error("this bracket holds no word", line, f"({bracket.label})")
        if self.open:
            if node is not None:
                self.open[-1].children.append(node)
            return None
        return TreeAtLine(bracket.line, Tree("", (node,)) if isinstance(node, Leaf) else node)

    def _error(self, what: str, line: int, received: str) -> UserError:
        return UserError(what, where=f"{self.where}:{line}", received=received)
