"""Alignments of words, from the attention of any model to its source.

Shapes: K heads, S source tokens and T target tokens, each with the end mark; M source words, N target words.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.errors import UserError, option
from headway.predictors.prediction import Prediction
from headway.predictors.sequence_predictor import SequencePredictor
from headway.processing.processor import Words


@dataclass(frozen=True)
class WordAlignment:
    """The source words that each target word attended to: weights (N, M)."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: NDArray[np.floating[Any]]

    def links(self) -> list[tuple[int, int]]:
        """(source, target) for each target word with the source word that it attended to most, numbered from 0.

        This is how Luong et al. (2015, appendix A) read alignments. The end mark of the source is no word.
        """
        if not len(self.source):
            return []
        return [(int(source), target) for target, source in enumerate(self.weights.argmax(axis=1))]

    def pharaoh(self) -> str:
        """The links as `i-j i-j ...`, in the order of the source."""
        return " ".join(f"{source}-{target}" for source, target in sorted(self.links()))

    def record(self, line: int) -> dict[str, Any]:
        """Words, weights and links as plain values."""
        weights = self.weights.round(6).tolist()
        values = {"line": line, "source_words": self.source, "target_words": self.target, "weights": weights}
        return values | {"alignment": self.pharaoh()}


def merge_words(weights: NDArray[np.floating[Any]], source: Words, target: Words) -> NDArray[np.float64]:
    """Weights (N, M) from those of pieces (T, S).

    What a word gets is the sum over its pieces, what a word gives the mean over its pieces; end marks are left out.
    """
    merged = np.zeros((len(target.texts), len(source.texts)))
    cells = np.ix_(range(len(target.of)), range(len(source.of)))
    np.add.at(merged, (np.array(target.of, int)[:, None], np.array(source.of, int)[None]), weights[cells])
    pieces = np.bincount(np.array(target.of, int), minlength=len(target.texts))
    return merged / np.maximum(pieces, 1)[:, None]


@dataclass(frozen=True)
class Aligner:
    """The attention that alignments are read from: the mean of some heads, by default of all, in one layer.

    Args:
        layer: its name, such as `decoder.0.cross`.
        heads: their indices, from 0.
    """

    layer: str
    heads: tuple[int, ...] | None = None

    def __call__(self, prediction: Prediction) -> WordAlignment:
        """The alignment of a prediction that was made with the attention `layer`; an empty line has an empty one."""
        source, target = prediction.source_words, prediction.words
        if self.layer not in prediction.attention:
            return WordAlignment((), (), np.zeros((0, 0)))
        weights = prediction.attention[self.layer]
        heads = range(len(weights)) if self.heads is None else self.heads
        if max(heads) >= len(weights):
            raise UserError(
                "there is no such head",
                where=option("alignment_heads"),
                received=max(heads),
                allowed=f"0 to {len(weights) - 1}",
            )
        mean = weights[list(heads)].astype(np.float64).mean(axis=0)
        return WordAlignment(source.texts, target.texts, merge_words(mean, source, target))


def build_aligner(
    predictor: SequencePredictor, layer: int | None = None, heads: Sequence[int] | None = None
) -> Aligner:
    """An aligner for a model.

    Args:
        predictor: the model.
        layer: the decoder's layer, from 0. By default the last but one of those that attend to the source, in which
            alignments of Transformers are best (Garg et al. 2019, table 2), or the only one.
        heads: from 0; all by default.

    Raises:
        UserError: a model without attention to the source, or without such a layer.
    """
    names = cross_layers(predictor)
    if layer is None:
        chosen = names[max(0, len(names) - 2)]
    else:
        chosen = f"decoder.{layer}.cross"
        if chosen not in names:
            raise UserError(
                "no attention to the source there",
                where=option("alignment_layer"),
                received=layer,
                allowed=", ".join(names),
            )
    return Aligner(chosen, None if heads is None else tuple(heads))


def cross_layers(predictor: SequencePredictor) -> list[str]:
    """The names of the model's attention to the source, lowest layer first. Raises UserError where it has none."""
    names = [name for name in predictor.attention_names() if name.endswith(".cross")]
    if not names:
        raise UserError("this model has no attention to the source, so nothing to align by", where=option("alignments"))
    return names
