"""Word alignments from the cross-attention of a model.

Shapes: K heads; S source and T target tokens, both with the end-of-sentence token; M source and N target words.
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
    """The attention weights (N, M) of target words to source words."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: NDArray[np.floating[Any]]

    def links(self) -> list[tuple[int, int]]:
        """Pairs (source, target) of each target word and the source word with the most attention, counted from 0.

        Luong et al. (2015, appendix A) extract alignments this way. The end-of-sentence token is not a word, so a
        target word that attends to nothing else has no link.
        """
        attended = [(row.argmax(), target) for target, row in enumerate(self.weights) if row.any()]
        return [(int(source), target) for source, target in attended]

    def pharaoh(self) -> str:
        """The links as `i-j i-j ...`, in the order of the source."""
        return " ".join(f"{source}-{target}" for source, target in sorted(self.links()))

    def record(self, line: int) -> dict[str, Any]:
        """Words, weights and links as JSON values."""
        weights = self.weights.round(6).tolist()
        values = {"line": line, "source_words": self.source, "target_words": self.target, "weights": weights}
        return values | {"alignment": self.pharaoh()}


def merge_words(weights: NDArray[np.floating[Any]], source: Words, target: Words) -> NDArray[np.float64]:
    """Merge the weights of tokens (T, S) into weights of words (N, M), without the end-of-sentence tokens.

    Weights are summed over the tokens of a source word and averaged over the tokens of a target word.
    """
    merged = np.zeros((len(target.texts), len(source.texts)))
    real = np.ix_(range(len(target.of)), range(len(source.of)))
    np.add.at(merged, (np.array(target.of, int)[:, None], np.array(source.of, int)[None]), weights[real])
    counts = np.bincount(np.array(target.of, int), minlength=len(target.texts))
    return merged / np.maximum(counts, 1)[:, None]


@dataclass(frozen=True)
class Aligner:
    """Extracts word alignments from the cross-attention of one layer, averaged over the chosen heads (all by default).

    Args:
        layer: the name of the attention, such as `decoder.1.cross`.
        heads: the numbers of the heads, from 1.
    """

    layer: str
    heads: tuple[int, ...] | None = None

    def __call__(self, output: Output, *, split: bool = False) -> WordAlignment:
        """The alignment of an output. It is empty if the output has no attention of this layer, as for an empty line.

        Tags at the beginning of a source are not words.

        Args:
            output: an output with captured attention.
            split: whether a side that is a single word is aligned by its tokens, such as characters.
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
    """Replace the only word of a side by its tokens. Tags are kept."""
    if len(words.texts) - words.tags != 1 or len(words.of) != len(tokens):
        return words
    return Words(tuple(tokens), tuple(range(len(tokens))), words.tags)


def build_aligner(
    predictor: SequencePredictor, layer: int | None = None, heads: Sequence[int] | None = None
) -> Aligner:
    """Build the aligner of a model. Raises UserError if the model has no cross-attention, or not in this layer.

    Layers of the decoder and heads count from 1. By default the layer and the head trained with guided alignment are
    used, or else all heads of the layer that `alignment_layer` chooses.
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
    """The names of the model's cross-attention, lowest layer first. Raises UserError if there is none."""
    names = [name for name in predictor.attention_names() if AttentionName.parse(name).kind == "cross"]
    if not names:
        raise UserError("this model has no attention to the source, so nothing to align by", where=option("alignments"))
    return names


def check_gold(
    predictor: SequencePredictor, sources: Sequence[Any], targets: Sequence[str], gold: Sequence[str], where: str
) -> list[Links]:
    """Parse gold alignments, lines of Pharaoh links. Raises UserError for links beyond the words of a pair."""
    read = predictor.formatter(predictor.Options()).source
    sides = (predictor.source, map(read, sources)), (predictor.target, targets)
    words = [[processor.words(processor.encode(raw).values) for raw in texts] for processor, texts in sides]
    counts = [[len(each.texts) - each.tags for each in side] for side in words]
    return check_links(gold, zip(*counts, strict=True), where)


def choose_aligner(
    predictor: SequencePredictor, layer: int | None, heads: Sequence[int] | None, gold: Path | None
) -> Aligner:
    """Build the aligner for a layer and heads. If only `gold` is set, the layer with the lowest AER on dev is used.

    Ties are decided for the default layer, or else for the lowest.

    Args:
        predictor: the model.
        layer: the layer of the decoder, from 1.
        heads: the heads, from 1; all by default.
        gold: gold alignments of the recipe's dev set, in any format that AER reads.

    Raises:
        UserError: the layer or head does not exist, or the gold alignments do not fit dev.
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
    """The AER of each layer on the targets of the dev set, by name. Raises UserError as `choose_aligner` does."""
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
    aligners = [Aligner(name, None if heads is None else tuple(heads)) for name in names]
    with accounted(InputAccount()):
        forced = predictor.stream_forced(sources, targets, capture=tuple(names))
        links = [[aligner(output).pharaoh() for aligner in aligners] for output in forced]
    return {
        name: metric.score(found, [references]).value
        for name, found in zip(names, map(list, zip(*links, strict=True)), strict=True)
    }
