"""What each offset adds in layers that have no attention weights, such as n-grams, and how much of it counts.

Two measures of a part (an offset of the window, or a context vector) at every position and head:

- the norm of its share: what it adds to the hidden layer before the ReLU, of which shares and bias are the exact sum;
- gradient x input of the log probability of the target: the gradient with respect to what the part reads, times what it
  reads, which is the same as the gradient with respect to its share, times its share. It has a sign, and what the ReLU
  shuts out counts for nothing.

Shapes: B batch, K heads, L positions of a layer, P parts, T target.
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
from headway.predictors.sequence_predictor import Predictor
from headway.tensors.batch import Batch, collate

BATCH = 16  # pairs at once: shares are as large as all windows, one beside the other
Floats = NDArray[np.floating[Any]]


class Measured(NamedTuple):
    """The two measures of a mixer's P parts, (B, K, L, P) each; zero at padding."""

    parts: tuple[Span, ...]
    norm: Tensor
    gradient_input: Tensor


@dataclass(frozen=True)
class Contributions:
    """The measures of one layer in one sentence.

    Attributes:
        tokens: the L tokens that the layer reads, the last of them with the end mark or the first with the begin mark.
        parts: the P parts.
        norm: (K, L, P), of the share before the ReLU.
        gradient_input: (K, L, P), in nats of the log probability of the target.
    """

    tokens: list[str]
    parts: tuple[Span, ...]
    norm: Floats
    gradient_input: Floats


class _Call(NamedTuple):
    """What a mixer was given, and zeros that were added to what it gave, for the gradient there."""

    mixer: Mixer
    x: Tensor
    mask: Tensor | None
    probe: Tensor


def measure(model: nn.Module, score: Callable[[], Tensor]) -> dict[str, Measured]:
    """The parts of every mixer that has such, by the name of what would be its attention (`encoder.0.self`).

    Args:
        model: any module with mixers in it.
        score: runs the model once and gives a scalar, a sum over the rows of a batch.
    """
    with torch.inference_mode(False), torch.enable_grad():
        with _listening(model) as calls:
            total = score()
        if not calls:
            return {}
        gradients = torch.autograd.grad(total, [call.probe for call in calls.values()])
        found = {name: _measured(call, each) for (name, call), each in zip(calls.items(), gradients, strict=True)}
    return {name: each for name, each in found.items() if each is not None}


def mixers_of(model: nn.Module) -> dict[str, Mixer]:
    """All mixers of a model, by the name that their attention has or would have (`encoder.0.self`)."""
    mixers = {name: module for name, module in model.named_modules() if isinstance(module, Mixer)}
    return {name.removesuffix("mixer") + "self": mixer for name, mixer in mixers.items()}  # a layer calls it mixer


@contextmanager
def _listening(model: nn.Module) -> Iterator[Mapping[str, _Call]]:
    """Notes what goes into each mixer and out of it while the model runs."""
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
        for each in hooks:
            each.remove()


def _measured(call: _Call, gradient: Tensor) -> Measured | None:
    """The parts of one mixer, given the gradient (B, L, D) of the score with respect to its values."""
    if not isinstance(call.mixer, Decomposable):
        return None
    spans, terms, values = call.mixer.contributions(call.x.requires_grad_(), call.mask)
    (of_terms,) = torch.autograd.grad(values, terms, gradient)
    terms = terms.detach()
    return Measured(spans, terms.norm(dim=-1), (of_terms * terms).sum(-1))


def log_probability(model: Seq2Seq, batch: Batch, places: Sequence[int] | None = None) -> Tensor:
    """The log probability of the targets of a batch, all rows together.

    Args:
        model: the model.
        batch: source and target.
        places: of which target tokens, counted from 0, the end mark last; of all by default. Rows that are too short
            for a place are left out there.
    """
    scores: Tensor = model(batch).logits.float().log_softmax(-1)
    each = scores.gather(2, batch.target_output[:, :, None]).squeeze(2).masked_fill(~batch.target_mask, 0)
    return each.sum() if places is None else each[:, list(places)].sum()


def contributions(
    predictor: Predictor, sources: Sequence[str], targets: Sequence[str], *, places: Sequence[int] | None = None
) -> list[dict[str, Contributions]]:
    """What each part contributes, in every layer of a model that has parts, for each pair of lines.

    Args:
        predictor: one model.
        sources: raw text.
        targets: the outputs whose log probability the gradients are of.
        places: the target tokens that it is of, counted from 0, the end mark last; all by default.

    Returns:
        For each pair the layers by name, such as `encoder.0.self`; none for a model without such layers.

    Raises:
        UserError: different numbers of sources and targets, more than one model, or a place that no target has.
    """
    if len(sources) != len(targets):
        raise UserError("each source needs one target", received=f"{len(sources)} sources and {len(targets)} targets")
    if len(predictor.models) > 1:
        raise UserError("contributions are one model's", received=f"{len(predictor.models)} runs")
    source_ids = [predictor.read(line)[0] for line in sources]
    target_ids = [predictor.target.encode(line) for line in targets]
    longest = max(map(len, target_ids), default=0)
    if places is not None and not all(0 <= place <= longest for place in places):
        raise UserError("no target has such a token", where="places", received=list(places), allowed=f"0 to {longest}")
    result = []
    for start in range(0, len(sources), BATCH):
        chunk = slice(start, start + BATCH)
        result += _of_batch(predictor, source_ids[chunk], target_ids[chunk], places)
    return result


def _of_batch(
    predictor: Predictor, sources: list[Any], targets: list[list[int]], places: Sequence[int] | None
) -> list[dict[str, Contributions]]:
    model = predictor.models[0]
    target_ids = [np.asarray(each, dtype=np.int64) for each in targets]
    batch = collate([np.asarray(each) for each in sources], target_ids).to(predictor.device)
    known = None if places is None else [place for place in places if place < batch.target_output.shape[1]]
    found = measure(model, lambda: log_probability(model, batch, known))
    arrays = {name: (each.norm.float().cpu().numpy(), each.gradient_input.float().cpu().numpy())
              for name, each in found.items()}  # fmt: skip
    rows = []
    for row, (source, target) in enumerate(zip(sources, targets, strict=True)):
        tokens = predictor.attended(source), predictor.target.tokens(target)
        own = {}
        for name, (norm, gradient_input) in arrays.items():
            read = column_tokens(model.attention_axes(name), *tokens)
            real = row, slice(None), slice(len(read))
            own[name] = Contributions(read, found[name].parts, norm[real], gradient_input[real])
        rows.append(own)
    return rows
