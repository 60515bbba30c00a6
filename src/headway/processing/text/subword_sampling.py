"""Subword sampling: in each epoch, the words of a sentence are cut into other pieces, drawn at random.

A byte-pair encoding leaves out merges with a probability (BPE-dropout, Provilkov et al. 2020, algorithm 1). A unigram
model draws one of all ways to cut a word, with probabilities to the power of alpha (Kudo 2018, equation 8, over all
segmentations).

SentencePiece draws from one generator a thread, so that a run that goes on would draw other pieces. Here what is drawn
is a function of seed, epoch, sentence and side.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from headway.processing.text.subwords import SubwordVocabulary, scored_pieces
from headway.processing.text.vocabulary import Vocabulary
from headway.tensors.batch import EOS

KINDS = ("bpe", "unigram", "marian")  # kinds of vocabularies whose pieces can be sampled

Scores = Mapping[str, float]


class SubwordSampler:
    """Samples the pieces of encoded sentences of one vocabulary.

    Args:
        vocabulary: of SentencePiece, with tags or without.
        alpha: the probability with which a merge is left out, or the power of probabilities.

    Raises:
        ValueError: a vocabulary of another kind.
    """

    def __init__(self, vocabulary: Vocabulary, alpha: float) -> None:
        text = vocabulary.untagged
        kind, scores = scored_pieces(text) if isinstance(text, SubwordVocabulary) else ("", {})
        if kind not in KINDS:
            raise ValueError("only vocabularies of kind bpe or unigram have pieces to draw")
        self._text, self.alpha = text, alpha
        known = {text.token(id): id for id in range(EOS + 1, len(text))}
        self._ids = {piece: id for piece, id in known.items() if piece in scores}
        self._scores = {piece: scores[piece] for piece in self._ids}
        self._longest = max(map(len, self._scores), default=1)
        self._merges = kind == "bpe"

    def sample(self, ids: Sequence[int], generator: random.Random) -> list[int]:
        """Ids of the same text; unknown tokens, tags and the words that they are in stay as they are."""
        words: list[list[int]] = []  # a tag is a word of its own
        for id in map(int, ids):
            if not words or id >= len(self._text) or words[-1][0] >= len(self._text) or self._text.starts_word(id):
                words.append([])
            words[-1].append(id)
        sampled: list[int] = []
        for word in words:
            pieces, cut = [self._text.token(id) if id < len(self._text) else "" for id in word], None
            if all(piece in self._ids for piece in pieces):
                text, draw = "".join(pieces), generator.random
                if self._merges:
                    cut = bpe_dropout(text, self._scores, self.alpha, draw)
                else:
                    cut = unigram_sample(text, self._scores, self.alpha, self._longest, draw)
            sampled += word if cut is None else [self._ids[piece] for piece in cut]
        return sampled


def bpe_dropout(word: str, scores: Scores, dropout: float, draw: Callable[[], float]) -> list[str] | None:
    """The pieces of a word of which, at each step, every possible merge is left out with a probability.

    Args:
        word: the word, with the mark of a space where it has one.
        scores: of all pieces; the merge with the greatest score comes first.
        dropout: the probability.
        draw: gives numbers that are even in [0, 1).

    Returns:
        The pieces; None where a character is no piece.
    """
    pieces = list(word)
    if not all(piece in scores for piece in pieces):
        return None
    while True:
        merges = [
            (-scores[pair], at)
            for at, pair in enumerate(map("".join, pairwise(pieces)))
            if pair in scores and (not dropout or draw() >= dropout)
        ]
        if not merges:
            return pieces
        _, at = min(merges)
        pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]


def unigram_sample(
    word: str, scores: Scores, alpha: float, longest: int, draw: Callable[[], float]
) -> list[str] | None:
    """The pieces of a word, drawn from all its segmentations with probabilities proportional to P ** alpha.

    Args:
        word: the word, with the mark of a space where it has one.
        scores: log probabilities of all pieces.
        alpha: the power.
        longest: characters of a piece.
        draw: gives numbers that are even in [0, 1).

    Returns:
        The pieces; None where the word cannot be cut into pieces.
    """
    ends: list[list[tuple[int, float]]] = [[] for _ in range(len(word) + 1)]  # where pieces that end here begin
    forward = [0.0] + [-math.inf] * len(word)  # log sums over all ways to cut the beginning of the word
    for end in range(1, len(word) + 1):
        for start in range(max(0, end - longest), end):
            score = scores.get(word[start:end])
            if score is not None and forward[start] > -math.inf:
                ends[end].append((start, forward[start] + alpha * score))
        if ends[end]:
            most = max(weight for _, weight in ends[end])
            forward[end] = most + math.log(sum(math.exp(weight - most) for _, weight in ends[end]))
    if forward[-1] == -math.inf:
        return None
    pieces: list[str] = []
    end = len(word)
    while end:
        left, start = draw(), ends[end][-1][0]
        for before, weight in ends[end]:
            left -= math.exp(weight - forward[end])
            if left < 0:
                start = before
                break
        pieces.append(word[start:end])
        end = start
    return pieces[::-1]


class PairSampler:
    """Samples both sides of pairs, or one: what is drawn is a function of seed, epoch, pair and side.

    Args:
        sides: a sampler for source and target; None leaves a side as it is.
        seed: of the run.
        longest: tokens of a sentence; one that would get longer stays as it is.
    """

    def __init__(self, sides: tuple[SubwordSampler | None, SubwordSampler | None], seed: int, longest: int) -> None:
        self.sides, self.seed, self.longest = sides, seed, longest

    def sample(self, ids: Sequence[int], side: int, epoch: int, index: int) -> Sequence[int]:
        """The ids of one side (0 the source, 1 the target) of the pair `index`, as this epoch reads them."""
        sampler = self.sides[side]
        if sampler is None:
            return ids
        sampled = sampler.sample(ids, random.Random(f"{self.seed}/{epoch}/{index}/{side}"))
        return sampled if len(sampled) <= max(self.longest, len(ids)) else ids
