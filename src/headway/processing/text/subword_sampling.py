"""Subword regularisation: in each epoch, the words of a sentence are segmented randomly.

With byte-pair encoding, merges are dropped with a probability (BPE-dropout, Provilkov et al. 2020, algorithm 1). With a
unigram model, one of all segmentations of a word is drawn, with probabilities to the power of alpha (Kudo 2018,
equation 8, over all segmentations).

SentencePiece has one random generator per thread, so a resumed run would draw other pieces. Here the sample is a
function of seed, epoch, sentence and side.
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
    """Samples the segmentation of encoded sentences of one vocabulary.

    Args:
        vocabulary: a SentencePiece vocabulary, with or without tags.
        alpha: the dropout probability of merges, or the exponent of the probabilities.

    Raises:
        ValueError: the vocabulary is of another kind.
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
        """Random ids of the same text. Tags and words with unknown tokens stay unchanged."""
        words: list[list[int]] = []  # a tag is a separate word
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
    """The pieces of a word by BPE-dropout: at each step, every possible merge is dropped with a probability.

    Args:
        word: the word, with the mark of a space if it has one.
        scores: the scores of all pieces; the merge with the highest score is applied first.
        dropout: the probability.
        draw: returns random numbers, uniform in [0, 1).

    Returns:
        The pieces, or None if a character is not a piece.
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
        word: the word, with the mark of a space if it has one.
        scores: the log probabilities of all pieces.
        alpha: the exponent.
        longest: the maximum number of characters of a piece.
        draw: returns random numbers, uniform in [0, 1).

    Returns:
        The pieces, or None if the word cannot be segmented.
    """
    ends: list[list[tuple[int, float]]] = [[] for _ in range(len(word) + 1)]  # by end: starts of pieces, scores
    forward = [0.0] + [-math.inf] * len(word)  # log sums over all segmentations of the prefix
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
    """Samples the segmentation of one or both sides of pairs, as a function of seed, epoch, pair and side.

    Args:
        sides: the samplers of source and target; None leaves a side unchanged.
        seed: the seed of the run.
        longest: the maximum number of tokens; a sentence whose sample would be longer stays unchanged.
    """

    def __init__(self, sides: tuple[SubwordSampler | None, SubwordSampler | None], seed: int, longest: int) -> None:
        self.sides, self.seed, self.longest = sides, seed, longest

    def sample(self, ids: Sequence[int], side: int, epoch: int, index: int) -> Sequence[int]:
        """The ids of one side (0 the source, 1 the target) of the pair with index `index`, sampled for an epoch."""
        sampler = self.sides[side]
        if sampler is None:
            return ids
        sampled = sampler.sample(ids, random.Random(f"{self.seed}/{epoch}/{index}/{side}"))
        return sampled if len(sampled) <= max(self.longest, len(ids)) else ids
