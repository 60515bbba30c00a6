"""A stream of captured examples (attention, outputs, contributions), from which all reports are made.

A corpus is read a few examples at a time, and none of them are kept. A report needs as much memory for a million
sentences as for a hundred.

Layers without attention weights, such as n-grams, have two measures for each span (an offset of the window, or a
context vector), position and head:

- the norm of its contribution to the hidden layer before the ReLU, which is the exact sum of contributions and bias;
- gradient x input of the log probability of the target: the gradient with respect to the span's input times this
  input, which equals the gradient with respect to its contribution times the contribution. The value is signed.
  Inputs whose hidden units the ReLU sets to zero do not count.

Shapes: B batch, K heads, T rows (queries), S columns (keys), J heads over layers, L layers or positions of a layer, N
words, P tokens or spans.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, singledispatch
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from headway.core.errors import UserError
from headway.core.processes import batched
from headway.mixers import Decomposable, Mixed, Mixer, Span
from headway.models import Seq2Seq
from headway.predictors.captured_attention import ALL, AttentionWeights, column_tokens
from headway.predictors.input_account import InputAccount, accounted
from headway.predictors.label_predictor import LabelPredictor
from headway.predictors.output import Example, Output
from headway.predictors.predict_options import Capture
from headway.predictors.sequence_predictor import SequencePredictor
from headway.tensors.batch import Batch, collate
from headway.tensors.names import counted_from_1

BATCH = 16  # pairs whose contributions are measured at once; their memory is that of all windows

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class ReadOptions:
    """Options for reading a corpus."""

    force: bool = True  # force known targets instead of the model's own outputs
    hypotheses: bool = True  # also decode if targets are forced
    nbest: int = 1  # outputs to decode per example
    capture: Capture = ALL  # patterns of the names of attention to capture
    contributions: bool = False  # measure the contributions in layers without weights


@dataclass(frozen=True)
class Layer:
    """The weights (K, T, S) of one attention, such as `decoder.1.cross`, or other numbers of a layer.

    `rows` are the texts of the T tokens that attend, `columns` of the S tokens that are attended to.
    """

    name: str
    weights: Floats
    rows: Sequence[str]
    columns: Sequence[str]


@dataclass(frozen=True)
class LayerContributions:
    """The contributions of one layer's spans in one sentence."""

    tokens: list[str]  # the L tokens that the layer reads, including the begin or end mark
    spans: tuple[Span, ...]
    norm: Floats  # (K, L, P), norms of contributions before the ReLU
    gradient_input: Floats  # (K, L, P), in nats of the log probability of the target


@dataclass(frozen=True)
class Captured:
    """A captured example. It has no views if the example is empty, or too long for the model.

    Attributes:
        example: the raw texts.
        views: the attention of each forward pass.
        prediction: the output that the attention belongs to: the model's own, or the forced target with its score.
        hypothesis: the model's own output, if it decoded.
        contributions: of layers that sum contributions, by the name that their attention would have.
    """

    example: Example
    views: tuple[AttentionWeights, ...] = ()
    prediction: Output | None = None
    hypothesis: str | None = None
    contributions: Mapping[str, LayerContributions] = field(default_factory=dict)


@singledispatch
def read(predictor: Any, examples: Iterable[Example], options: ReadOptions) -> Iterator[Captured]:
    """Read all examples with one model, in order, a few at a time.

    Raises:
        UserError: the type of the predictor is unknown; or any error of the predictor.
    """
    raise UserError("nothing is known of how runs of this task read", where="headway inspect")


@read.register
def _read_sequences(
    predictor: SequencePredictor, examples: Iterable[Example], options: ReadOptions
) -> Iterator[Captured]:
    measured, account = options.contributions and not predictor.recipe.data.context.target, InputAccount()
    for chunk in batched(examples, predictor.window(options.capture)):
        shown = [example for example in chunk if example.source.strip()]
        if options.force:
            shown = [
                example for example in shown
                if example.target is None or predictor.can_read(example, example.target)
            ]  # fmt: skip
        with accounted(account):
            predictions = _predictions(predictor, shown, options)
        measures: dict[int, dict[str, LayerContributions]] = {}
        if measured:  # truncated and empty lines have no measures
            whole = [
                prediction
                for prediction, _ in predictions
                if not prediction.is_empty and predictor.can_read(prediction.example, prediction.written)
            ]
            pairs = [prediction.example for prediction in whole], [prediction.written for prediction in whole]
            measures = dict(zip(map(id, whole), contributions(predictor, *pairs), strict=True))
        # If the first sentences have no contributions, the model has no such layers: stop measuring.
        measured = measured and (any(measures.values()) or not measures)
        read_examples = {}
        for example, (prediction, text) in zip(shown, predictions, strict=True):
            views, measure = (prediction.attention,), measures.get(id(prediction), {})
            read_examples[id(example)] = Captured(example, views, prediction, text, measure)
        yield from (read_examples.get(id(example), Captured(example)) for example in chunk)
    account.tell()


def search_options(predictor: SequencePredictor, nbest: int) -> dict[str, Any]:
    """The search options for `nbest` outputs: the recipe's beam, or a beam that is wide enough."""
    return {"beam": max(predictor.recipe.decoding.beam, nbest), "nbest": nbest, "truncate": True}


