"""Sums over a corpus of what a model attends to: each takes the arrays of one sentence and stays as large as it is.

Shapes: K heads, T queries, S keys, L positions, P parts.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.mixers import Span
from headway.runs.inspect.contributions import Contributions

SPAN = 20  # offsets further off than this are counted together

Floats = NDArray[np.floating[Any]]


class RelativePositions:
    """How much weight each head gives to each offset, from a query to a key, averaged over queries.

    Where sentences are short most of any weight is near; so beside it stands what weight would be that is spread evenly
    over what a query may see.

    Attributes:
        weight: (K, 2 SPAN + 3), summed over queries: all that is further to the left, -SPAN to SPAN, further right.
        even: (2 SPAN + 3,), the same of even weights.
        queries: how many there were.
    """

    def __init__(self, heads: int) -> None:
        self.weight, self.even = np.zeros((heads, 2 * SPAN + 3)), np.zeros(2 * SPAN + 3)
        self.queries = 0

    def add(self, weights: Floats) -> None:
        """Count a sentence, (K, T, S) with T = S."""
        length = weights.shape[1]
        offsets = np.arange(length) - np.arange(length)[:, None]
        places = (offsets.clip(-SPAN - 1, SPAN + 1) + SPAN + 1).ravel()
        for head, each in enumerate(weights):
            self.weight[head] += np.bincount(places, each.ravel(), 2 * SPAN + 3)
        self.even += np.bincount(places, even_weights(weights).ravel(), 2 * SPAN + 3)
        self.queries += length

    def shares(self) -> Floats:
        """(K, 2 SPAN + 3): the mean weight of each offset; a head's sum to one."""
        return self.weight / max(1, self.queries)

    def even_shares(self) -> Floats:
        """(2 SPAN + 3,): the same of even weights."""
        return self.even / max(1, self.queries)


def within(shares: Floats, n: int) -> Floats:
    """The share of the weight (..., 2 SPAN + 3) that stays less than n away: what an n-gram of that n can see."""
    inside: Floats = shares[..., SPAN + 2 - n : SPAN + 1 + n].sum(-1)
    return inside


def even_weights(weights: Floats) -> Floats:
    """(T, S): weights that are the same at all keys to which any head gives any weight, as a softmax always does."""
    seen = (weights > 0).any(0)
    even: Floats = seen / np.maximum(seen.sum(1, keepdims=True), 1)
    return even


class Entropies:
    """The entropy in bits of what a query attends to, summed over queries.

    A query that gives a part of its weight to these keys counts with that part as the whole, and one that gives
    nothing does not count.

    Attributes:
        bits: (K,), summed over queries.
        even: the same of even weights over what a query may see, the highest that there can be.
        queries: (K,), how many there were.
    """

    def __init__(self, heads: int) -> None:
        self.bits, self.queries = np.zeros(heads), np.zeros(heads)
        self.even = 0.0

    def add(self, weights: Floats) -> None:
        """Count a sentence, (K, T, S)."""
        totals = weights.sum(2, dtype=np.float64)  # (K, T)
        seen = totals > 0
        shares = weights / np.where(seen, totals, 1)[..., None]
        logarithms = np.log2(shares, out=np.zeros_like(shares), where=shares > 0)
        self.bits -= (shares * logarithms).sum((1, 2))
        self.queries += seen.sum(1)
        self.even += float(np.log2(np.maximum((weights > 0).any(0).sum(1), 1)).sum())

    def mean(self) -> Floats:
        """(K,): the mean over queries."""
        return self.bits / np.maximum(self.queries, 1)

    def even_mean(self) -> float:
        """The mean over queries of the entropy of even weights."""
        return self.even / max(1.0, float(self.queries.max()))


class PartTotals:
    """What the parts of a layer contribute, summed over positions.

    Attributes:
        parts: the P parts.
        norm: (K, P), of shares before the ReLU.
        gradient_input: (K, P), of its absolute value: signs would cancel out over a corpus.
        positions: how many there were.
    """

    def __init__(self, heads: int, parts: Sequence[Span]) -> None:
        self.parts = tuple(parts)
        self.norm, self.gradient_input = np.zeros((heads, len(parts))), np.zeros((heads, len(parts)))
        self.positions = 0

    def add(self, found: Contributions) -> None:
        """Count a sentence."""
        self.norm += found.norm.sum(1, dtype=np.float64)
        self.gradient_input += np.abs(found.gradient_input).sum(1, dtype=np.float64)
        self.positions += len(found.tokens)

    def means(self) -> tuple[Floats, Floats]:
        """(K, P) each, over positions: the norm, and the absolute value of gradient x input."""
        count = max(1, self.positions)
        return self.norm / count, self.gradient_input / count
