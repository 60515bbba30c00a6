"""One stream of what a model reads: all reports are made from it.

A corpus is read a few examples at a time, and nothing of them is kept, so that a report needs as much memory for a
million sentences as for a hundred.

Shapes: K heads, T rows (queries), S columns (keys), J heads over layers, L layers, N words, P tokens.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.batched import batched
from headway.errors import UserError
from headway.predictors.captured_attention import ALL, AttentionWeights
from headway.predictors.input_account import InputAccount, accounted
from headway.predictors.label_predictor import LabelPredictor
from headway.predictors.output import Example, Output
from headway.predictors.predict_options import Capture
from headway.predictors.sequence_predictor import SequencePredictor
from headway.runs.inspect.contributions import LayerContributions, contributions

TOGETHER = 32  # examples whose attention is in memory at once

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class ReadOptions:
    """Choices of reading a corpus."""

    force: bool = True  # give the model the targets that are known, in the place of its own outputs
    hypotheses: bool = True  # decode, too, where targets are given
    nbest: int = 1  # outputs of an example that the model decodes
    capture: Capture = ALL  # patterns of the names of the attention that is captured
    contributions: bool = False  # measure what each offset adds in layers without weights


@dataclass(frozen=True)
class Captured:
    """An example as a model read it; one that is empty, or too long for the model, has no views.

    Attributes:
        example: the raw texts.
        views: the passes of the model.
        prediction: the output that the attention is behind: the model's own, or the given target with its score.
        hypothesis: the model's own output, where it decoded.
        contributions: the measures of layers that sum up contributions, by the name that their attention would have.
    """

    example: Example
    views: tuple[AttentionWeights, ...] = ()
    prediction: Output | None = None
    hypothesis: str | None = None
    contributions: Mapping[str, LayerContributions] = field(default_factory=dict)


@singledispatch
def read(predictor: Any, examples: Iterable[Example], options: ReadOptions) -> Iterator[Captured]:
    """Read examples with one model, in their order and every one of them, a few at a time.

    Raises:
        UserError: a predictor that nothing is known of; whatever it raises itself.
    """
    raise UserError("nothing is known of how runs of this task read", where="headway inspect")


@read.register
def _read_sequences(
    predictor: SequencePredictor, examples: Iterable[Example], options: ReadOptions
) -> Iterator[Captured]:
    measured, account = options.contributions, InputAccount()
    for chunk in batched(examples, TOGETHER):
        shown = [example for example in chunk if example.source.strip()]
        if options.force:
            shown = [
                example for example in shown
                if example.target is None or predictor.can_read(example.source, example.target)
            ]  # fmt: skip
        with accounted(account):
            predictions = _predictions(predictor, shown, options)
        measures = _contributions(predictor, [prediction for prediction, _ in predictions]) if measured else {}
        # A model without such layers has none in its first sentences, and is not asked again.
        measured = measured and (any(measures.values()) or not measures)
        read_examples = {}
        for example, (prediction, text) in zip(shown, predictions, strict=True):
            views, measure = (prediction.attention,), measures.get(id(prediction), {})
            read_examples[id(example)] = Captured(example, views, prediction, text, measure)
        yield from (read_examples.get(id(example), Captured(example)) for example in chunk)
    account.tell()


def _predictions(
    predictor: SequencePredictor, examples: Sequence[Example], options: ReadOptions
) -> list[tuple[Output, str | None]]:
    """The prediction whose attention is captured, and the text that the model decoded, of every example."""
    beam = max(predictor.recipe.decoding.beam, options.nbest)
    search: dict[str, Any] = {"beam": beam, "nbest": options.nbest, "truncate": True}
    forced = [example for example in examples if options.force and example.target is not None]
    free = [example for example in examples if not (options.force and example.target is not None)]
    decoded = predictor.predict([example.source for example in free], capture=options.capture, **search)
    found: dict[int, tuple[Output, str | None]] = {
        id(example): (prediction, prediction.text) for example, prediction in zip(free, decoded, strict=True)
    }
    if forced:
        sources = [example.source for example in forced]
        given = predictor.force(sources, [example.target or "" for example in forced], capture=options.capture)
        texts: list[str | None] = [None] * len(forced)
        if options.hypotheses:
            with accounted(InputAccount()):  # of what is counted above
                texts = [prediction.text for prediction in predictor.predict(sources, **search)]
        found |= zip(map(id, forced), zip(given, texts, strict=True), strict=True)
    return [found[id(example)] for example in examples]


def _contributions(
    predictor: SequencePredictor, predictions: Sequence[Output]
) -> dict[int, dict[str, LayerContributions]]:
    """The measures of predictions by their identity; lines that were cut, and empty ones, have none."""
    whole = [
        prediction
        for prediction in predictions
        if not prediction.is_empty and predictor.can_read(prediction.source, prediction.written)
    ]
    sources, targets = [prediction.source for prediction in whole], [prediction.written for prediction in whole]
    measures = contributions(predictor, sources, targets)
    return {id(prediction): layers for prediction, layers in zip(whole, measures, strict=True)}


@read.register
def _read_words(predictor: LabelPredictor, examples: Iterable[Example], options: ReadOptions) -> Iterator[Captured]:
    for example in examples:
        words = example.words or tuple(example.source.split())
        if not words:
            yield Captured(example)
            continue
        labelled = predictor.predict([words])[0] if options.hypotheses or not options.force else None
        text = None if labelled is None else " ".join(labelled.labels)
        yield Captured(example, tuple(predictor.capture(words)), labelled, text)
