"""Trees in the brackets of the Penn Treebank, over any number of lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from headway.core.errors import UserError
from headway.formats.lines import read_lines
from headway.trees.tree import Leaf, Tree, unescape

TOKEN = re.compile(r"[()]|[^\s()]+", re.ASCII)  # other white space, such as a no-break space, may be part of a word
ALLOWED = "(TAG word), or (LABEL ...) around such brackets"


class TreeAtLine(NamedTuple):
    """A tree and the number of its first line. The tree is None for a sentence without one, such as `(())`."""

    line: int
    tree: Tree | None


@dataclass
class _Bracket:
    """An open bracket: its line, its label and word so far, and the nodes of the brackets within it."""

    line: int
    texts: list[str] = field(default_factory=list)
    children: list[Tree | Leaf | None] = field(default_factory=list)


def read_penn(path: Path) -> Iterator[TreeAtLine]:
    """Read the trees of a file, plain or compressed. Raises UserError with file and line for anything but trees."""
    return parse_penn(read_lines(path), str(path))


def parse_penn(lines: Iterable[str], where: str) -> Iterator[TreeAtLine]:
    """Parse the trees in `lines`; errors call the lines `where`."""
    stack = list[_Bracket]()  # the open brackets
    for number, line in enumerate(lines, start=1):
        for token in TOKEN.findall(line):
            if token == "(":  # noqa: S105
                stack.append(_Bracket(number))
                continue
            if not (parts := token.split()):
                continue
            if not stack or (token != ")" and (stack[-1].children or len(stack[-1].texts) > 1)):  # noqa: S105
                raise UserError(
                    "this stands outside of its bracket", where=f"{where}:{number}", received=token, allowed=ALLOWED
                )
            texts, children = stack[-1].texts, stack[-1].children
            if token != ")":  # noqa: S105  (a label, a word, or both separated by other white space)
                texts += [] if texts else [parts.pop(0)]
                texts += ["_".join(parts)] if parts else []
                continue
            bracket = stack.pop()
            nodes = tuple(child for child in children if child is not None)
            node: Tree | Leaf | None = None
            if len(texts) == 2 and not children:
                node = Leaf(texts[0], unescape(texts[1]))
            elif nodes and (len(texts) == 1 or not (texts or stack)):
                node = Tree("".join(texts), nodes)
            elif texts or nodes:
                raise UserError("this bracket is no part of a tree", where=f"{where}:{bracket.line}", allowed=ALLOWED)
            if stack:
                stack[-1].children.append(node)
            else:
                yield TreeAtLine(bracket.line, Tree("", (node,)) if isinstance(node, Leaf) else node)
    if stack:
        raise UserError("this bracket is never closed", where=f"{where}:{stack[-1].line}")


def parse_tree(text: str, where: str | None = None) -> Tree:
    """Parse a text with exactly one tree. Raises UserError, at `where`, for any other text."""
    why = ""
    try:
        trees = [tree for _, tree in parse_penn([text], "") if tree is not None]
    except UserError as error:
        trees, why = [], f": {error.what}"
    if len(trees) != 1:
        raise UserError(f"this is not one tree{why}", where=where, received=text)
    return trees[0]
