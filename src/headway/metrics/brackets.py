"""Scores of constituency trees by EVALB's conventions (Sekine and Collins 1997, with COLLINS.prm).

A segment is a tree in brackets, or the linear form that a model writes, which is first repaired to match the words of
the reference (see `headway.trees.linear_form`). An empty hypothesis has no brackets.

- Punctuation, according to the tags of the reference, is removed from both trees before spans are counted, so its
  attachment does not matter. Brackets that only cover punctuation do not count.
- `TOP` and other labels of the root alone do not count. Traces and grammatical functions are removed. ADVP and PRT are
  equal.
- Labelled brackets are matched as multisets: NP over NP over the same words is two brackets.
- Scores are corpus scores: brackets are summed over sentences. Unlike EVALB, which skips sentences whose trees cover
  other words and sentences with an empty hypothesis, the former are an error here, and the latter count.
"""

from collections import Counter, deque
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from headway.core.errors import UserError
from headway.formats.lines import read_lines
from headway.formats.penn import parse_tree
from headway.formats.treebanks import read_trees
from headway.metrics.metric import Metric, Signature, Statistics, check_one_reference, release, share
from headway.tensors.batch import SPECIALS
from headway.trees.linear_form import KINDS, NO_TREE, repair
from headway.trees.tree import TOP, Tree, clean

# The tags of punctuation in COLLINS.prm, in TIGER, and in Universal Dependencies.
PUNCTUATION = {",", ":", "``", "''", ".", "$,", "$.", "$-LRB-", "PUNCT"}
EQUAL = {"PRT": "ADVP"}


class Brackets(NamedTuple):
    """The parts of a tree that are compared: labelled spans of words, without punctuation, and the words' tags."""

    spans: Counter[tuple[str, int, int]]
    tags: list[str]


def brackets_of(tree: Tree, punctuation: Sequence[bool]) -> Brackets:
    """The brackets and tags of a tree, without the words whose `punctuation` is True."""
    before = [0]  # the number of counted words before each word
    for left_out in punctuation:
        before.append(before[-1] + (not left_out))
    spans = Counter(
        (EQUAL.get(label, label), before[start], before[end])
        for label, start, end in tree.constituents()
        if label != TOP and before[start] < before[end]
    )
    tags = [leaf.tag for leaf, left_out in zip(tree.leaves(), punctuation, strict=True) if not left_out]
    return Brackets(spans, tags)


def crossing(hypothesis: Brackets, reference: Brackets) -> int:
    """The number of brackets that cross a bracket of the reference: they overlap, and neither contains the other."""
    spans = {(start, end) for _, start, end in reference.spans}
    return sum(
        count
        for (_, start, end), count in hypothesis.spans.items()
        if any(left < start < right < end or start < left < end < right for left, right in spans)
    )


def is_linear(text: str) -> bool:
    """Whether a text is the linear form of a tree, in which no word ends with a bracket.

    A model may write a separate `)`. Together with a separate `(`, the text is a tree with separate brackets.
    """
    symbols = text.split()
    alone = "(" in symbols
    return bool(symbols) and not any(symbol.endswith(")") and (alone or symbol.strip("()")) for symbol in symbols)


def is_treebank(path: Path) -> bool:
    """Whether a file contains TIGER-XML or trees in brackets, over any number of lines, rather than linear forms.

    If the first line only has opening brackets, such as `(ROOT` or `( (S`, the last line decides: if it only has
    closing brackets, it belongs to a tree over several lines.
    """
    lines = (line for line in read_lines(path) if line.strip())
    first = next(lines, "")
    xml = first.lstrip().startswith("<") and first.split()[0] not in SPECIALS  # a model may write special tokens
    if not first or xml or not is_linear(first):
        return bool(first)
    if not all(symbol.startswith("(") for symbol in first.split()):
        return False
    last = next(iter(deque(lines, maxlen=1)), first)
    return not is_linear(last) or not last.replace(")", "").strip()


