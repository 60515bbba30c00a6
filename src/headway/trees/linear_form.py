"""Conversion between trees and sequences of symbols (Vinyals et al. 2015), including ill-formed model outputs.

`(NP (DT The) (NN dog))` is written `(NP DT NN )NP`: brackets have labels, and a word is its part of speech, or `XX`.
The conversion to a tree takes the words of the sentence, and returns a tree over exactly these words for any sequence:

- A closing bracket closes the innermost constituent if that has its label. Otherwise it closes the innermost
  constituent with its label and everything within (`brackets never closed`), or, if there is none, the innermost
  constituent (`closings with a wrong label`). If nothing can be closed, it is ignored; the root stays open until the
  last word (`closings of nothing`). Constituents that are open at the end are closed. Words before the first bracket
  are moved to the beginning of the root.
- Constituents without a word are removed. Without any constituent the tree is flat, below `TOP`.
- If the numbers of leaves and words differ, the two are aligned. Pairs that visibly differ (punctuation and another
  word; different tags, if the tags are known) are avoided, and among equally good alignments, the one with the latest
  gaps is chosen. Superfluous leaves are removed. A missing word is attached to the lowest constituent that contains the
  words on both sides of it.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from headway.trees.tree import UNKNOWN_TAG, Builder, Leaf, Tree, escape, fill, flat, unescape

NO_TREE = "no brackets"
UNCLOSED = "brackets never closed"
UNOPENED = "closings of nothing"
MISLABELLED = "closings with a wrong label"
EMPTY = "empty brackets"
OUTSIDE = "words before the first bracket"
MISSING = "missing words"
SUPERFLUOUS = "superfluous words"
KINDS = (NO_TREE, UNCLOSED, UNOPENED, MISLABELLED, EMPTY, OUTSIDE, MISSING, SUPERFLUOUS)

Leaves = Literal["tags", "xx"]


@dataclass(frozen=True)
class Repaired:
    """A tree, and the number of repairs by the names in `KINDS`, which is empty for a well-formed tree."""

    tree: Tree
    counts: Counter[str] = field(default_factory=Counter)


def linearise(tree: Tree, leaves: Leaves = "tags") -> str:
    """The symbols of a tree, separated by spaces."""
    symbols = []
    for event in tree.events():
        match event.kind:
            case "open":
                symbols.append(f"({event.label}")
            case "close":
                symbols.append(f"){event.label}")
            case "leaf":
                symbols.append(event.label if leaves == "tags" else UNKNOWN_TAG)
    return " ".join(symbols)


def repair(text: str, words: Sequence[str], tags: Sequence[str] | None = None) -> Repaired:
    """The tree of a linear form over exactly `words`, repaired if necessary.

    Args:
        text: symbols separated by spaces, well-formed or not.
        words: the words of the sentence, at least one.
        tags: the tags of the words, if known, which become the tags of the leaves.
    """
    counts = Counter[str]()
    shape = _shape(text.split(), counts)
    given = [leaf.tag for leaf in shape.leaves()] if shape else []
    known = list(tags) if tags is not None else None
    partners = _align(given, words, known) if len(given) != len(words) else list(range(len(words)))
    final = [
        Leaf(known[index] if known else given[leaf] if leaf is not None else UNKNOWN_TAG, word)
        for index, (word, leaf) in enumerate(zip(words, partners, strict=True))
    ]
    kept = sum(leaf is not None for leaf in partners)
    counts[MISSING] += len(words) - kept
    counts[SUPERFLUOUS] += len(given) - kept
    return Repaired(fill(shape, final, partners) if shape else flat(final), +counts)


def _shape(symbols: Sequence[str], counts: Counter[str]) -> Tree | None:
    """The tree over leaves without words, or None if there is no constituent."""
    builder, early = Builder(), list[Leaf]()
    words = [index for index, symbol in enumerate(symbols) if symbol[0] not in "()"]
    last = words[-1] if words else -1
    for index, symbol in enumerate(symbols):
        label = escape(symbol[1:])
        if symbol[0] == ")":
            _close(builder, label, index < last, counts)
        elif symbol[0] == "(" and label:
            builder.open(label)
            while early:
                builder.leaf(early.pop(0))
        elif symbol[0] == "(":
            counts[EMPTY] += 1
        elif builder.labels:
            builder.leaf(Leaf(escape(symbol), ""))
        else:
            early.append(Leaf(escape(symbol), ""))
            counts[OUTSIDE] += 1
    counts[UNCLOSED] += len(builder.labels)
    while builder.labels:
        builder.close()
    counts[EMPTY] += builder.empty
    whole = next(iter(builder.finish()), None)  # the only node, as the root stays open until the last word
    if isinstance(whole, Tree):
        return whole
    counts[NO_TREE] += 1
    del counts[OUTSIDE]
    return flat(early) if early else None


def _close(builder: Builder, label: str, more: bool, counts: Counter[str]) -> None:
    """Process a closing bracket. If `more` words follow, the root stays open."""
    closable = builder.labels[1:] if more else builder.labels
    if not closable:
        counts[UNOPENED] += 1
    elif label in closable:
        while builder.labels[-1] != label:
            builder.close()
            counts[UNCLOSED] += 1
        builder.close()
    else:
        builder.close()
        counts[MISLABELLED] += 1


def _align(given: Sequence[str], words: Sequence[str], tags: Sequence[str] | None) -> list[int | None]:
    """The leaf of each word, or None if it has none, by the minimum edit distance with unit costs."""
    if not given:
        return [None] * len(words)
    costs = np.array(
        [[_differ(tag, word, tags[index] if tags else None) for index, word in enumerate(words)] for tag in given]
    )
    table = np.zeros((len(given) + 1, len(words) + 1), dtype=np.int64)
    table[:, 0], table[0] = np.arange(len(given) + 1), np.arange(len(words) + 1)
    for i in range(1, len(given) + 1):
        for j in range(1, len(words) + 1):
            table[i, j] = min(table[i - 1, j] + 1, table[i, j - 1] + 1, table[i - 1, j - 1] + costs[i - 1, j - 1])
    partners: list[int | None] = [None] * len(words)
    i, j = table.shape[0] - 1, table.shape[1] - 1
    while i and j:
        if table[i, j] == table[i - 1, j] + 1:
            i -= 1
        elif table[i, j] == table[i, j - 1] + 1:
            j -= 1
        else:
            i, j = i - 1, j - 1
            partners[j] = i
    return partners


def _differ(given: str, word: str, tag: str | None) -> bool:
    """Whether a leaf certainly does not match a word."""
    if given == UNKNOWN_TAG:
        return False
    return given != tag if tag is not None else _is_punctuation(given) != _is_punctuation(word)


def _is_punctuation(text: str) -> bool:
    return text == "PUNCT" or not any(character.isalnum() for character in unescape(text))
