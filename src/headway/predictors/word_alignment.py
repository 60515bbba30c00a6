"""Alignments of words, from the attention of any model to its source.

Shapes: K heads, S source tokens and T target tokens, both with the end mark; M source words, N target words.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.core.errors import UserError, option
from headway.core.log import say
from headway.formats.alignments import Links, check_links
from headway.formats.pairs import open_source
from headway.losses.guided_alignment import guided
from headway.metrics import build_metric
from headway.predictors.captured_attention import AttentionName, alignment_layer
from headway.predictors.input_account import InputAccount, accounted
from headway.predictors.output import Output
from headway.predictors.sequence_predictor import SequencePredictor
from headway.processing.processor import Words


@dataclass(frozen=True)
class WordAlignment:
    """The weights (N, M) that target words gave to source words."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: NDArray[np.floating[Any]]

    def links(self) -> list[tuple[int, int]]:
        """(source, target) of every target word with the source word that it looked at most, counted from 0.

        This is how Luong et al. (2015, appendix A) read alignments. The end mark of the source is no word, so that a
        target word that looked at it alone has no link.
        """
        attended = [(row.argmax(), target) for target, row in enumerate(self.weights) if row.any()]
        return [(int(source), target) for source, target in attended]

    def pharaoh(self) -> str:
        """The links as `i-j i-j ...`, in the order of the source."""
        return " ".join(f"{source}-{target}" for source, target in sorted(self.links()))

    def record(self, line: int) -> dict[str, Any]:
        """Words, weights and links as plain values."""
        weights = self.weights.round(6).tolist()
        values = {"line": line, "source_words": self.source, "target_words": self.target, "weights": weights}
        return values | {"alignment": self.pharaoh()}


def merge_words(weights: NDArray[np.floating[Any]], source: Words, target: Words) -> NDArray[np.float64]:
    """Weights (N, M) from those of tokens (T, S).

    A word gets the sum over its tokens and gives the mean over its tokens; end marks are left out.
    """
    merged = np.zeros((len(target.texts), len(source.texts)))
    real = np.ix_(range(len(target.of)), range(len(source.of)))
    np.add.at(merged, (np.array(target.of, int)[:, None], np.array(source.of, int)[None]), weights[real])
    counts = np.bincount(np.array(target.of, int), minlength=len(target.texts))
    return merged / np.maximum(counts, 1)[:, None]


@dataclass(frozen=True)
class Aligner:
    """The attention that alignments are read from: the mean of some heads, by default of all, in one layer.

    Args:
        layer: its name, such as `decoder.1.cross`.
        heads: their numbers, from 1.
    """

    layer: str
    heads: tuple[int, ...] | None = None

    def __call__(self, output: Output, *, split: bool = False) -> WordAlignment:
        """The alignment of an output that has the attention `layer`; an empty line has an empty one.

        Tags before a source are no words.

        Args:
            output: with its attention.
            split: a side of one word is aligned by its tokens, such as characters.
        """
        source, target = output.source_words, output.target_words
        if split:
            source, target = _split(source, output.source_tokens), _split(target, output.tokens)
        if self.layer not in output.attention:
            return WordAlignment((), (), np.zeros((0, 0)))
        weights = output.attention[self.layer]
        heads = range(1, len(weights) + 1) if self.heads is None else self.heads
        if wrong := [head for head in heads if not 1 <= head <= len(weights)]:
            allowed = f"1 to {len(weights)}"
            what = "there is no such head"
            raise UserError(what, where=option("alignment_heads"), received=wrong[0], allowed=allowed)
        mean = weights[[head - 1 for head in heads]].astype(np.float64).mean(axis=0)
        merged = merge_words(mean, source, target)
        return WordAlignment(source.texts[source.tags :], target.texts, merged[:, source.tags :])


def _split(words: Words, tokens: Sequence[str]) -> Words:
    """The tokens of a side in the place of its only word, tags aside."""
    if len(words.texts) - words.tags != 1 or len(words.of) != len(tokens):
        return words
    return Words(tuple(tokens), tuple(range(len(tokens))), words.tags)


