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
from xml.parsers import expat

from headway.errors import UserError
from headway.formats.lines import open_bytes
from headway.formats.penn import TreeAtLine
from headway.trees.tree import Leaf, Tree, escape, fill

CHUNK = 1 << 16
NO_LABEL = "--"
HEAD = "HD"
ROOT = "VROOT"


@dataclass
class _Edge:
    child: str
    label: str


@dataclass
class _Sentence:
    """A sentence as it is read: words and constituents by their ids, and the edges down from each constituent."""

    line: int
    words: dict[str, Leaf] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    edges: dict[str, list[_Edge]] = field(default_factory=dict)


def read_tiger(path: Path) -> Iterator[TreeAtLine]:
    """The trees of a file, plain or compressed, with the functions of constituents behind their labels: `NP-SB`.

    Raises:
        UserError: with file and line: no XML, a sentence whose edges make no tree.
    """
    reader = _Reader(path)
    try:
        with open_bytes(path) as file:
            while chunk := file.read(CHUNK):
                reader.parser.Parse(chunk, False)
                yield from reader.take()
            reader.parser.Parse(b"", True)
    except expat.ExpatError as error:
        what = expat.errors.messages[error.code]
        raise UserError(f"this is not XML ({what})", where=f"{path}:{error.lineno}") from error
    except (OSError, EOFError) as error:
        raise UserError(f"cannot read this file ({error})", where=str(path)) from error
    if not reader.sentences:
        raise UserError("this is no treebank in TIGER-XML: it has no sentences", where=str(path))


class _Reader:
    """Collects sentences from the elements of the file."""

    def __init__(self, path: Path) -> None:
        self.path, self.sentences = path, 0
        self.parser = expat.ParserCreate()
        self.parser.StartElementHandler, self.parser.EndElementHandler = self._start, self._end
        self._sentence: _Sentence | None = None
        self._constituent: str | None = None
        self._done: list[TreeAtLine] = []

    def take(self) -> list[TreeAtLine]:
        """The sentences that were finished since the last call."""
        done, self._done = self._done, []
        return done

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "s":
            self._sentence = _Sentence(self.parser.CurrentLineNumber)
        elif self._sentence is None:
            return
        elif name == "t":
            word = "_".join(self._get(attributes, "word").split())
            self._sentence.words[self._get(attributes, "id")] = Leaf(escape(self._get(attributes, "pos")), word)
        elif name == "nt":
            self._constituent = self._get(attributes, "id")
            self._sentence.labels[self._constituent] = escape(self._get(attributes, "cat"))
            self._sentence.edges[self._constituent] = []
        elif name == "edge" and self._constituent is not None:
            edge = _Edge(self._get(attributes, "idref"), attributes.get("label", NO_LABEL))
            self._sentence.edges[self._constituent].append(edge)

    def _end(self, name: str) -> None:
        if name == "nt":
            self._constituent = None
        elif name == "s" and self._sentence is not None:
            self.sentences += 1
            where = f"{self.path}:{self._sentence.line}"
            tree = _Raising(self._sentence, where).tree() if self._sentence.words else None
            self._done.append(TreeAtLine(self._sentence.line, tree))
            self._sentence = None

    def _get(self, attributes: dict[str, str], name: str) -> str:
        if not attributes.get(name, "").strip():
            where = f"{self.path}:{self.parser.CurrentLineNumber}"
            raise UserError(f"this element has no {name}", where=where, received=dict(attributes))
        return attributes[name]


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
        for name in self._lowest_first():
            parts = _parts(self.children[name], spans)
            kept = _with_head(parts, spans)
            raised = [edge for part in parts if part is not kept for edge in part]
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
                if self.parent.setdefault(edge.child, name) != name:
                    raise UserError("this node has two parents", where=self.where, received=edge.child)
            if not edges:
                raise UserError("this constituent holds nothing", where=self.where, received=name)
        for name in self.children:
            above, steps = name, 0
            while above in self.parent:
                above, steps = self.parent[above], steps + 1
                if steps > len(self.children):
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