def _predictions(
    predictor: SequencePredictor, examples: Sequence[Example], options: ReadOptions
) -> list[tuple[Output, str | None]]:
    """For every example, the prediction whose attention is captured, and the decoded text (None without decoding)."""
    search = search_options(predictor, options.nbest)
    forced = [example for example in examples if options.force and example.target is not None]
    free = [example for example in examples if not (options.force and example.target is not None)]
    decoded = predictor.predict(free, capture=options.capture, **search)
    found: dict[int, tuple[Output, str | None]] = {
        id(example): (prediction, prediction.text) for example, prediction in zip(free, decoded, strict=True)
    }
    if forced:
        given = predictor.force(forced, [example.target or "" for example in forced], capture=options.capture)
        texts: list[str | None] = [None] * len(forced)
        if options.hypotheses:
            with accounted(InputAccount()):  # these inputs are counted above
                texts = [prediction.text for prediction in predictor.predict(forced, **search)]
        found |= zip(map(id, forced), zip(given, texts, strict=True), strict=True)
    return [found[id(example)] for example in examples]


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


def mixers_of(model: nn.Module) -> dict[str, Mixer]:
    """All mixers of a model, by the name that their attention has or would have (`encoder.1.self`)."""
    mixers = {name: module for name, module in model.named_modules() if isinstance(module, Mixer)}
    return {counted_from_1(name).removesuffix("mixer") + "self": mixer for name, mixer in mixers.items()}


class Measured(NamedTuple):
    """The two measures of a mixer's P spans, both (B, K, L, P); zero at padding."""

    spans: tuple[Span, ...]
    norm: Tensor
    gradient_input: Tensor


def measure(model: nn.Module, score: Callable[[], Tensor]) -> dict[str, Measured]:
    """The measures of every mixer that is a sum of contributions, by the name that its attention would have.

    `score` runs the model once and returns a scalar, summed over the rows of the batch.
    """
    # Each mixer with its arguments, and the zeros that are added to its values to get their gradient.
    calls: dict[str, tuple[Mixer, Tensor, Tensor | None, Tensor]] = {}

    def listen(name: str) -> Callable[..., Mixed]:
        def hook(mixer: Mixer, given: tuple[Tensor, Tensor | None], mixed: Mixed) -> Mixed:
            probe = torch.zeros_like(mixed.values, requires_grad=True)
            calls[name] = mixer, given[0].detach(), given[1], probe
            return mixed._replace(values=mixed.values + probe)

        return hook

    with torch.inference_mode(False), torch.enable_grad():
        hooks = [mixer.register_forward_hook(listen(name)) for name, mixer in mixers_of(model).items()]
        try:
            total = score()
        finally:
            for registered in hooks:
                registered.remove()
        measures = {}
        gradients = torch.autograd.grad(total, [probe for *_, probe in calls.values()]) if calls else ()
        for (name, (mixer, x, mask, _)), gradient in zip(calls.items(), gradients, strict=True):
            if isinstance(mixer, Decomposable):
                spans, terms, values = mixer.contributions(x.requires_grad_(), mask)
                (of_terms,) = torch.autograd.grad(values, terms, gradient)
                terms = terms.detach()
                measures[name] = Measured(spans, terms.norm(dim=-1), (of_terms * terms).sum(-1))
        return measures


def log_probability(model: Seq2Seq, batch: Batch, positions: Sequence[int] | None = None) -> Tensor:
    """The log probability of the targets of a batch, summed over rows.

    `positions` restrict it to these target tokens, counted from 0 and including the end mark. Rows that are too short
    are left out of a position.
    """
    scores: Tensor = model(batch).logits.float().log_softmax(-1)
    tokens = scores.gather(2, batch.target_output[:, :, None]).squeeze(2).masked_fill(~batch.scored, 0)
    if positions is not None:
        tokens = tokens[:, [position for position in positions if position < tokens.shape[1]]]
    return tokens.sum()


def contributions(
    predictor: SequencePredictor,
    sources: Sequence[str | Example],
    targets: Sequence[str],
    positions: Sequence[int] | None = None,
) -> list[dict[str, LayerContributions]]:
    """Measure the contribution of each span, in all layers of one model that sum contributions, for pairs of raw lines.

    Args:
        predictor: one model.
        sources: raw text, or examples with their context.
        targets: the outputs; gradients are of their log probability.
        positions: the target tokens of this log probability, counted from 0, including the end mark; all by default.

    Returns:
        For each pair the layers by name, such as `encoder.1.self`; empty for a model without such layers.

    Raises:
        UserError: more than one model, or a position beyond all targets.
    """
    if len(predictor.models) > 1:
        raise UserError("contributions are one model's", received=f"{len(predictor.models)} runs")
    (model,) = predictor.models
    source_ids, target_ids = [predictor.read(line).values for line in sources], predictor.target.encode_lines(targets)
    longest = max(map(len, target_ids), default=0)
    if positions is not None and not all(0 <= position <= longest for position in positions):
        allowed = f"0 to {longest}"
        raise UserError("no target has such a token", where="positions", received=list(positions), allowed=allowed)
    rows: list[dict[str, LayerContributions]] = []
    for pairs in batched(zip(source_ids, target_ids, strict=True), BATCH):
        texts = [np.asarray(ids) for ids, _ in pairs], [np.asarray(ids, np.int64) for _, ids in pairs]
        score = partial(log_probability, model, collate(*texts).to(predictor.device), positions)
        found: list[dict[str, LayerContributions]] = [{} for _ in pairs]
        for name, (spans, *both) in measure(model, score).items():
            norm, gradient_input = (each.float().cpu().numpy() for each in both)
            for row, (source, target) in enumerate(pairs):
                tokens = predictor.attended(source), predictor.target.tokens(target)
                columns = column_tokens(model.attention_axes(name), *tokens)
                real = row, slice(None), slice(len(columns))
                found[row][name] = LayerContributions(columns, spans, norm[real], gradient_input[real])
        rows += found
    return rows
