"""Corpora that are sampled by weight, in place of each pair once an epoch.

Shapes: N pairs of all corpora together.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from headway.corpora.corpus_report import CorpusReport
from headway.errors import UserError
from headway.formats.corpus_config import GivenCorpus, parts
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


def mixture_of(corpora: GivenCorpus, lines: Indices, report: CorpusReport) -> Mixture | None:
    """How the corpora of `data.train` are sampled, where they have weights.

    Args:
        corpora: as the recipe names them.
        lines: (N,) the line of each pair that is left, counted through all corpora.
        report: of all corpora as one.

    Raises:
        UserError: nothing is left of one.
    """
    given = parts(corpora, "data.train")
    weights = [part.weight for _, part in given if part.weight is not None]
    if len(weights) < 2:
        return None
    positions = split_by_origin(lines, [last for _, last in report.origins])
    for (key, _), part in zip(given, positions, strict=True):
        if not len(part):
            raise UserError("no pair is left of this corpus to be drawn", where=key, received=report.dropped)
    return Mixture(positions, weights)
