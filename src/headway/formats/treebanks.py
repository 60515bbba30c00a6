"""Treebanks as pairs of a sentence and the linear form of its tree."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from headway.formats.corpus_config import CorpusConfig
from headway.formats.corpus_format import PAIRS, TREES, CorpusFormat, Pair, PairSource
from headway.formats.lines import read_lines
from headway.formats.penn import TreeAtLine, read_penn
from headway.formats.tiger import read_tiger
from headway.trees.linear_form import Leaves, linearise
from headway.trees.tree import clean


def read_trees(path: Path, *, functions: bool = False) -> Iterator[TreeAtLine]:
    """The trees of a treebank in Penn brackets or TIGER-XML, plain or compressed, as `clean` leaves them.

    Raises:
        UserError: with file and line, as `read_penn` and `read_tiger`.
    """
    first = next((line for line in read_lines(path) if line.strip()), "")
    read = read_tiger if first.lstrip().startswith("<") else read_penn
    for line, tree in read(path):
        yield TreeAtLine(line, tree and clean(tree, functions=functions))


class TreePairs(PairSource):
    """A treebank; metrics compare the trees themselves. A sentence without a tree is a pair of empty texts."""

    def __init__(self, path: Path, leaves: Leaves, functions: bool) -> None:
        super().__init__(str(path), (path,), (leaves, str(functions)))
        self.leaves, self.functions = leaves, functions

    def __iter__(self) -> Iterator[Pair]:
        for line, tree in read_trees(self.files[0], functions=self.functions):
            if tree is None:
                yield Pair(line, "", "")
            else:
                yield Pair(line, " ".join(tree.words()), linearise(tree, self.leaves), (tree.write(),))


class Treebank(CorpusFormat):
    """A treebank in Penn brackets or TIGER-XML: pairs of a sentence and the linear form of its tree."""

    class Config(CorpusConfig):
        """The file; `leaves` of the linear form are the words' `tags` or `xx`; `functions` keeps grammatical ones."""

        path: Path
        leaves: Leaves = "tags"
        functions: bool = False

    config: Config
    products = (PAIRS, TREES)

    def pairs(self) -> PairSource:
        return TreePairs(self.config.path, self.config.leaves, self.config.functions)
