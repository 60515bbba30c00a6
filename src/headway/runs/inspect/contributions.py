"""Measures of what each offset adds in layers that have no attention weights, such as n-grams, and of what counts.

There are two measures of a span (an offset of the window, or a context vector) at every position and head:

- the norm of its contribution to the hidden layer before the ReLU, which is the exact sum of contributions and bias;
- gradient x input of the log probability of the target: the gradient with respect to what the span reads, times what it
  reads, which is the same as the gradient with respect to its contribution, times its contribution. It has a sign, and
  what the ReLU shuts out counts for nothing.

Shapes: B batch, K heads, L positions of a layer, P spans, T target.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from headway.errors import UserError
from headway.mixers import Decomposable, Mixed, Mixer, Span
from headway.models import Seq2Seq
from headway.predictors.captured_attention import column_tokens
from headway.predictors.sequence_predictor import SequencePredictor
from headway.tensors.batch import Batch, collate
from headway.tensors.names import counted_from_1

BATCH = 16  # pairs at once: contributions are as large as all windows, one beside the other
Floats = NDArray[np.floating[Any]]


class Measured(NamedTuple):
    """The two measures of a mixer's P spans, both (B, K, L, P); zero at padding."""

    spans: tuple[Span, ...]
    norm: Tensor
    gradient_input: Tensor


@dataclass(frozen=True)
class LayerContributions:
    """The measures of one layer in one sentence."""

    tokens: list[str]  # the L tokens that the layer reads, with the end mark as the last or the begin mark as the first
    spans: tuple[Span, ...]
    norm: Floats  # (K, L, P), of the contribution before the ReLU
    gradient_input: Floats  # (K, L, P), in nats of the log probability of the target


class _Call(NamedTuple):
    """A mixer with its arguments, and the zeros that were added to its values, for the gradient there."""

    mixer: Mixer
    x: Tensor
    mask: Tensor | None
    probe: Tensor


def measure(model: nn.Module, score: Callable[[], Tensor]) -> dict[str, Measured]:
    """The measures of every mixer that is a sum of contributions, by the name that its attention would have.

    `score` runs the model once and gives a scalar, a sum over the rows of a batch.
    """
    with torch.inference_mode(False), torch.enable_grad():
        with _listening(model) as calls:
            total = score()
        if not calls:
            return {}
        gradients = torch.autograd.grad(total, [call.probe for call in calls.values()])
        measures = {}
        for (name, call), gradient in zip(calls.items(), gradients, strict=True):
            if isinstance(call.mixer, Decomposable):
                spans, terms, values = call.mixer.contributions(call.x.requires_grad_(), call.mask)
                (of_terms,) = torch.autograd.grad(values, terms, gradient)
                terms = terms.detach()
                measures[name] = Measured(spans, terms.norm(dim=-1), (of_terms * terms).sum(-1))
        return measures


def mixers_of(model: nn.Module) -> dict[str, Mixer]:
    """All mixers of a model, by the name that their attention has or would have (`encoder.1.self`)."""
    mixers = {name: module for name, module in model.named_modules() if isinstance(module, Mixer)}
    return {counted_from_1(name).removesuffix("mixer") + "self": mixer for name, mixer in mixers.items()}


@contextmanager
def _listening(model: nn.Module) -> Iterator[Mapping[str, _Call]]:
    """Note what goes into each mixer and out of it while the model runs."""
    calls: dict[str, _Call] = {}

    def listen(name: str, mixer: Mixer) -> Callable[..., Mixed]:
        def hook(_: nn.Module, given: tuple[Tensor, Tensor | None], mixed: Mixed) -> Mixed:
            probe = torch.zeros_like(mixed.values, requires_grad=True)
            calls[name] = _Call(mixer, given[0].detach(), given[1], probe)
            return mixed._replace(values=mixed.values + probe)

        return hook

    hooks = [mixer.register_forward_hook(listen(name, mixer)) for name, mixer in mixers_of(model).items()]
    try:
        yield calls
    finally:
        for registered in hooks:
            registered.remove()


def log_probability(model: Seq2Seq, batch: Batch, positions: Sequence[int] | None = None) -> Tensor:
    """The log probability of the targets of a batch, all rows together.

    With `positions` it is of these target tokens, counted from 0, the end mark last. Rows that are too short for a
    position are left out there.
    """
    scores: Tensor = model(batch).logits.float().log_softmax(-1)
    tokens = scores.gather(2, batch.target_output[:, :, None]).squeeze(2).masked_fill(~batch.target_mask, 0)
    return tokens.sum() if positions is None else tokens[:, list(positions)].sum()


def contributions(
    predictor: SequencePredictor,
    sources: Sequence[str],
    targets: Sequence[str],
    *,
    positions: Sequence[int] | None = None,
) -> list[dict[str, LayerContributions]]:
    """Measure what each span contributes, in all layers of one model that sum up contributions, for pairs of raw lines.

    Args:
        predictor: one model.
        sources: raw text.
        targets: the outputs whose log probability the gradients are of.
        positions: the target tokens that it is of, counted from 0, the end mark last; all by default.

    Returns:
        For each pair the layers by name, such as `encoder.1.self`; none for a model without such layers.

    Raises:
        UserError: different numbers of sources and targets, more than one model, or a position that no target has.
    """
    if len(sources) != len(targets):
        raise UserError("each source needs one target", received=f"{len(sources)} sources and {len(targets)} targets")
    if len(predictor.models) > 1:
        raise UserError("contributions are one model's", received=f"{len(predictor.models)} runs")
    source_ids = [predictor.read(line).values for line in sources]
    target_ids = predictor.target.encode_lines(targets)
    longest = max(map(len, target_ids), default=0)
    if positions is not None and not all(0 <= position <= longest for position in positions):
        allowed = f"0 to {longest}"
        raise UserError("no target has such a token", where="positions", received=list(positions), allowed=allowed)
    chunks = [slice(start, start + BATCH) for start in range(0, len(sources), BATCH)]
    return [row for chunk in chunks for row in _of_batch(predictor, source_ids[chunk], target_ids[chunk], positions)]


def _of_batch(
    predictor: SequencePredictor, sources: list[Any], targets: list[list[int]], positions: Sequence[int] | None
) -> list[dict[str, LayerContributions]]:
    model = predictor.models[0]
    target_ids = [np.asarray(ids, dtype=np.int64) for ids in targets]
    batch = collate([np.asarray(ids) for ids in sources], target_ids).to(predictor.device)
    known = positions if positions is None else [index for index in positions if index < batch.target_output.shape[1]]
    rows: list[dict[str, LayerContributions]] = [{} for _ in sources]
    for name, measured in measure(model, lambda: log_probability(model, batch, known)).items():
        norm, gradient_input = (each.float().cpu().numpy() for each in (measured.norm, measured.gradient_input))
        for row, (source, target) in enumerate(zip(sources, targets, strict=True)):
            tokens = predictor.attended(source), predictor.target.tokens(target)
            columns = column_tokens(model.attention_axes(name), *tokens)
            real = row, slice(None), slice(len(columns))
            rows[row][name] = LayerContributions(columns, measured.spans, norm[real], gradient_input[real])
    return rows
