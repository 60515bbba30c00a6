"""Trees in Penn Treebank brackets, over any number of lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
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
    stack = list[_Bracket]()  # of the open ones
    for number, line in enumerate(lines, start=1):
        error = partial(UserError, where=f"{where}:{number}")
        for token in TOKEN.findall(line):
            if token == "(":  # noqa: S105
                if stack:
                    if stack[-1].word is not None:
                        raise error("a bracket holds a word or brackets, not both", received=stack[-1].word)
                    stack[-1].holds_brackets = True
                stack.append(_Bracket(number))
            elif token == ")":  # noqa: S105
                if not stack:
                    raise error("this bracket closes nothing", received=")")
                bracket = stack.pop()
                node: Tree | Leaf | None = None
                if bracket.word is not None:
                    node = Leaf(str(bracket.label), bracket.word)
                elif bracket.children:
                    if bracket.label is None and stack:
                        what = "only the outermost bracket has no label"
                        raise UserError(what, where=f"{where}:{bracket.line}", received="((")
                    node = Tree(bracket.label or "", tuple(bracket.children))
                elif bracket.label is not None:
                    raise error("this bracket holds no word", received=f"({bracket.label})")
                if not stack:
                    yield TreeAtLine(bracket.line, Tree("", (node,)) if isinstance(node, Leaf) else node)
                elif node is not None:
                    stack[-1].children.append(node)
            elif parts := token.split():  # a label or a word, or both with other white space between them
                if not stack:
                    raise error("text outside of brackets", received=token)
                bracket = stack[-1]
                if bracket.holds_brackets or bracket.word is not None:
                    raise error("every word needs a bracket, (TAG word)", received=token)
                if bracket.label is None:
                    bracket.label, *parts = parts
                if parts:
                    bracket.word = unescape("_".join(parts))
    if stack:
        raise UserError("this bracket is never closed", where=f"{where}:{stack[-1].line}")


def parse_tree(text: str, where: str | None = None) -> Tree:
    """The one tree of some text, as it stands there. Raises UserError, at `where`, where it is not one."""
    try:
        trees = [tree for _, tree in parse_penn([text], "") if tree is not None]
    except UserError as error:
        raise UserError(f"this is not one tree: {error.what}", where=where, received=text) from error
    if len(trees) != 1:
        raise UserError("this is not one tree", where=where, received=text)
    return trees[0]