class TreeMetric(Metric):
    """A metric of trees. Files are treebanks (brackets, TIGER-XML) or lines with the linear forms that a model wrote.

    Statistics: the values of `NAMES`, in this order, and the number of repairs of each of `KINDS`.
    """

    kinds = ("trees",)
    NAMES = ("matched", "output", "reference", "complete", "sentences", "right tags", "tags", "crossing", "repaired")

    def read(self, path: Path) -> list[str]:
        if not is_treebank(path):
            return list(read_lines(path))
        return [tree.write() if tree else "" for _, tree in read_trees(path)]

    def statistics(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Statistics:
        check_one_reference("a tree", hypotheses, references)
        pairs = enumerate(zip(hypotheses, references[0], strict=True), start=1)
        return np.array([self._compare(output, gold, segment) for segment, (output, gold) in pairs], dtype=np.float64)

    def _compare(self, output: str, gold: str, segment: int) -> list[int]:
        """The statistics of one sentence; zeros without a reference."""
        reference = clean(parse_tree(gold, f"references, segment {segment}")) if gold.strip() else None
        if reference is None:
            return [0] * (len(self.NAMES) + len(KINDS))
        words = reference.words()
        tree, counts = _read(output, words)
        if tree is not None and tree.words() != words:
            received = " ".join(tree.words())
            raise UserError(
                "this tree is over other words than its reference", where=f"segment {segment}", received=received,
                allowed=" ".join(words),
            )  # fmt: skip
        punctuation = [leaf.tag in PUNCTUATION for leaf in reference.leaves()]
        right = brackets_of(reference, punctuation)
        given = brackets_of(tree, punctuation) if tree else Brackets(Counter(), [])
        row = [
            (given.spans & right.spans).total(), given.spans.total(), right.spans.total(),
            given.spans == right.spans, 1,
            sum(one == other for one, other in zip(given.tags, right.tags, strict=False)), len(right.tags),
            crossing(given, right), bool(counts),
        ]  # fmt: skip
        return [*map(int, row), *(counts[kind] for kind in KINDS)]

    def total(self, totals: Statistics, name: str) -> float:
        return float(totals[self.NAMES.index(name)])

    def signature(self) -> Signature:
        return Signature.of(evalb="COLLINS", labelled=True, punctuation="removed", version=release())


def _read(text: str, words: Sequence[str]) -> tuple[Tree | None, Counter[str]]:
    """The tree of a hypothesis and the repairs that it needed, or None for the tree of an empty hypothesis."""
    if not text.strip():
        return None, Counter({NO_TREE: 1})
    try:
        tree = clean(parse_tree(text))
    except UserError:
        tree = None  # subwords can form any text
    if tree is not None and (not is_linear(text) or tree.words() == words):  # `(DT the )` looks linear
        return tree, Counter()
    repaired = repair(text, words)
    return clean(repaired.tree), repaired.counts


class BracketF1(TreeMetric):
    """2 P R / (P + R) of labelled brackets, times 100."""

    name = "bracket-f1"

    def aggregate(self, totals: Statistics) -> float:
        return share(2 * self.total(totals, "matched"), self.total(totals, "output") + self.total(totals, "reference"))

    def notes(self, totals: Statistics) -> list[str]:
        matched, output, gold = (self.total(totals, name) for name in ("matched", "output", "reference"))
        counts = f"{matched:,.0f} of {output:,.0f} brackets are among the {gold:,.0f} of the references"
        return [f"precision {share(matched, output):.2f}, recall {share(matched, gold):.2f}: {counts}"]


class TreeShare(TreeMetric):
    """The ratio of two of the sums, times 100."""

    part: str
    whole: str

    def aggregate(self, totals: Statistics) -> float:
        return share(self.total(totals, self.part), self.total(totals, self.whole))


class BracketPrecision(TreeShare):
    """The share of labelled brackets that are in the reference, times 100."""

    name, part, whole = "bracket-precision", "matched", "output"


class BracketRecall(TreeShare):
    """The share of the reference's labelled brackets that are in the output, times 100."""

    name, part, whole = "bracket-recall", "matched", "reference"


class CompleteMatch(TreeShare):
    """The share of sentences whose labelled brackets all equal those of the reference, times 100."""

    name, part, whole = "complete-match", "complete", "sentences"


class TaggingAccuracy(TreeShare):
    """The share of words, without punctuation, that have the tag of the reference, times 100."""

    name, part, whole = "tagging-accuracy", "right tags", "tags"


class CrossingBrackets(TreeMetric):
    """The number of brackets per sentence that cross a bracket of the reference."""

    name = "crossing-brackets"
    higher_is_better = False

    def aggregate(self, totals: Statistics) -> float:
        sentences = self.total(totals, "sentences")
        return self.total(totals, "crossing") / sentences if sentences else 0.0


class WellFormed(TreeMetric):
    """The share of hypotheses that are trees over the words of the sentence without any repair, times 100."""

    name = "well-formed"

    def aggregate(self, totals: Statistics) -> float:
        sentences = self.total(totals, "sentences")
        return share(sentences - self.total(totals, "repaired"), sentences)

    def notes(self, totals: Statistics) -> list[str]:
        counts = dict(zip(KINDS, totals[len(self.NAMES) :], strict=True))
        kinds = [f"{kind}: {count:,.0f}" for kind, count in counts.items() if count]
        return [f"repaired: {', '.join(kinds)}"] if kinds else []
