"""Constituents made of Universal Dependencies, by rules that go from the head outwards.

    python recipes/parsing/constituents.py FILE.conllu > FILE.trees       # --tags upos: the universal tags

Trees are written a line each, in brackets.

1. Edges that cross others are lifted, the shortest first, to the head of their head, until the tree is projective
   (Nivre and Nilsson 2005); further roots hang on the first.
2. Every word projects phrases, and its dependents are put into these in the order of their distance, on either side:
   no dependent gets into a phrase that is inside of one in which a nearer dependent is. From the inside out:

   | phrase | what goes in |
   |---|---|
   | of the word: NP, ADJP, ADVP, INTJ, QP or X by its part of speech | all that is not named below |
   | NP once more | modifiers after a noun: nmod, acl, appos, advcl, obl |
   | VP | of a verb, all that is not named below; of another predicate, its copula, adverbs, obl and advcl |
   | VP once more, for every | aux and cop before the word, and `to` |
   | S | nsubj, csubj, expl |
   | PP, SBAR | case; mark |

   A coordination has the label of its first part and stands above the phrase, among these, that is of the last part's
   kind: conjuncts without a subject share that of the first. What is outside of the grammar (discourse, vocative,
   parataxis, dislocated, list, cc) goes to the outermost phrase, as does punctuation with nothing else beyond it; other
   punctuation goes where the dependent inside of it went. `cc` and punctuation before a conjunct, and punctuation at
   one edge of any phrase, stand beside it; at both edges, as brackets and quotation marks do, they belong to it.
3. A word without dependents is a bare leaf where it is a part of its head's phrase (det, amod, nummod, compound, flat,
   nmod:poss, nmod:desc, aux, cop, case, mark, cc, punct, fixed, goeswith; advmod but of verbs, negations of those too)
   and a phrase of one word elsewhere. Function words of several words (`because of`) have no phrase.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from headway.core.errors import HeadwayError, UserError
from headway.formats.conllu import ConlluToken, check_dependent, read_sentences
from headway.parses.parse import depths
from headway.trees.tree import Leaf, Tree, escape

TAGS = ("xpos", "upos")
Node = Tree | Leaf

# From the inside out. The VPs of auxiliaries lie between VERBAL and the coordination of VPs.
OUTERMOST, BASE, MODIFIED, VERBAL, CLAUSE, CASE, MARK = 0, 10, 20, 30, 50, 60, 65
COORDINATION = {BASE: 25, MODIFIED: 25, VERBAL: 45, CLAUSE: 55, CASE: 70, MARK: 70}
LABELS = {VERBAL: "VP", CLAUSE: "S", CASE: "PP", MARK: "SBAR"}

PHRASES = {
    "NOUN": "NP", "PROPN": "NP", "PRON": "NP", "NUM": "NP", "SYM": "NP", "X": "NP", "DET": "NP",
    "ADJ": "ADJP", "ADV": "ADVP", "ADP": "PP", "INTJ": "INTJ", "VERB": "VP", "AUX": "VP",
}  # fmt: skip
SUBJECTS = {"nsubj", "csubj", "expl"}
OUTSIDE = {"punct", "discourse", "vocative", "parataxis", "dislocated", "list", "cc"}
POSTMODIFIERS = {"nmod", "acl", "appos", "advcl", "obl"}
SPLICED = {"case", "mark", "cc", "aux", "cop", "fixed", "goeswith", "punct"}
BARE = SPLICED | {"det", "amod", "nummod", "compound", "flat"}


class Word(NamedTuple):
    """A word of a dependency tree; the head of a root is its own index."""

    form: str
    upos: str
    tag: str
    head: int
    relation: str

    @property
    def kind(self) -> str:
        """The relation without its subtype."""
        return self.relation.partition(":")[0]

    @property
    def is_verb(self) -> bool:
        """Whether it is a verb or an auxiliary."""
        return self.upos in ("VERB", "AUX")


@dataclass(frozen=True)
class Converted:
    """A constituency tree, and how many edges were lifted to make it."""

    line: int
    tree: Tree
    lifted: int


def convert_conllu(path: Path, tags: str = "xpos") -> Iterator[Converted]:
    """The sentences of a CoNLL-U file as constituency trees.

    Args:
        path: the file.
        tags: what becomes the tag of a leaf; the universal one where there is no other.

    Raises:
        UserError: with file and line: heads that make no tree, other columns than CoNLL-U has.
    """
    for sentence in read_sentences(path):
        words = [_read_word(token, index, tags, path) for index, token in enumerate(sentence.words())]
        if not words:
            continue
        try:
            depths([word.head for word in words])
        except ValueError as error:
            raise UserError(f"these heads make no tree ({error})", where=f"{path}:{sentence.line}") from error
        tree, lifted = convert(words)
        yield Converted(sentence.line, tree, lifted)


def _read_word(token: ConlluToken, index: int, tags: str, path: Path) -> Word:
    check_dependent(token, index, path)
    tag = token.upos if tags == "upos" or token.xpos == "_" else token.xpos
    if len(tag.split()) != 1:
        what = "a part of speech is empty, or has white space in it"
        raise UserError(what, where=f"{path}:{token.line}", received=tag)
    head = token.head - 1 if token.head else index
    return Word("_".join(token.form.split()), token.upos, escape(tag), head, token.deprel)


def convert(words: Sequence[Word]) -> tuple[Tree, int]:
    """The constituency tree of a dependency tree, and how many edges had to be lifted."""
    roots = [index for index, word in enumerate(words) if word.head == index]
    joined = list(words)
    joined[roots[0]] = words[roots[0]]._replace(relation="root")
    for index in roots[1:]:
        joined[index] = words[index]._replace(head=roots[0], relation="parataxis")
    heads = [word.head for word in joined]
    lifted = lift(heads)
    below: list[list[int]] = [[] for _ in words]
    for index, head in enumerate(heads):
        if head != index:
            below[head].append(index)
    levels = depths(heads)
    done: dict[int, _Phrase] = {}
    for index in sorted(range(len(words)), key=lambda index: -levels[index]):
        done[index] = _Head(joined, index, below[index], joined[heads[index]], below[heads[index]]).project(done)
    (tree,) = done[roots[0]].nodes
    assert isinstance(tree, Tree)
    return tree, lifted


def lift(heads: list[int]) -> int:
    """Make `heads`, of a tree, projective; gives the number of edges that had to be lifted for it."""
    lifted = 0
    while crossing := [index for index in range(len(heads)) if _crosses(heads, index)]:
        shortest = min(crossing, key=lambda index: (abs(heads[index] - index), index))
        heads[shortest] = heads[heads[shortest]]
        lifted += 1
    return lifted


def _crosses(heads: Sequence[int], index: int) -> bool:
    """Whether a word between `index` and its head is not below that head."""
    head = heads[index]
    for between in range(min(index, head) + 1, max(index, head)):
        above = between
        while above != head and heads[above] != above:
            above = heads[above]
        if above != head:
            return True
    return False


@dataclass(frozen=True)
class _Phrase:
    """The phrase of a word with all that is below it: nodes, and the kind of the outermost phrase among them."""

    nodes: list[Node]
    kind: int


def _nodes(indices: Sequence[int], done: dict[int, _Phrase]) -> list[Node]:
    """The nodes of several words, in the order of these."""
    return [node for index in indices for node in done[index].nodes]


@dataclass(frozen=True)
class _Head:
    """A word with its dependents, and its own head with all of that one's."""

    words: Sequence[Word]
    index: int
    below: Sequence[int]
    above: Word
    siblings: Sequence[int]

    @property
    def word(self) -> Word:
        return self.words[self.index]

    @property
    def is_copular(self) -> bool:
        return any(self.words[dependent].kind == "cop" for dependent in self.below)

    def project(self, done: dict[int, _Phrase]) -> _Phrase:
        """The phrases of the word, from the phrases `done` of its dependents."""
        before_it = [dependent for dependent in self.below if dependent < self.index]
        after_it = [dependent for dependent in self.below if dependent > self.index]
        node: Node = Leaf(self.word.tag, self.word.form)
        if self.word.kind in SPLICED:
            return _Phrase([*_nodes(before_it, done), node, *_nodes(after_it, done)], BASE)
        left, right = self._edges(before_it, after_it)
        inside = [dependent for dependent in self.below if dependent not in (*left, *right)]
        kind = VERBAL if self.word.is_verb else BASE
        if inside or not self._is_bare():
            levels = self._levels(inside, done)
            for level in sorted({kind, *levels.values()}):
                members = [dependent for dependent in inside if levels[dependent] == level]
                before = _nodes([dependent for dependent in members if dependent < self.index], done)
                after = _nodes([dependent for dependent in members if dependent > self.index], done)
                node = Tree(self._label(level, node), (*before, node, *after))
                kind = max(limit for limit in COORDINATION if limit <= level)
        return _Phrase([*_nodes(left, done), node, *_nodes(right, done)], kind)

    def _label(self, level: int, node: Node) -> str:
        if level in (BASE, MODIFIED):
            if self.word.kind in ("det", "nummod") and self.word.upos in ("DET", "NUM"):
                return "QP"
            return "PRT" if self.word.relation == "compound:prt" else PHRASES.get(self.word.upos, "X")
        if level in COORDINATION.values():
            assert isinstance(node, Tree)
            return node.label
        return LABELS[max(limit for limit in LABELS if limit <= level)]

    def _is_bare(self) -> bool:
        """Whether a word without dependents is a leaf of its head's phrase."""
        word = self.word
        if word.kind == "advmod":
            is_copular = any(self.words[dependent].kind == "cop" for dependent in self.siblings)
            return word.upos == "PART" or not (self.above.is_verb or is_copular)
        return (word.kind in BARE and word.relation != "compound:prt") or word.relation in ("nmod:poss", "nmod:desc")

    def _edges(self, left: Sequence[int], right: Sequence[int]) -> tuple[list[int], list[int]]:
        """The words beside a phrase on either side: conjunctions before a conjunct, and punctuation."""
        if self.word is self.above:
            return [], []
        beside = {"punct", "cc"} if self.word.kind == "conj" else {"punct"}
        before = list(takewhile(lambda dependent: self.words[dependent].kind in beside, left))
        after = list(takewhile(lambda dependent: self.words[dependent].kind == "punct", reversed(right)))[::-1]
        pair = before and after and self.word.kind != "conj"
        return ([], []) if pair else (before, after)

    def _levels(self, inside: Sequence[int], done: dict[int, _Phrase]) -> dict[int, int]:
        """The phrase that each dependent is in."""
        by_relation = {dependent: self._level(dependent, done) for dependent in inside}
        left = [dependent for dependent in reversed(inside) if dependent < self.index]
        right = [dependent for dependent in inside if dependent > self.index]
        auxiliaries = [
            dependent
            for dependent in left
            if self.words[dependent].kind in ("aux", "cop", "mark") and by_relation[dependent] == VERBAL
        ]
        for offset, auxiliary in enumerate(auxiliaries):  # each has a VP; a word that is no verb has that of the first
            by_relation[auxiliary] = VERBAL + offset + self.word.is_verb
        top = max(by_relation.values(), default=BASE)
        levels = {}
        for side in (left, right):
            reached = VERBAL if self.word.is_verb else BASE
            for offset, dependent in enumerate(side):
                if by_relation[dependent] == OUTERMOST:
                    inner = self.words[dependent].kind == "punct" and self._goes_on(side[offset:])
                    reached = reached if inner else max(reached, top)
                reached = max(reached, by_relation[dependent])
                levels[dependent] = reached
        return levels

    def _goes_on(self, side: Sequence[int]) -> bool:
        """Whether there is more than punctuation."""
        return any(self.words[dependent].kind != "punct" for dependent in side)

    def _level(self, dependent: int, done: dict[int, _Phrase]) -> int:
        """The phrase that a dependent is of by itself."""
        word, is_part = self.words[dependent], self.words[dependent].upos == "PART"
        match word.kind:
            case "case":
                return BASE if is_part else CASE
            case "mark":
                return VERBAL if is_part else MARK
            case "aux" | "cop":
                return VERBAL
            case "conj":
                return COORDINATION[done[dependent].kind]
            case kind if kind in SUBJECTS:
                return CLAUSE
            case kind if kind in OUTSIDE:
                return OUTERMOST
            case kind if self.word.is_verb or (self.is_copular and kind in ("obl", "advcl")):
                return VERBAL
            case "advmod" if self.is_copular and self.word.upos != "ADJ":
                return VERBAL
            case kind if kind in POSTMODIFIERS and dependent > self.index and PHRASES.get(self.word.upos) == "NP":
                return MODIFIED
        return BASE


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the trees of a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--tags", choices=TAGS, default=TAGS[0])
    given = parser.parse_args(arguments)
    trees = lifted = 0
    for converted in convert_conllu(given.file, given.tags):
        print(converted.tree.write())
        trees, lifted = trees + 1, lifted + converted.lifted
    if not trees:
        raise UserError("there are no sentences here", where=str(given.file))
    print(f"{trees:,} trees; {lifted:,} crossing edges were lifted", file=sys.stderr)


if __name__ == "__main__":
    try:
        main()
    except (HeadwayError, OSError) as error:
        sys.exit(f"constituents.py: {error}")
