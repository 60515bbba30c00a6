"""Projects dependency parses from a parser's tokens to the subwords of a vocabulary, by their characters.

The segmentations of the translation model and the parser may differ. Words and tokens that share characters, directly
or transitively, form a block, which is one node of the tree:

- one word, one token: the word has the token's head;
- one word, several tokens (`can't`; a compound that the parser splits): the tokens are merged, and the block has the
  head of its highest token, the first of equally high ones;
- several words, one token (`New York`): the words are chained like the subwords of one word;
- several words and tokens with different boundaries: merged and chained.

Subwords get heads as in Deguchi et al.: a subword that is not the last of its block points to the next one; the last
subword points to the first subword of the head block or, in a root, to itself.

Shapes: L subwords of a line.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from headway.core.errors import UserError
from headway.core.log import warn
from headway.formats.corpus_config import AnyCorpus
from headway.parses.parse import Parse
from headway.parses.parse_store import ParsesConfig, ParseStore, StoreLabeller, store_of
from headway.processing.text.text_processor import TextProcessor, TextToken

NONE = -1
# The counts of each line, in this order.
COUNTED = (
    "lines", "lines without a parse", "tokens", "merged", "dropped", "split", "words", "words without a token",
    "edges", "edges to the right",
)  # fmt: skip


@dataclass(frozen=True)
class Projection:
    """The parse of a line's subwords.

    Attributes:
        heads: (L,) the head of each subword, its own index for the last subword of a root, `NONE` without an edge.
        blocks: (L,) the index of the block of each subword.
        counts: the values of `COUNTED`. `merged` tokens lost their edge to another token of their block, `dropped`
            tokens cover no subword, `split` tokens cover several words.
    """

    heads: NDArray[np.int32]
    blocks: NDArray[np.int32]
    counts: dict[str, int]

    def left_only(self) -> "Projection":
        """The projection without edges to the right, which a decoder cannot attend to."""
        right = self.heads > np.arange(len(self.heads))
        moved = int(right.sum())
        counts = self.counts | {"edges": self.counts["edges"] - moved, "edges to the right": moved}
        return Projection(np.where(right, NONE, self.heads).astype(np.int32), self.blocks, counts)


@dataclass
class _Word:
    """Consecutive subwords [first, last], the characters [start, end) that they cover, and their block."""

    first: int
    last: int
    start: int
    end: int
    block: int


def project(subwords: Sequence[TextToken], parse: Parse | None, *, segmented: bool = True) -> Projection:
    """The heads of the subwords of a line.

    Args:
        subwords: all subwords of the line, from `TextProcessor.encode_with_spans`.
        parse: the parse of the line, or None.
        segmented: whether white space in the prepared line separates words. Otherwise (Japanese without a segmenter), a
            word also ends where both a subword and a token end.
    """
    parse = parse or Parse(())
    words = _words(subwords, parse, segmented)
    covered = [_covered(words, token.start, token.end) for token in parse.tokens]
    joined = [False] * len(words)  # whether a token covers a word and the preceding one
    for span in covered:
        for number in span[1:]:
            joined[number] = True
    for number in range(1, len(words)):  # blocks are numbered in order
        words[number].block = words[number - 1].block + (not joined[number])
    members: dict[int, list[int]] = {word.block: [] for word in words}
    for token, span in enumerate(covered):
        if span:
            members[words[span[0]].block].append(token)
    heads = _heads(words, covered, members, parse, len(subwords))
    blocks = np.zeros(len(subwords), dtype=np.int32)
    for word in words:
        blocks[word.first : word.last + 1] = word.block
    dropped = sum(not span for span in covered)
    counts = dict.fromkeys(COUNTED, 0) | {
        "lines": 1,
        "lines without a parse": int(not parse.tokens),
        "tokens": len(parse.tokens),
        "merged": sum(max(0, len(tokens) - 1) for tokens in members.values()),
        "dropped": dropped,
        "split": sum(len(span) > 1 for span in covered),
        "words": len(words),
        "words without a token": sum(not members[word.block] for word in words) if parse.tokens else 0,
        "edges": int((heads != NONE).sum()),
    }
    return Projection(heads, blocks, counts)


def _words(subwords: Sequence[TextToken], parse: Parse, segmented: bool) -> list[_Word]:
    """The words of the line that have subwords, each as a separate block."""
    starts = {token.start for token in parse.tokens} if not segmented else set()
    ends = {token.end for token in parse.tokens} if not segmented else set()
    number, keys = 0, []
    for index, subword in enumerate(subwords):
        before = subwords[index - 1] if index else subword
        cut = _visible(before) and (subword.start in starts or before.end in ends)
        number += subword.word != before.word or cut
        keys.append(number)
    words: list[_Word] = []
    for _, group in groupby(range(len(subwords)), key=keys.__getitem__):
        indices = list(group)
        shown = [subwords[index] for index in indices if _visible(subwords[index])]
        start = shown[0].start if shown else subwords[indices[-1]].end
        words.append(_Word(indices[0], indices[-1], start, subwords[indices[-1]].end, len(words)))
    return words


def _visible(subword: TextToken) -> bool:
    """Whether a subword has characters besides the mark of a space, which does not belong to the word."""
    return bool(subword.text.strip("\u2581 "))


def _covered(words: Sequence[_Word], start: int, end: int) -> range:
    """The indices of the words that share characters with [start, end). The words are sorted by start and end."""
    first = bisect_right(words, start, key=lambda word: word.end)
    last = bisect_left(words, end, key=lambda word: word.start)
    return range(first, max(first, last))


def _heads(
    words: Sequence[_Word], covered: Sequence[range], members: dict[int, list[int]], parse: Parse, length: int
) -> NDArray[np.int32]:
    heads = np.full(length, NONE, dtype=np.int32)
    first = {word.block: word.first for word in reversed(words)}
    last = {word.block: word.last for word in words}
    for block, tokens in members.items():
        if not tokens:
            continue
        heads[first[block] : last[block]] = np.arange(first[block] + 1, last[block] + 1)
        top = min(tokens, key=lambda token: (parse.depths[token], token))
        head = _kept_head(top, covered, parse)
        if head == top:
            heads[last[block]] = last[block]
        elif head is not None:
            # Depths decrease towards the root, so the head is in another block, and blocks form trees as tokens do.
            heads[last[block]] = first[words[covered[head][0]].block]
    return heads


def _kept_head(token: int, covered: Sequence[range], parse: Parse) -> int | None:
    """The nearest ancestor of a token that covers a word, or None if all were dropped; the token itself for a root."""
    head = parse.tokens[token].head
    while not covered[head]:
        above = parse.tokens[head].head
        if above == head:
            return None
        head = above
    return head


class HeadLabeller(StoreLabeller[ParseStore]):
    """`source_heads` or `target_heads`: the position of each subword's head; on the target side never to the right.

    Raises:
        UserError: the store is missing or damaged.
    """

    counted: ClassVar[tuple[str, ...]] = COUNTED
    kind = ParseStore

    def __init__(self, name: str, store: Path) -> None:
        self.name, self.side = name, ("source", "target").index(name.partition("_")[0])
        super().__init__(store)

    def project(self, line: str, side: TextProcessor) -> Projection:
        """The heads of a line's subwords, including those to the right."""
        return project(side.encode_with_spans(line), self.store.get(line), segmented=side.config.segment != "none")

    def label(
        self, texts: tuple[str, str], sides: tuple[TextProcessor, TextProcessor]
    ) -> tuple[NDArray[np.integer], Sequence[int]]:
        assert self.side is not None
        projection = self.project(texts[self.side], sides[self.side])
        if self.side == 1:
            projection = projection.left_only()
        return projection.heads, [projection.counts[name] for name in COUNTED]

    def check(self, counts: Mapping[str, int]) -> None:
        if not counts["edges"]:
            raise UserError("none of the sentences has a parse here", where=str(self.path), received=dict(counts))
        if missing := counts["lines without a parse"]:
            warn(f"{self.name}: {missing:,} of {counts['lines']:,} lines have no parse in {self.path}")


def head_labellers(corpus: AnyCorpus, parses: ParsesConfig, names: Sequence[str]) -> list[HeadLabeller]:
    """The labellers with the names `names`, for a corpus that was parsed with `parses`.

    Raises:
        UserError: the recipe names no parser for a side, or its parses are missing.
    """
    return [HeadLabeller(name, store_of(corpus, name.removesuffix("_heads"), parses)) for name in names]
