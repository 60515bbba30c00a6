"""Constituency trees and operations on them. Nothing is recursive, since a model may produce very deep trees."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

TOP = "TOP"  # the label of a root that is not a constituent of the grammar
UNKNOWN_TAG = "XX"  # the tag of a word whose part of speech is not known (Vinyals et al. 2015)
TRACE = "-NONE-"  # the tag of traces, which have no word in the sentence

# Brackets in words and labels, as the Penn Treebank writes them.
ESCAPES = {"(": "-LRB-", ")": "-RRB-"}


def escape(text: str) -> str:
    """Replace round brackets by their names."""
    for bracket, name in ESCAPES.items():
        text = text.replace(bracket, name)
    return text


def unescape(text: str) -> str:
    """Replace the names of round brackets by the brackets."""
    for bracket, name in ESCAPES.items():
        text = text.replace(name, bracket)
    return text


@dataclass(frozen=True)
class Leaf:
    """A word with its part of speech. Neither contains white space, and the tag contains no brackets."""

    tag: str
    word: str


@dataclass(frozen=True)
class Tree:
    """A constituent. Its label contains neither white space nor brackets, and it dominates at least one word."""

    label: str
    children: tuple[Tree | Leaf, ...]

    def events(self) -> Iterator[Event]:
        """Traverse the tree from left to right: the opening and closing of constituents, and the words between them."""
        stack: list[tuple[bool, Tree | Leaf]] = [(False, self)]
        while stack:
            closing, node = stack.pop()
            if isinstance(node, Leaf):
                yield Event("leaf", node.tag, node)
            elif closing:
                yield Event("close", node.label)
            else:
                yield Event("open", node.label)
                stack.append((True, node))
                stack.extend((False, child) for child in reversed(node.children))

    def leaves(self) -> list[Leaf]:
        return [event.leaf for event in self.events() if event.leaf is not None]

    def words(self) -> list[str]:
        return [leaf.word for leaf in self.leaves()]

    def constituents(self) -> list[Constituent]:
        """All constituents in pre-order, with the words [start, end) that they cover."""
        constituents: list[Constituent] = []
        open_ones: list[int] = []
        words = 0
        for event in self.events():
            if event.kind == "open":
                open_ones.append(len(constituents))
                constituents.append(Constituent(event.label, words, words))
            elif event.kind == "close":
                index = open_ones.pop()
                constituents[index] = constituents[index]._replace(end=words)
            else:
                words += 1
        return constituents

    def write(self) -> str:
        """The tree in Penn Treebank brackets, on one line."""
        parts = []
        for event in self.events():
            if event.leaf is not None:
                parts.append(f" ({event.label} {escape(event.leaf.word)})")
            else:
                parts.append(")" if event.kind == "close" else f" ({event.label}")
        return "".join(parts).lstrip()


class Event(NamedTuple):
    """A step of a tree traversal. `label` is the label of a constituent, or the tag of a leaf."""

    kind: Literal["open", "close", "leaf"]
    label: str
    leaf: Leaf | None = None


class Constituent(NamedTuple):
    """A label over the words [start, end)."""

    label: str
    start: int
    end: int


class Builder:
    """Builds trees from events. A constituent without words is dropped and counted in `empty`."""

    def __init__(self) -> None:
        self.labels: list[str] = []  # of the open constituents, outermost first
        self.empty = 0
        self._children: list[list[Tree | Leaf]] = [[]]

    def open(self, label: str) -> None:
        self.labels.append(label)
        self._children.append([])

    def leaf(self, leaf: Leaf) -> None:
        self._children[-1].append(leaf)

    def close(self) -> None:
        """Close the innermost open constituent."""
        children = self._children.pop()
        label = self.labels.pop()
        if children:
            self._children[-1].append(Tree(label, tuple(children)))
        else:
            self.empty += 1

    def finish(self) -> list[Tree | Leaf]:
        """The top-level nodes, once all constituents are closed."""
        assert not self.labels
        return self._children[0]


def change(tree: Tree, keep: Callable[[Leaf], bool], label: Callable[[str], str]) -> Tree | None:
    """A copy of the tree with `label` applied to labels, and only the leaves to `keep`; None if no leaf is left."""
    builder = Builder()
    for event in tree.events():
        if event.leaf is not None:
            if keep(event.leaf):
                builder.leaf(event.leaf)
        elif event.kind == "open":
            builder.open(label(event.label))
        else:
            builder.close()
    whole = builder.finish()
    if not whole:
        return None
    assert isinstance(whole[0], Tree)
    return whole[0]


def without_functions(label: str) -> str:
    """A label without functions and indices: NP for NP-SBJ-1 and NP=2. `-LRB-` and similar tags are unchanged."""
    return label if label[:1] in "-=" else re.split("[-=]", label)[0]


ROOTS = {"", TOP, "ROOT", "S1", "VROOT"}


def clean(tree: Tree, *, functions: bool = False) -> Tree | None:
    """Normalise a treebank's tree for training and scoring parsers; None if no word is left.

    Traces are removed, and grammatical functions unless `functions` is set. A root bracket without a label, or with a
    label that only marks the root, is removed if it has a single constituent, and labelled `TOP` otherwise.
    """
    kept = change(tree, lambda leaf: leaf.tag != TRACE, (lambda label: label) if functions else without_functions)
    if kept is None:
        return None
    while kept.label in ROOTS and len(kept.children) == 1 and isinstance(kept.children[0], Tree):
        kept = kept.children[0]
    return Tree(TOP, kept.children) if kept.label in ROOTS else kept


def flat(words: Sequence[Leaf]) -> Tree:
    """The tree of a sentence without constituents below the root. There must be at least one word."""
    assert words
    return Tree(TOP, tuple(words))


def fill(shape: Tree, words: Sequence[Leaf], partners: Sequence[int | None]) -> Tree:
    """A tree over `words` with the constituents of another tree.

    Args:
        shape: the tree with the constituents.
        words: the new leaves.
        partners: for each word, the index of its leaf in `shape`, in ascending order. Leaves without a word are
            dropped. A word without a leaf (None) is attached to the lowest constituent that contains the leaves on both
            sides of it, or to the root at the beginning and end.
    """
    builder, position, leaf = Builder(), 0, 0  # the next word, and the number of processed leaves of the shape
    word_of = {partner: word for word, partner in enumerate(partners) if partner is not None}

    def add_missing() -> None:
        nonlocal position
        while position < len(words) and partners[position] is None:
            builder.leaf(words[position])
            position += 1

    for event in shape.events():
        if event.kind == "close":
            if len(builder.labels) == 1:
                add_missing()  # words after the last leaf
            builder.close()
            continue
        if leaf:
            add_missing()  # words between two leaves, once constituents of the left leaf alone are closed
        if event.kind == "open":
            builder.open(event.label)
            if len(builder.labels) == 1:
                add_missing()  # words before the first leaf
            continue
        if leaf in word_of:
            builder.leaf(words[position])
            position += 1
        leaf += 1
    (whole,) = builder.finish()
    assert isinstance(whole, Tree)
    assert position == len(words)
    return whole


# The lines before a node, by whether another child precedes and follows it.
BRANCHES = {(False, False): "── ", (False, True): "┬─ ", (True, True): "├─ ", (True, False): "└─ "}


def draw(tree: Tree) -> str:
    """Draw the tree, with a row for each word and the words right of their tags.

    NP ─┬─ DT the
        └─ NN dog
    """
    rows: list[str] = []
    stack: list[tuple[str, str, Tree | Leaf]] = [("", "", tree)]  # the prefixes of the first and of the other rows
    while stack:
        first, others, node = stack.pop()
        if isinstance(node, Leaf):
            rows.append(f"{first}{node.tag} {node.word}")
            continue
        indent = " " * (len(node.label) + 1)
        last = len(node.children) - 1
        for index in reversed(range(last + 1)):
            branch = BRANCHES[index > 0, index < last]
            before = f"{first}{node.label} ─" if index == 0 else f"{others}{indent} "
            below = f"{others}{indent} " + ("│  " if index < last else "   ")
            stack.append((before + branch, below, node.children[index]))
    return "\n".join(rows)
