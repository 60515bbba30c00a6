"""Trees in TIGER-XML (Mengel and Lezius 2000), in which constituents may be discontinuous; secondary edges are ignored.

Trees are made continuous by raising (described by Boyd 2007): from the lowest constituent to the highest, each that has
gaps keeps the part with its head (the child with the edge label HD; without one, the longest part, of equals the first)
and gives its other children to the constituent above, the highest to the root `VROOT`. Words that no constituent holds,
such as punctuation, make no gaps; at the end they go below the lowest constituent that holds the words on both sides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from headway.errors import UserError
from headway.formats.penn import TreeAtLine
from headway.formats.xml_files import Tag, read_tags
from headway.trees.tree import Leaf, Tree, escape, fill, unescape

NO_LABEL = "--"
HEAD = "HD"
ROOT = "VROOT"
LARGEST = 100_000  # words and constituents of a sentence
MOST_RAISED = 1_000_000  # children given to constituents above, which take as long as they are many


class _Edge(NamedTuple):
    child: str
    label: str


def read_tiger(path: Path) -> Iterator[TreeAtLine | UserError]:
    """The trees of a file, plain or compressed, with the functions of constituents behind their labels: `NP-SB`.

    A sentence whose edges make no tree is an error in its place, with file and line.

    Raises:
        UserError: with file and line: no XML.
    """
    sentences, begun = 0, None
    within = list[Tag]()
    for tag in read_tags(path):
        if tag.name != "s":
            within += [tag] if begun else []
        elif tag.attributes is not None:
            begun = tag.line
            within = []
        elif begun is not None:
            sentences += 1
            row: TreeAtLine | UserError
            try:
                row = TreeAtLine(begun, _Sentence(path, begun, within).tree())
            except UserError as error:
                row = error
            yield row
            begun = None
    if not sentences:
        raise UserError("this is no treebank in TIGER-XML: it has no sentences", where=str(path))


class _Sentence:
    """Words and constituents of a sentence by their ids, and the edges down from each. Raises UserError: no tree."""

    def __init__(self, path: Path, line: int, tags: Iterable[Tag]) -> None:
        self.where = f"{path}:{line}"
        self.words = dict[str, Leaf]()
        self.labels = dict[str, str]()
        self.children = dict[str, list[_Edge]]()
        self.parent = dict[str, str]()
        constituent: str | None = None
        for name, attributes, at in tags:
            where = f"{path}:{at}"
            if attributes is None:
                constituent = None if name == "nt" else constituent
            elif name == "t":
                word = unescape("_".join(_attribute(attributes, "word", where).split()))
                self.words[self._new_id(attributes, where)] = Leaf(_label(attributes, "pos", where), word)
            elif name == "nt":
                constituent = self._new_id(attributes, where)
                self.labels[constituent] = _label(attributes, "cat", where)
                self.children[constituent] = []
            elif name == "edge" and constituent is not None:
                label = _label(attributes, "label", where) if attributes.get("label") else NO_LABEL
                self.children[constituent].append(_Edge(_attribute(attributes, "idref", where), label))
        for name, edges in self.children.items():
            for edge in edges:
                if edge.child not in self.children and edge.child not in self.words:
                    raise UserError("this edge goes nowhere", where=self.where, received=edge.child)
                if edge.child in self.parent:
                    raise UserError("two edges lead to this node", where=self.where, received=edge.child)
                self.parent[edge.child] = name
            if not edges:
                raise UserError("this constituent holds nothing", where=self.where, received=name)
        below_a_root = set(self._lowest_first())
        for name in self.children:
            if name not in below_a_root:
                raise UserError("this constituent is below itself", where=self.where, received=name)

    def _new_id(self, attributes: dict[str, str], where: str) -> str:
        id = _attribute(attributes, "id", where)
        if id in self.words or id in self.labels:
            raise UserError("two nodes of this sentence have one id", where=where, received=id)
        if len(self.words) + len(self.labels) == LARGEST:
            raise UserError(f"this sentence has more than {LARGEST:,} words and constituents", where=where)
        return id

    def _lowest_first(self) -> list[str]:
        """The constituents, every one after all that are below it."""
        names, stack = list[str](), [name for name in self.children if name not in self.parent]
        while stack:
            name = stack.pop()
            names.append(name)
            stack.extend(edge.child for edge in self.children[name] if edge.child in self.children)
        return names[::-1]

    def tree(self) -> Tree | None:
        """The continuous tree below `VROOT`; None without words. The children of constituents are moved for it."""
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
                raise UserError("this tree has too many crossing edges", where=self.where, received=name)
            above = self.children[self.parent[name]] if name in self.parent else roots
            above += raised
            spans[name] = spans[kept[0].child][0], spans[kept[-1].child][1]
            nodes[name] = Tree(self.labels[name], _nodes(kept, nodes))
        roots.sort(key=lambda edge: spans[edge.child])
        return fill(Tree(ROOT, _nodes(roots, nodes)), words, [held.get(word) for word in self.words])


def _attribute(attributes: dict[str, str], name: str, where: str) -> str:
    if not attributes.get(name, "").strip():
        raise UserError(f"this element has no {name}", where=where, received=attributes)
    return attributes[name]


def _label(attributes: dict[str, str], name: str, where: str) -> str:
    text = _attribute(attributes, name, where)
    if len(text.split()) > 1 or text != text.strip():
        raise UserError(f"there is white space in this {name}", where=where, received=text)
    return escape(text)


def _parts(edges: Sequence[_Edge], spans: dict[str, tuple[int, int]]) -> list[list[_Edge]]:
    """Children in their order, cut where there is a gap between them."""
    parts: list[list[_Edge]] = []
    for edge in sorted(edges, key=lambda edge: spans[edge.child]):
        if parts and spans[parts[-1][-1].child][1] == spans[edge.child][0]:
            parts[-1].append(edge)
        else:
            parts.append([edge])
    return parts


def _nodes(edges: Sequence[_Edge], nodes: dict[str, Tree | Leaf]) -> tuple[Tree | Leaf, ...]:
    """The children, constituents with their functions behind their labels."""
    children = list[Tree | Leaf]()
    for edge in edges:
        node = nodes[edge.child]
        if isinstance(node, Tree) and edge.label != NO_LABEL:
            node = Tree(f"{node.label}-{escape(edge.label)}", node.children)
        children.append(node)
    return tuple(children)
