"""`headway data make trees`: a treebank as drawings, brackets, linear forms or sentences."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_args

from headway.errors import UserError, option
from headway.formats.treebanks import read_trees
from headway.trees.linear_form import Leaves, linearise
from headway.trees.tree import Tree
from headway.trees.tree_drawing import draw

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
    """The trees of a treebank, each in a text of a style in `STYLES`; an empty text where a sentence has none.

    Args:
        path: Penn brackets or TIGER-XML.
        style: a name in `STYLES`.
        sample: only so many, drawn at random, always the same ones, in their order.
        leaves: what words become in the linear form, by default their tags.
        functions: keep grammatical functions.

    Raises:
        UserError: an unknown style or kind of leaves; what a style does not write; a file at fault, or without a tree.
    """
    if style not in STYLES:
        raise UserError("unknown format", where=option("format"), received=style, allowed=STYLES)
    if leaves is not None and style != "linear":
        raise UserError("only the linear form leaves words out", where=option("leaves"), received=f"format {style}")
    if leaves is not None and leaves not in get_args(Leaves):
        raise UserError("unknown leaves", where=option("leaves"), received=leaves, allowed=get_args(Leaves))
    if functions and style == "words":
        raise UserError("words have no grammatical functions", where=option("functions"), received=f"format {style}")
    trees: Iterator[Tree | None] = (tree for _, tree in read_trees(path, functions=functions))
    empty = True
    if style == "tagged":
        trees = map(_with_plain_tags, trees)
    for tree in trees if sample is None else _sample(trees, sample):
        empty = False
        if tree is None:
            yield ""
        elif style == "linear":
            yield linearise(tree, "xx" if leaves == "xx" else "tags")
        else:
            yield STYLES[style](tree)
    if empty:
        raise UserError("there are no trees here", where=str(path))


def _with_plain_tags(tree: Tree | None) -> Tree | None:
    """The tree. Raises UserError where a tag cannot be told from its word again."""
    for leaf in () if tree is None else tree.leaves():
        if "_" in leaf.tag:
            what = "a tag with an underscore cannot be told from the word before it"
            raise UserError(
                what, where=option("format"), received=f"{leaf.word}_{leaf.tag}", allowed="brackets, linear"
            )
    return tree


def _sample(trees: Iterator[Tree | None], count: int) -> list[Tree | None]:
    everything = list(trees)
    chosen = sorted(random.Random(1).sample(range(len(everything)), min(count, len(everything))))
    return [everything[index] for index in chosen]
