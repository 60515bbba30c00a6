"""Sums over a corpus equal slow loops over all of it, and do not grow with it."""

import math
import pickle

import numpy as np
import pytest

from headway.mixers import Span
from headway.runs.inspect.analyses import ContributionTotals, EntropyTotals, OffsetTotals, within
from headway.runs.inspect.capture import LayerContributions
from headway.runs.inspect.inspect_options import SPAN
from headway.runs.inspect.layers import LayerTotals

LENGTHS = (3, 1, 7, 26)


def corpus(causal: bool, seed: int = 1) -> list[np.ndarray]:
    """Self-attention (2, L, L) of sentences, some of it on nothing but the query itself."""
    random, found = np.random.default_rng(seed), []
    for length in LENGTHS:
        weights = random.random((2, length, length)) ** 3
        if causal:
            weights = np.tril(weights)
        weights /= weights.sum(2, keepdims=True)
        weights[1, 0] = np.eye(length)[0]
        found.append(weights.astype(np.float32))
    return found


@pytest.mark.parametrize("causal", [False, True])
def test_relative_positions_equal_loops(causal):
    totals, sentences = OffsetTotals(2), corpus(causal)
    for weights in sentences:
        totals.add(weights)
    queries = sum(LENGTHS)
    for head in range(2):
        slow, even = {}, {}
        for weights in sentences:
            length = weights.shape[1]
            for t in range(length):
                for s in range(t + 1 if causal else length):
                    offset = max(-SPAN - 1, min(SPAN + 1, s - t))
                    slow[offset] = slow.get(offset, 0) + float(weights[head, t, s]) / queries
                    even[offset] = even.get(offset, 0) + 1 / (t + 1 if causal else length) / queries
        for offset in range(-SPAN - 1, SPAN + 2):
            assert totals.shares()[head, offset + SPAN + 1] == pytest.approx(slow.get(offset, 0), abs=1e-7)
            assert totals.even_shares()[offset + SPAN + 1] == pytest.approx(even.get(offset, 0), abs=1e-7)
        for n in (1, 2, 5, SPAN + 1):
            inside = sum(share for offset, share in slow.items() if abs(offset) < n)
            assert within(totals.shares(), n)[head] == pytest.approx(inside, abs=1e-6)
    assert totals.shares().sum(1) == pytest.approx(1, abs=1e-6)
    assert slow[-SPAN - 1] > 0  # some of it is further off than is counted one by one


def test_entropies_equal_loops():
    totals, sentences = EntropyTotals(2), corpus(causal=True)
    # Rows that give a part of their weight, or nothing, to these keys, as a decoder-only model's do to the source.
    sentences.append(np.array([[[0.1, 0.3], [0.0, 0.0]], [[0.0, 0.5], [0.2, 0.2]]], dtype=np.float32))
    for weights in sentences:
        totals.add(weights)
    for head in range(2):
        bits = []
        for weights in sentences:
            for row in weights[head].astype(float):
                if row.sum() > 0:
                    bits.append(sum(-p / row.sum() * math.log2(p / row.sum()) for p in row if p > 0))
        assert totals.mean()[head] == pytest.approx(sum(bits) / len(bits), abs=1e-6)
    full = EntropyTotals(3)
    full.add(np.full((3, 5, 8), 1 / 8))
    assert full.mean() == pytest.approx(3)
    assert full.even_mean() == pytest.approx(3)


def contribution(length: int, seed: int) -> LayerContributions:
    random, shape = np.random.default_rng(seed), (2, length, 3)
    parts = (Span.of(-1), Span.of(0), Span.of(1))
    return LayerContributions(["x"] * length, parts, random.random(shape), random.standard_normal(shape))


def test_parts_equal_loops():
    found = [contribution(length, length) for length in LENGTHS]
    totals = ContributionTotals(2, found[0].spans)
    for each in found:
        totals.add(each)
    norm, gradient = totals.means()
    for head in range(2):
        for place in range(3):
            rows = [(each, t) for each in found for t in range(len(each.tokens))]
            slow = sum(float(each.norm[head, t, place]) for each, t in rows) / len(rows)
            assert norm[head, place] == pytest.approx(slow)
            slow = sum(abs(float(each.gradient_input[head, t, place])) for each, t in rows) / len(rows)
            assert gradient[head, place] == pytest.approx(slow)


def test_layers_equal_all_words_at_once():
    random, totals = np.random.default_rng(1), LayerTotals()
    weights, rows = [], []
    for pieces, first in ((6, [1, 2, 4]), (3, [1]), (2, []), (9, [1, 3, 4, 7])):
        attention = random.dirichlet(np.ones(pieces), (2, 4, pieces)).astype(np.float32)
        of_layers = (0.5 + 1e-4 * random.random((len(first), 3, 2))).astype(np.float32)
        totals.add(attention, first, of_layers)
        weights += list(of_layers.astype(np.float64))
        for word, place in enumerate(first):
            mean = attention[:, :, place].astype(np.float64).mean(1)
            shares = of_layers[word].astype(np.float64).mean(0)
            rows.append([*(np.std(mean[layer]) for layer in range(2)), np.std(shares @ mean)])
    found, evenness = totals.weights(), totals.evenness()
    np.testing.assert_allclose(found.mean, np.mean(weights, 0), rtol=1e-12)
    np.testing.assert_allclose(found.deviation, np.std(weights, 0), rtol=1e-9)
    first, last, mixed = np.mean(rows, 0)
    assert (evenness.layers, evenness.last, evenness.mixed) == (
        [pytest.approx(first), pytest.approx(last)], pytest.approx(last), pytest.approx(mixed)
    )  # fmt: skip
    assert found.words == 8


def test_sums_are_as_large_after_many_sentences_as_after_one():
    sizes = {}
    for count in (1, 50):
        relative, entropies, layers = OffsetTotals(2), EntropyTotals(2), LayerTotals()
        parts = ContributionTotals(2, [Span.of(0)] * 3)
        for number in range(count):
            weights = corpus(causal=False)[2]
            relative.add(weights)
            entropies.add(weights)
            parts.add(contribution(5, number))
            layers.add(weights[None], [0, 1], np.full((2, 1, 1), 1.0))
        sizes[count] = [len(pickle.dumps(vars(each))) for each in (relative, entropies, parts, layers)]
    for one, many in zip(sizes[1], sizes[50], strict=True):
        assert many <= one + 8  # a count takes a byte or two more
