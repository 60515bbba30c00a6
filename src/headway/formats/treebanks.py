"""Treebanks as pairs of a sentence and the linear form of its tree."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from headway.errors import UserError
from headway.formats.corpus_config import CorpusConfig
from headway.formats.corpus_format import PAIRS, TREES, CorpusFormat, Pair, PairSource
from headway.formats.penn import TreeAtLine, read_penn
from headway.formats.tiger import read_tiger
from headway.formats.xml_files import begins_as_xml
from headway.trees.linear_form import Leaves, linearise
from headway.trees.tree import clean


def read_trees(path: Path, *, functions: bool = False) -> Iterator[TreeAtLine]:
    """The trees of a treebank in Penn brackets or TIGER-XML, plain or compressed, as `clean` leaves them.

    Raises:
        UserError: with file and line, as `read_penn` and `read_tiger`.
    """
    for row in tree_rows(path, functions=functions):
        if isinstance(row, UserError):
            raise row
        yield row


def tree_rows(path: Path, *, functions: bool = False) -> Iterator[TreeAtLine | UserError]:
    """`read_trees`, with the error in the place of a sentence that is no tree: the sentences after it can be read."""
    rows: Iterator[TreeAtLine | UserError] = read_tiger(path) if begins_as_xml(path) else read_penn(path)
    for row in rows:
        if not isinstance(row, UserError) and row.tree is not None:
            row = row._replace(tree=clean(row.tree, functions=functions))
        yield row


class TreePairs(PairSource):
    """A treebank; metrics compare the trees themselves. A sentence without a tree is a pair of empty texts."""

    def __init__(self, path: Path, leaves: Leaves, functions: bool) -> None:
        super().__init__(str(path), (path,), (leaves, str(functions)))
        self.leaves, self.functions = leaves, functions

    def rows(self) -> Iterator[Pair | UserError]:
        for row in tree_rows(self.files[0], functions=self.functions):
            if isinstance(row, UserError):
                yield row
                continue
            line, tree = row
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
