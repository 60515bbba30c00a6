"""Why an engine's outputs differ from those of floating point numbers: each cause alone, and a prediction from margins.

A token changes if rounding moves the gap g between the two best logits past zero. If rounding changes gaps with the
standard deviation e, a line stays the same with the probability prod Phi(g / e) over its tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from headway.export.int8_reference import Partial, Reference, Written
from headway.processing.marian_binary import Floats

Ids = Sequence[Sequence[int]]


class Cause(NamedTuple):
    """The effect of one cause.

    Attributes:
        equal: the share of lines whose output stays that of floats.
        predicted: the same share as predicted from gaps; None for a shortlist.
        deviation: e; None for a shortlist.
    """

    equal: float
    predicted: float | None = None
    deviation: float | None = None


class Causes(NamedTuple):
    """The causes by name, and the gaps that they meet.

    Attributes:
        causes: `weights`, `activations`, `both` and, if there is one, `shortlist`.
        gap: the median of g.
        floats: the outputs of floats.
    """

    causes: Mapping[str, Cause]
    gap: float
    floats: Sequence[Written]


def rounding_causes(engine: Reference, floats: Mapping[str, Floats], sources: Ids) -> Causes:
    """Translate sources with each rounding alone, and with the shortlist alone, and compare the outputs with floats'.

    Args:
        engine: the computation of the engine.
        floats: the matrices before rounding.
        sources: ids, without end marks.
    """
    items, where = engine.items, "the student"
    plain = Partial(items, where, floats=floats)
    expected = plain.translate(sources)
    outputs = [each.ids for each in expected]
    best = {row: np.argpartition(logits, -2)[:, -2:] for row, logits in plain.logits(sources, outputs)}
    gaps = _gaps(plain, sources, outputs, best)
    causes = dict[str, Cause]()
    for name, rounded in (
        ("weights", Partial(items, where)),
        ("activations", Partial(items, where, floats=floats, activations=True)),
        ("both", Reference(items, where)),
    ):
        changes = np.concatenate(_gaps(rounded, sources, outputs, best)) - np.concatenate(gaps)
        deviation = float(np.sqrt((changes**2).mean()))
        lines = [ndtr(np.abs(each) / max(deviation, 1e-12)).prod() for each in gaps]
        causes[name] = Cause(_equal(expected, rounded.translate(sources)), float(np.mean(lines)), deviation)
    if engine.shortlist is not None:
        listed = Partial(items, where, engine.shortlist, shared=engine.shared, floats=floats)
        causes["shortlist"] = Cause(_equal(expected, listed.translate(sources)))
    return Causes(causes, float(np.median(np.abs(np.concatenate(gaps)))), expected)


def _gaps(model: Reference, sources: Ids, outputs: Ids, best: Mapping[int, NDArray[np.int64]]) -> list[Floats]:
    """For each source, the differences (T,) of the logits of the two candidates in `best` (T, 2) of each token."""
    found = {
        row: np.subtract(*np.take_along_axis(logits, best[row], 1).T) for row, logits in model.logits(sources, outputs)
    }
    return [found[row] for row in range(len(sources))]


def _equal(some: Sequence[Written], others: Sequence[Written]) -> float:
    return float(np.mean([one.ids == other.ids for one, other in zip(some, others, strict=True)]))
