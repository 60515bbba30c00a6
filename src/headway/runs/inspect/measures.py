"""Sums over a corpus of what a model attends to: they take the arrays of one view and stay as large as they are.

Shapes: K heads, T queries, S keys, L positions (or layers, of taggers), P spans, N words, J heads over layers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.errors import UserError
from headway.mixers import Span
from headway.predictors.captured_attention import layer_titles
from headway.runs.inspect.contributions import LayerContributions
from headway.runs.inspect.inspect_options import SPAN
from headway.tables import Column, Spread, Table

Floats = NDArray[np.floating[Any]]


class OffsetTotals:
    """The weight that every head gives to every offset from a query to a key, averaged over queries.

    In short sentences most of any weight is near. Therefore the weight that is spread evenly over all that a query may
    see stands beside it.

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
        bins = (offsets.clip(-SPAN - 1, SPAN + 1) + SPAN + 1).ravel()
        for head, of_head in enumerate(weights):
            self.weight[head] += np.bincount(bins, of_head.ravel(), 2 * SPAN + 3)
        self.even += np.bincount(bins, even_weights(weights).ravel(), 2 * SPAN + 3)
        self.queries += length

    def shares(self) -> Floats:
        """(K, 2 SPAN + 3): the mean weight of every offset; those of a head sum to one."""
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


class EntropyTotals:
    """The entropy in bits of the weights of queries, summed over queries.

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


class ContributionTotals:
    """The measures of a layer's contributions, summed over positions.

    Attributes:
        spans: the P spans.
        norm: (K, P), of contributions before the ReLU.
        gradient_input: (K, P), of its absolute value: signs would cancel out over a corpus.
        positions: how many there were.
    """

    def __init__(self, heads: int, spans: Sequence[Span]) -> None:
        self.spans = tuple(spans)
        self.norm, self.gradient_input = np.zeros((heads, len(spans))), np.zeros((heads, len(spans)))
        self.positions = 0

    def add(self, layer: LayerContributions) -> None:
        """Count a sentence."""
        self.norm += layer.norm.sum(1, dtype=np.float64)
        self.gradient_input += np.abs(layer.gradient_input).sum(1, dtype=np.float64)
        self.positions += len(layer.tokens)

    def means(self) -> tuple[Floats, Floats]:
        """The norm and the absolute value of gradient x input, both (K, P), averaged over positions."""
        count = max(1, self.positions)
        return self.norm / count, self.gradient_input / count


@dataclass(frozen=True)
class LayerWeights:
    """The attention to layers over all words of a test set.

    Attributes:
        mean: (J, L).
        deviation: (J, L), over words.
        words: how many.
    """

    mean: Floats
    deviation: Floats
    words: int

    def to_json(self) -> dict[str, Any]:
        """The weights, and their mean over heads, as values that JSON can hold."""
        return {
            "words": self.words,
            "mean": self.mean.mean(0).tolist(),
            "mean_by_head": self.mean.tolist(),
            "deviation_by_head": self.deviation.tolist(),
        }

    def table(self) -> Table:
        """A row a head and a column a layer: mean ± standard deviation over words, then the mean of all heads."""
        heads, layers = self.mean.shape
        rows: list[list[Any]] = [
            [str(head + 1), *map(Spread, self.mean[head].tolist(), self.deviation[head].tolist())]
            for head in range(heads)
        ]
        rows.append(["all", *self.mean.mean(0).tolist()])
        return Table([Column("head"), *(Column(title, format=".4f") for title in layer_titles(layers))], rows)


@dataclass(frozen=True)
class Evenness:
    """The standard deviation of self-attention weights around a word's own mean, averaged over words.

    Smaller is more even. `last` is of the last layer, `layers` are of all of them, and `mixed` is of the layers as they
    are weighted, None for a model that does not attend to layers.
    """

    last: float
    mixed: float | None
    layers: list[float]


def of_words(self_attention: Floats, first: Sequence[int]) -> Floats:
    """(L, N, P): the weights of the first tokens of words in all layers, heads averaged, of (L, K, P, P)."""
    mean: Floats = self_attention.mean(1)[:, list(first)]
    return mean


def mix(by_layer: Floats, layer_weights: Floats) -> Floats:
    """(N, P): the weights of words in all layers (L, N, P), mixed by their layer weights (N, J, L), averaged over J."""
    mixed: Floats = np.einsum("nl,lnp->np", layer_weights.mean(1), by_layer)
    return mixed


def word_deviations(by_layer: Floats, layer_weights: Floats | None) -> tuple[Floats, Floats | None]:
    """The standard deviation of the weights of words around their means: in all layers, (L, N), and mixed, (N,).

    Args:
        by_layer: (L, N, P).
        layer_weights: (N, J, L), where the model attends to layers; without them there is no mix.
    """
    wide = by_layer.astype(np.float64)
    return wide.std(2), None if layer_weights is None else mix(wide, layer_weights.astype(np.float64)).std(1)


class LayerTotals:
    """Sums over words, which give the weights of layers and the evenness of self-attention at any time."""

    def __init__(self) -> None:
        self.words = 0
        self.deviations: Floats = np.zeros(0)  # (L,), summed over words
        self.mixed = 0.0
        # Weights as they lie beside those of the first word: what is left of their squares is of their own size.
        self.origin: Floats | None = None  # (J, L)
        self.sums: Floats = np.zeros(0)
        self.squares: Floats = np.zeros(0)

    def add(self, self_attention: Floats, first: Sequence[int], layer_weights: Floats | None) -> None:
        """Count the words of a window, whose first tokens are at `first`.

        Args:
            self_attention: (L, K, P, P), lowest layer first.
            first: (N,).
            layer_weights: (N, J, L), where the model attends to layers.
        """
        if not len(first):
            return
        deviations, mixed = word_deviations(of_words(self_attention, first), layer_weights)
        self.words += len(first)
        self.deviations = self.deviations + deviations.sum(1) if len(self.deviations) else deviations.sum(1)
        if layer_weights is None or mixed is None:
            return
        self.mixed += float(mixed.sum())
        weights = layer_weights.astype(np.float64)
        if self.origin is None:
            self.origin = weights[0]
            self.sums = self.squares = np.zeros_like(self.origin)
        self.sums = self.sums + (weights - self.origin).sum(0)
        self.squares = self.squares + np.square(weights - self.origin).sum(0)

    def weights(self) -> LayerWeights | None:
        """The weights of the layers; None for a model that does not attend to layers, or without words."""
        if self.origin is None:
            return None
        mean = self.sums / self.words
        variance = np.maximum(self.squares / self.words - np.square(mean), 0)
        return LayerWeights(self.origin + mean, np.sqrt(variance), self.words)

    def evenness(self) -> Evenness:
        """The evenness of self-attention. Raises UserError where there were no words."""
        if not self.words:
            raise UserError("there are no words to look at", where="headway inspect")
        layers = (self.deviations / self.words).tolist()
        return Evenness(layers[-1], None if self.origin is None else self.mixed / self.words, layers)