def build_aligner(
    predictor: SequencePredictor, layer: int | None = None, heads: Sequence[int] | None = None
) -> Aligner:
    """An aligner for a model. Raises UserError where it has no attention to the source, or no such layer.

    Layers of the decoder and heads count from 1; by default they are those that were taught alignments, else that of
    `alignment_layer`, and all.
    """
    names = cross_layers(predictor)
    if layer is None:
        taught = guided(predictor.recipe.objective.losses)
        if taught is not None and heads is None:
            return Aligner(taught.layer, (taught.head,))
        chosen = str(alignment_layer(names)) if taught is None else taught.layer
    else:
        chosen = str(AttentionName("decoder", layer, "cross"))
        if chosen not in names:
            what, allowed = "no attention to the source there", ", ".join(names)
            raise UserError(what, where=option("alignment_layer"), received=layer, allowed=allowed)
    return Aligner(chosen, None if heads is None else tuple(heads))


def cross_layers(predictor: SequencePredictor) -> list[str]:
    """The names of the model's attention to the source, lowest layer first. Raises UserError where it has none."""
    names = [name for name in predictor.attention_names() if AttentionName.parse(name).kind == "cross"]
    if not names:
        raise UserError("this model has no attention to the source, so nothing to align by", where=option("alignments"))
    return names


def check_gold(
    predictor: SequencePredictor, sources: Sequence[Any], targets: Sequence[str], gold: Sequence[str], where: str
) -> list[Links]:
    """The gold links of pairs, as lines of Pharaoh links. Raises UserError for links beyond the words of a pair."""
    read = predictor.formatter(predictor.Options()).source
    sides = (predictor.source, map(read, sources)), (predictor.target, targets)
    words = [[processor.words(processor.encode(raw).values) for raw in texts] for processor, texts in sides]
    counts = [[len(each.texts) - each.tags for each in side] for side in words]
    return check_links(gold, zip(*counts, strict=True), where)


def choose_aligner(
    predictor: SequencePredictor, layer: int | None, heads: Sequence[int] | None, gold: Path | None
) -> Aligner:
    """The aligner for a layer and heads; without a layer, the one that is best on dev where `gold` is given.

    Of equal layers it is the one that is taken without `gold`, else the first.

    Args:
        predictor: the model.
        layer: the decoder's layer, from 1.
        heads: from 1; all by default.
        gold: alignments of the recipe's dev set, in any format that AER reads.

    Raises:
        UserError: no such layer or head; gold that is not of the dev set.
    """
    if gold is None or layer is not None:
        return build_aligner(predictor, layer, heads)
    rates = error_rates(predictor, gold, heads)
    usual = alignment_layer(list(rates))
    best = min(rates, key=lambda name: (rates[name], name != usual))
    shown = ", ".join(f"{name} {rate:.1f}" for name, rate in rates.items())
    say(f"alignments: AER on dev by layer: {shown}; taking {best}")
    return Aligner(best, None if heads is None else tuple(heads))


def error_rates(predictor: SequencePredictor, gold: Path, heads: Sequence[int] | None = None) -> dict[str, float]:
    """AER of each layer, by name, on the dev set's own targets. Raises UserError as `choose_aligner` does."""
    metric, dev, where = build_metric("aer"), predictor.recipe.data.dev, f"{option('alignment_gold')} {gold}"
    pairs = [] if dev is None else list(open_source(dev, "data.dev", predictor.recipe.data.broken))
    references = metric.read(gold)
    if len(pairs) != len(references):
        raise UserError(
            "gold alignments are of the dev set, a line a pair",
            where=where,
            received=f"{len(references)} alignments for {len(pairs)} pairs",
        )
    names, sources, targets = cross_layers(predictor), [pair.source for pair in pairs], [pair.target for pair in pairs]
    check_gold(predictor, sources, targets, references, where)
    with accounted(InputAccount()):
        forced = predictor.force(sources, targets, capture=tuple(names))
    rates = {}
    for name in names:
        aligner = Aligner(name, None if heads is None else tuple(heads))
        rates[name] = metric.score([aligner(output).pharaoh() for output in forced], [references]).value
    return rates
