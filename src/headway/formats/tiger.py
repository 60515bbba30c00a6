"""Trees in TIGER-XML (Mengel and Lezius 2000), in which constituents may be discontinuous; secondary edges are ignored.

Trees are made continuous by raising (described by Boyd 2007). From the lowest constituent to the highest, a constituent
with gaps keeps the part with its head (the child with the edge label HD; without one, the longest part, or the first of
equally long parts). Its other children are attached to the constituent above, those of the highest to the root `VROOT`.
Words outside of all constituents, such as punctuation, cause no gaps. At the end they are attached to the lowest
constituent that contains the words on both sides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from headway.core.errors import UserError
from headway.formats.penn import TreeAtLine
from headway.formats.xml_files import Tag, read_tags
from headway.trees.tree import Leaf, Tree, escape, fill, unescape

NO_LABEL = "--"
HEAD = "HD"
ROOT = "VROOT"
LARGEST = 100_000  # the maximum number of words and constituents of a sentence
MOST_RAISED = 1_000_000  # children attached to constituents above; the time is proportional to this number


class _Edge(NamedTuple):
    child: str
    label: str


def read_tiger(path: Path) -> Iterator[TreeAtLine | UserError]:
    """Read the trees of a file, plain or compressed. Functions are appended to the labels of constituents: `NP-SB`.

    For a sentence whose edges form no tree, the error, with file and line, is yielded instead.

    Raises:
        UserError: with file and line: the file is no XML.
    """
    tags, sentences = read_tags(path), 0
    for tag in tags:
        if tag.name == "s" and tag.attributes is not None:
            sentences += 1
            row: TreeAtLine | UserError
            try:
                row = TreeAtLine(tag.line, _Sentence(takewhile(lambda inner: inner.name != "s", tags)).tree())
            except ValueError as error:
                row = UserError(f"this sentence is no tree: {error}", where=f"{path}:{tag.line}")
            yield row
    if not sentences:
        raise UserError("this is no treebank in TIGER-XML: it has no sentences", where=str(path))


class _Sentence:
    """The words and constituents of a sentence by id, and the edges to children. Raises ValueError if it is no tree."""

    def __init__(self, tags: Iterable[Tag]) -> None:
        self.words = dict[str, Leaf]()
        self.labels = dict[str, str]()
        self.children = dict[str, list[_Edge]]()
        self.parent = dict[str, str]()
        constituent: str | None = None
        for name, attributes, *_ in tags:
            if attributes is None:
                constituent = None if name == "nt" else constituent
                continue
            id = attributes.get("id", "")
            if name in ("t", "nt") and (id in self.words or id in self.labels):
                raise ValueError(f"two nodes have the id {id!r}")
            if name == "t":
                self.words[id] = Leaf(escape(_text(attributes, "pos")), unescape(_text(attributes, "word")))
            elif name == "nt":
                constituent = id
                self.labels[id] = escape(_text(attributes, "cat"))
                self.children[id] = []
            elif name == "edge" and constituent is not None:
                label = _text(attributes, "label") if attributes.get("label") else NO_LABEL
                self.children[constituent].append(_Edge(attributes.get("idref", ""), label))
            if len(self.words) + len(self.labels) > LARGEST:
                raise ValueError(f"it has more than {LARGEST:,} words and constituents")
        for name, edges in self.children.items():
            for edge in edges:
                if edge.child in self.parent or (edge.child not in self.children and edge.child not in self.words):
                    raise ValueError(f"an edge leads to {edge.child!r}, which is no node or is below another one")
                self.parent[edge.child] = name
        below_a_root = set(self._lowest_first())
        if lost := [name for name, edges in self.children.items() if not edges or name not in below_a_root]:
            raise ValueError(f"the constituent {lost[0]!r} holds nothing or is below itself")

    def _lowest_first(self) -> list[str]:
        """The constituents, each after all constituents below it."""
        names, stack = list[str](), [name for name in self.children if name not in self.parent]
        while stack:
            name = stack.pop()
            names.append(name)
            stack.extend(edge.child for edge in self.children[name] if edge.child in self.children)
        return names[::-1]

    def tree(self) -> Tree | None:
        """The continuous tree below `VROOT`, or None without words. This moves children of constituents."""
        held = {word: index for index, word in enumerate(word for word in self.words if word in self.parent)}
        words = tuple(self.words.values())
        if not held:
            return Tree(ROOT, words) if words else None
        roots = [_Edge(name, NO_LABEL) for name in self.children if name not in self.parent]
        spans = {word: (index, index + 1) for word, index in held.items()}
        nodes: dict[str, Tree | Leaf] = dict(self.words)
        done = 0
        for name in self._lowest_first():
            parts = _parts(self.children[name], spans)
            headed = (part for part in parts if any(edge.label == HEAD for edge in part))
            kept = next(headed, None) or max(parts, key=lambda part: spans[part[-1].child][1] - spans[part[0].child][0])
            raised = [edge for part in parts if part is not kept for edge in part]
            done += len(raised)
            if done > MOST_RAISED:
                raise ValueError(f"too many edges cross, below {name!r}")
            above = self.children[self.parent[name]] if name in self.parent else roots
            above += raised
            spans[name] = spans[kept[0].child][0], spans[kept[-1].child][1]
            nodes[name] = Tree(self.labels[name], _nodes(kept, nodes))
        roots.sort(key=lambda edge: spans[edge.child])
        return fill(Tree(ROOT, _nodes(roots, nodes)), words, [held.get(word) for word in self.words])


def _text(attributes: dict[str, str], name: str) -> str:
    """An attribute with white space replaced by `_`. Raises ValueError if it is blank."""
    text = "_".join(attributes.get(name, "").split())
    if not text:
        raise ValueError(f"an element has no {name}: {attributes}")
    return text


def _parts(edges: Sequence[_Edge], spans: dict[str, tuple[int, int]]) -> list[list[_Edge]]:
    """Sort children by position, and split them at gaps."""
    parts: list[list[_Edge]] = []
    for edge in sorted(edges, key=lambda edge: spans[edge.child]):
        if parts and spans[parts[-1][-1].child][1] == spans[edge.child][0]:
            parts[-1].append(edge)
        else:
            parts.append([edge])
    return parts


def _nodes(edges: Sequence[_Edge], nodes: dict[str, Tree | Leaf]) -> tuple[Tree | Leaf, ...]:
    """The nodes of the edges, with the functions of constituents appended to their labels."""
    children = list[Tree | Leaf]()
    for edge in edges:
        node = nodes[edge.child]
        if isinstance(node, Tree) and edge.label != NO_LABEL:
            node = Tree(f"{node.label}-{escape(edge.label)}", node.children)
        children.append(node)
    return tuple(children)
