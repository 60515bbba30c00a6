"""Trees in TIGER-XML (Mengel and Lezius 2000), in which constituents may be discontinuous; secondary edges are ignored.

Trees are made continuous by raising (described by Boyd 2007): from the lowest constituent to the highest, each that has
gaps keeps the part with its head (the child with the edge label HD; without one, the longest part, of equals the first)
and gives its other children to the constituent above, the highest to the root `VROOT`. Words that no constituent holds,
such as punctuation, make no gaps; at the end they go below the lowest constituent that holds the words on both sides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headway.errors import UserError
from headway.formats.penn import TreeAtLine
from headway.formats.xml_files import read_elements
from headway.trees.tree import Leaf, Tree, escape, fill, unescape

NO_LABEL = "--"
HEAD = "HD"
ROOT = "VROOT"
LARGEST = 100_000  # words and constituents of a sentence
MOST_RAISED = 1_000_000  # children given to constituents above, which take as long as they are many


@dataclass
class _Edge:
    child: str
    label: str


@dataclass
class _Sentence:
    """A sentence as it is read: words and constituents by their ids, the edges down from each, what is wrong."""

    line: int
    words: dict[str, Leaf] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    edges: dict[str, list[_Edge]] = field(default_factory=dict)
    error: UserError | None = None


def read_tiger(path: Path) -> Iterator[TreeAtLine | UserError]:
    """The trees of a file, plain or compressed, with the functions of constituents behind their labels: `NP-SB`.

    A sentence whose edges make no tree is an error in its place, with file and line.

    Raises:
        UserError: with file and line: no XML.
    """
    reader = _Reader(path)
    for _ in read_elements(path, reader):
        yield from reader.take()
    if not reader.sentences:
        raise UserError("this is no treebank in TIGER-XML: it has no sentences", where=str(path))


class _Reader:
    """Collects sentences from the elements of the file."""

    def __init__(self, path: Path) -> None:
        self.path, self.sentences = path, 0
        self._line = 0
        self._sentence: _Sentence | None = None
        self._constituent: str | None = None
        self._done: list[TreeAtLine | UserError] = []

    def take(self) -> list[TreeAtLine | UserError]:
        """The sentences that were finished since the last call."""
        done, self._done = self._done, []
        return done

    def start(self, name: str, attributes: dict[str, str], line: int) -> None:
        """An element begins."""
        self._line = line
        if name == "s":
            self._sentence = _Sentence(line)
        elif self._sentence is not None and self._sentence.error is None:
            try:
                self._add(self._sentence, name, attributes)
            except UserError as error:
                self._sentence.error = error

    def _add(self, sentence: _Sentence, name: str, attributes: dict[str, str]) -> None:
        """Add a node or an edge to the sentence."""
        if name == "t":
            word = unescape("_".join(self._get(attributes, "word").split()))
            sentence.words[self._new_id(sentence, attributes)] = Leaf(self._label(attributes, "pos"), word)
        elif name == "nt":
            self._constituent = self._new_id(sentence, attributes)
            sentence.labels[self._constituent] = self._label(attributes, "cat")
            sentence.edges[self._constituent] = []
        elif name == "edge" and self._constituent is not None:
            label = self._label(attributes, "label") if attributes.get("label") else NO_LABEL
            sentence.edges[self._constituent].append(_Edge(self._get(attributes, "idref"), label))

    def end(self, name: str) -> None:
        """An element ends."""
        if name == "nt":
            self._constituent = None
        elif name == "s" and self._sentence is not None:
            self.sentences += 1
            self._done.append(self._sentence.error or self._tree(self._sentence))
            self._sentence = None

    def _tree(self, sentence: _Sentence) -> TreeAtLine | UserError:
        try:
            tree = _Raising(sentence, f"{self.path}:{sentence.line}").tree() if sentence.words else None
        except UserError as error:
            return error
        return TreeAtLine(sentence.line, tree)

    def _get(self, attributes: dict[str, str], name: str) -> str:
        if not attributes.get(name, "").strip():
            raise self._error(f"this element has no {name}", dict(attributes))
        return attributes[name]

    def _label(self, attributes: dict[str, str], name: str) -> str:
        text = self._get(attributes, name)
        if len(text.split()) > 1 or text != text.strip():
            raise self._error(f"there is white space in this {name}", text)
        return escape(text)

    def _new_id(self, sentence: _Sentence, attributes: dict[str, str]) -> str:
        id = self._get(attributes, "id")
        if id in sentence.words or id in sentence.labels:
            raise self._error("two nodes of this sentence have one id", id)
        if len(sentence.words) + len(sentence.labels) == LARGEST:
            raise self._error(f"this sentence has more than {LARGEST:,} words and constituents", None)
        return id

    def _error(self, what: str, received: object) -> UserError:
        return UserError(what, where=f"{self.path}:{self._line}", received=received)


class _Raising:
    """Makes the constituents of a sentence continuous."""

    def __init__(self, sentence: _Sentence, where: str) -> None:
        self.sentence, self.where = sentence, where
        self.children = {parent: list(edges) for parent, edges in sentence.edges.items()}
        self.parent: dict[str, str] = {}
        self._check()
        self.held = [word for word in sentence.words if word in self.parent]

    def tree(self) -> Tree:
        """The continuous tree below `VROOT`."""
        words = self.sentence.words
        if not self.held:
            return Tree(ROOT, tuple(words.values()))
        indices = {word: index for index, word in enumerate(self.held)}
        partners = [indices.get(word) for word in words]
        return fill(self._continuous(), list(words.values()), partners)

    def _continuous(self) -> Tree:
        """The tree over the words that constituents hold."""
        roots = [_Edge(name, NO_LABEL) for name in self.children if name not in self.parent]
        spans = {word: (index, index + 1) for index, word in enumerate(self.held)}
        nodes: dict[str, Tree | Leaf] = dict(self.sentence.words)
        done = 0
        for name in self._lowest_first():
            parts = _parts(self.children[name], spans)
            kept = _with_head(parts, spans)
            raised = [edge for part in parts if part is not kept for edge in part]
            done += len(raised)
            if done > MOST_RAISED:
                raise UserError("this tree has too many crossing edges", where=self.where, received=name)
            if name in self.parent:
                self.children[self.parent[name]] += raised
            else:
                roots += raised
            spans[name] = spans[kept[0].child][0], spans[kept[-1].child][1]
            nodes[name] = Tree(self.sentence.labels[name], _nodes(kept, nodes))
        roots.sort(key=lambda edge: spans[edge.child])
        return Tree(ROOT, _nodes(roots, nodes))

    def _check(self) -> None:
        """Raise UserError unless the edges make trees whose constituents all hold words."""
        for name, edges in self.children.items():
            for edge in edges:
                if edge.child not in self.children and edge.child not in self.sentence.words:
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

    def _lowest_first(self) -> list[str]:
        """The constituents, every one after all that are below it."""
        names, stack = list[str](), [name for name in self.children if name not in self.parent]
        while stack:
            name = stack.pop()
            names.append(name)
            stack.extend(edge.child for edge in self.sentence.edges[name] if edge.child in self.children)
        return names[::-1]


def _parts(edges: Sequence[_Edge], spans: dict[str, tuple[int, int]]) -> list[list[_Edge]]:
    """Children in their order, cut where there is a gap between them."""
    parts: list[list[_Edge]] = []
    for edge in sorted(edges, key=lambda edge: spans[edge.child]):
        if parts and spans[parts[-1][-1].child][1] == spans[edge.child][0]:
            parts[-1].append(edge)
        else:
            parts.append([edge])
    return parts


def _with_head(parts: list[list[_Edge]], spans: dict[str, tuple[int, int]]) -> list[_Edge]:
    headed = [part for part in parts if any(edge.label == HEAD for edge in part)]
    return headed[0] if headed else max(parts, key=lambda part: spans[part[-1].child][1] - spans[part[0].child][0])


def _nodes(edges: Sequence[_Edge], nodes: dict[str, Tree | Leaf]) -> tuple[Tree | Leaf, ...]:
    """The children, constituents with their functions behind their labels."""
    children = list[Tree | Leaf]()
    for edge in edges:
        node = nodes[edge.child]
        if isinstance(node, Tree) and edge.label != NO_LABEL:
            node = Tree(f"{node.label}-{escape(edge.label)}", node.children)
        children.append(node)
    return tuple(children)
