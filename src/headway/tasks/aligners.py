"""The attention of a model that aligns words best, by gold alignments of its dev set."""

from collections.abc import Sequence
from pathlib import Path

from headway.errors import UserError, option
from headway.formats.pairs import open_source
from headway.log import say
from headway.metrics import build_metric
from headway.predictors.captured_attention import alignment_layer
from headway.predictors.input_account import InputAccount, accounted
from headway.predictors.sequence_predictor import SequencePredictor
from headway.predictors.word_alignment import Aligner, build_aligner, check_gold, cross_layers


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
    if dev is None:
        raise UserError("this run has no dev set that the gold alignments could be of", where=option("alignment_gold"))
    pairs, references = list(open_source(dev, "data.dev", predictor.recipe.data.broken)), metric.read(gold)
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
        rates[name] = metric.score([aligner(prediction).pharaoh() for prediction in forced], [references]).value
    return rates
