"""Corpora that are sampled by weight, in place of each pair once an epoch.

Shapes: N pairs of all corpora together.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from headway.tensors.batch import Indices


class Mixture:
    """The pairs of each epoch, where every corpus has a share of them.

    An epoch has N pairs. A corpus gives its pairs in one random order after the other, and each epoch goes on where the
    one before ended. So all pairs of a corpus are used equally often, however small its share is.

    Args:
        parts: the positions of each corpus's pairs, none of them empty.
        weights: of the corpora, in any unit.
    """

    def __init__(self, parts: Sequence[Indices], weights: Sequence[float]) -> None:
        self.parts = [np.asarray(part, dtype=np.int64) for part in parts]
        exact = [Fraction(weight) for weight in weights]
        self.shares = [weight / sum(exact) for weight in exact]

    def chosen(self, seed: int, epoch: int) -> NDArray[np.int64]:
        """The positions of an epoch's pairs, counted from epoch 0. A pure function of seed and epoch."""
        size = sum(map(len, self.parts))
        drawn = []
        for number, (part, share) in enumerate(zip(self.parts, self.shares, strict=True)):
            first, last = (int(share * size * bound) for bound in (epoch, epoch + 1))
            passes = range(first // len(part), -(-last // len(part)))
            orders = [np.random.default_rng([seed, number, turn]).permutation(part) for turn in passes]
            begin = first - passes.start * len(part)
            drawn += [np.concatenate(orders)[begin : begin + last - first]] if orders else []
        return np.concatenate(drawn)


def split_by_origin(lines: Indices, ends: Sequence[int]) -> list[NDArray[np.int64]]:
    """The positions of the pairs of each of several corpora.

    Args:
        lines: (N,) the line of each pair, counted through all corpora.
        ends: the last line of each corpus.
    """
    origin = np.searchsorted(np.asarray(ends), np.asarray(lines), side="left")
    return [np.flatnonzero(origin == number) for number in range(len(ends))]
