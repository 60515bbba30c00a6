"""Treebanks: as pairs of a sentence and the linear form of its tree, and as text for display."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import get_args

from headway.core.errors import UserError, option
from headway.formats.corpus_config import CorpusConfig
from headway.formats.corpus_format import PAIRS, TREES, CorpusFormat, Pair, PairSource
from headway.formats.penn import TreeAtLine, read_penn
from headway.formats.tiger import read_tiger
from headway.formats.xml_files import begins_as_xml
from headway.trees.linear_form import Leaves, linearise
from headway.trees.tree import Tree, clean, draw


def read_trees(path: Path, *, functions: bool = False) -> Iterator[TreeAtLine]:
    """Read the trees of a treebank in Penn brackets or TIGER-XML, plain or compressed, simplified by `clean`.

    Raises:
        UserError: with file and line, as `read_penn` and `read_tiger`.
    """
    for row in tree_rows(path, functions=functions):
        if isinstance(row, UserError):
            raise row
        yield row


def tree_rows(path: Path, *, functions: bool = False) -> Iterator[TreeAtLine | UserError]:
    """`read_trees`, but yielding the error for a sentence that is no tree, so that reading can continue."""
    rows: Iterator[TreeAtLine | UserError] = read_tiger(path) if begins_as_xml(path) else read_penn(path)
    for row in rows:
        if not isinstance(row, UserError) and row.tree is not None:
            row = row._replace(tree=clean(row.tree, functions=functions))
        yield row


class TreePairs(PairSource):
    """The pairs of a treebank. Metrics compare the trees. A sentence without a tree is a pair of empty texts."""

    def __init__(self, path: Path, leaves: Leaves, functions: bool) -> None:
        super().__init__(str(path), (path,), (leaves, str(functions)))
        self.leaves, self.functions = leaves, functions

    def rows(self) -> Iterator[Pair | UserError]:
        for row in tree_rows(self.files[0], functions=self.functions):
            if isinstance(row, UserError):
                yield row
            elif row.tree is None:
                yield Pair(row.line, "", "")
            else:
                target, tree = linearise(row.tree, self.leaves), row.tree.write()
                yield Pair(row.line, " ".join(row.tree.words()), target, (tree,))


class Treebank(CorpusFormat):
    """A treebank in Penn brackets or TIGER-XML: pairs of a sentence and the linear form of its tree."""

    class Config(CorpusConfig):
        """`path`: the file. `leaves`: the leaves of linear forms, tags or XX. `functions`: whether to keep grammatical
        functions.
        """

        path: Path
        leaves: Leaves = "tags"
        functions: bool = False

    config: Config
    products = (PAIRS, TREES)

    def pairs(self) -> PairSource:
        return TreePairs(self.config.path, self.config.leaves, self.config.functions)


STYLES: dict[str, Callable[[Tree], str]] = {
    "drawing": lambda tree: f"{' '.join(tree.words())}\n{draw(tree)}\n",
    "brackets": Tree.write,
    "linear": linearise,
    "words": lambda tree: " ".join(tree.words()),
    "tagged": lambda tree: " ".join(f"{leaf.word}_{leaf.tag}" for leaf in tree.leaves()),
}


def write_trees(
    path: Path, style: str, *, sample: int | None = None, leaves: str | None = None, functions: bool = False
) -> Iterator[str]:
    """Format the trees of a treebank in one of the `STYLES`, with an empty text for a sentence without a tree.

    Args:
        path: Penn brackets or TIGER-XML.
        style: a name in `STYLES`.
        sample: the size of a random sample, always the same one, in the order of the file.
        leaves: the leaves of the linear form, by default the tags.
        functions: whether to keep grammatical functions.

    Raises:
        UserError: the style or kind of leaves is unknown, or the file is damaged.
    """
    for name, value, allowed in (("format", style, STYLES), ("leaves", leaves or "tags", get_args(Leaves))):
        if value not in allowed:
            raise UserError(f"unknown {name}", where=option(name), received=value, allowed=allowed)
    write = partial(linearise, leaves="xx") if style == "linear" and leaves == "xx" else STYLES[style]
    trees: Iterable[Tree | None] = (tree for _, tree in read_trees(path, functions=functions))
    if sample is not None:
        everything = list(trees)
        chosen = sorted(random.Random(1).sample(range(len(everything)), min(sample, len(everything))))
        trees = [everything[index] for index in chosen]
    for tree in trees:
        yield "" if tree is None else write(tree)
