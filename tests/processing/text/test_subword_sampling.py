"""Subword sampling against slow enumeration, and against SentencePiece where nothing is left to chance."""

import itertools
import math
import random
from collections import Counter

import pytest

from headway.processing.text.subword_sampling import PairSampler, SubwordSampler, bpe_dropout, unigram_sample
from headway.processing.text.subwords import SubwordVocabulary
from headway.processing.text.vocabulary import TaggedVocabulary, TokensConfig, WordVocabulary
from headway.tensors.batch import UNKNOWN

LINES = ["the cat sat on the mat", "a dog sat on a log", "the dogs chatted on that catalogue", "cats and dogs"] * 4
TEXTS = [*LINES[:4], "chat catlog", "the  dog the", "thematic catalogues"]


def vocabulary(kind: str) -> SubwordVocabulary:
    config = TokensConfig(kind=kind, size=45 if kind == "bpe" else 26)
    return SubwordVocabulary.train(config, LINES, "vocabulary", "text")


def segmentations(word: str) -> list[list[str]]:
    """All ways to cut a word."""
    cuts = itertools.product([False, True], repeat=len(word) - 1)
    ways = []
    for chosen in cuts:
        bounds = [0, *(at for at, cut in enumerate(chosen, start=1) if cut), len(word)]
        ways.append([word[start:end] for start, end in itertools.pairwise(bounds)])
    return ways


def test_without_dropout_bpe_is_that_of_sentencepiece():
    bpe = vocabulary("bpe")
    sampler = SubwordSampler(bpe, 0.0)
    for text in TEXTS:
        assert sampler.sample(bpe.encode(text), random.Random(1)) == bpe.encode(text)


def test_unigram_sampling_with_a_great_power_is_the_best_segmentation():
    unigram = vocabulary("unigram")
    sampler = SubwordSampler(unigram, 200.0)
    for text in TEXTS:
        assert sampler.sample(unigram.encode(text), random.Random(1)) == unigram.encode(text)


@pytest.mark.parametrize("alpha", [0.1, 1.0])
def test_unigram_frequencies_are_those_of_enumeration(alpha):
    scores = {"a": -1.0, "b": -1.5, "ab": -1.8, "ba": -2.0, "aba": -2.2}
    word, known = "abab", [way for way in segmentations("abab") if all(piece in scores for piece in way)]
    ways = {tuple(way): sum(scores[piece] for piece in way) for way in known}
    total = sum(math.exp(alpha * score) for score in ways.values())
    draw, count = random.Random(7).random, 20_000
    drawn = Counter(tuple(unigram_sample(word, scores, alpha, 16, draw) or ()) for _ in range(count))
    assert set(drawn) <= set(ways)
    assert len(ways) == 6
    for way, score in ways.items():
        expected = math.exp(alpha * score) / total
        assert abs(drawn[way] / count - expected) < 5 * math.sqrt(expected / count) + 1e-4


def test_dropout_is_of_each_merge_at_each_step():
    scores = {"a": -9.0, "b": -9.0, "ab": 0.0, "abb": -1.0}
    draw, count = random.Random(3).random, 20_000
    drawn = Counter(tuple(bpe_dropout("abb", scores, 0.25, draw) or ()) for _ in range(count))
    # The first step has one merge, ab; the second one, abb.
    expected = {("a", "b", "b"): 0.25, ("ab", "b"): 0.75 * 0.25, ("abb",): 0.75 * 0.75}
    for way, probability in expected.items():
        assert abs(drawn[way] / count - probability) < 0.02
    assert bpe_dropout("abb", scores, 1.0, draw) == ["a", "b", "b"]
    assert bpe_dropout("abc", scores, 0.5, draw) is None


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_the_text_stays_and_unknown_words_and_tags_as_they_are(kind):
    tagged = TaggedVocabulary(vocabulary(kind), ["<x>"])
    sampler, text = SubwordSampler(tagged, 0.5), "<x> the cat Ω\u03c8s catalogue dogs"
    ids = tagged.encode(text)
    several = {tuple(sampler.sample(ids, random.Random(seed))) for seed in range(20)}
    assert len(several) > 5
    for sampled in several:
        assert tagged.decode(sampled) == tagged.decode(ids)
        assert sampled[0] == len(tagged) - 1
        assert sampled.count(UNKNOWN) == ids.count(UNKNOWN) > 0


def test_what_is_drawn_is_a_function_of_seed_epoch_pair_and_side():
    bpe = vocabulary("bpe")
    ids, one = bpe.encode("the dogs chatted on that catalogue"), SubwordSampler(bpe, 0.5)
    sampler = PairSampler((one, one), 4, 100)
    drawn = sampler.sample(ids, 0, 2, 7)
    assert sampler.sample(ids, 0, 2, 7) == drawn == PairSampler((one, None), 4, 100).sample(ids, 0, 2, 7)
    others = [(0, 3, 7), (0, 2, 8), (1, 2, 7)]
    assert any(sampler.sample(ids, *other) != drawn for other in others)
    assert PairSampler((one, one), 5, 100).sample(ids, 0, 2, 7) != drawn
    assert PairSampler((None, one), 4, 100).sample(ids, 0, 2, 7) is ids
    assert PairSampler((one, one), 4, 1).sample(ids, 0, 2, 7) in (ids, *([drawn] if len(drawn) <= len(ids) else []))


def test_whole_words_have_no_pieces():
    with pytest.raises(ValueError, match="only vocabularies of kind bpe or unigram"):
        SubwordSampler(WordVocabulary(["a"]), 0.1)
