"""Label-smoothed cross-entropy (Szegedy et al. 2016, section 7).

Shapes: N positions, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from headway.core.config import Probability, Section
from headway.losses.parts import LossPart
from headway.models import Output
from headway.tensors.batch import TargetBatch

CHUNK_ELEMENTS = 1 << 18  # logits per chunk on a CPU, few enough to stay in the cache


class _SmoothedCrossEntropy(torch.autograd.Function):
    """Loss and gradient in one pass over chunks of the logits; torch's own makes ten passes over all of them."""

    @staticmethod
    def forward(
        context: Any, logits: Tensor, targets: Tensor, weights: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        losses = torch.empty(len(logits), dtype=torch.float32, device=logits.device)
        unsmoothed = torch.empty_like(losses)
        gradient = torch.empty_like(logits) if context.needs_input_grad[0] else None
        for rows in _chunks(logits):
            target = targets[rows, None]
            scores = logits[rows].float().log_softmax(1)
            picked, mean = scores.gather(1, target).squeeze(1), scores.mean(1)
            losses[rows] = -((1 - smoothing) * picked + smoothing * mean)
            unsmoothed[rows] = -picked
            if gradient is not None:
                # d loss / d logits = softmax - target distribution
                part = scores.exp_().sub_(smoothing / logits.shape[1])
                part.scatter_add_(1, target, part.new_full(target.shape, smoothing - 1))
                gradient[rows] = part.mul_(weights[rows, None])
        context.gradient = gradient
        sums = losses.dot(weights), unsmoothed.dot(weights)
        context.mark_non_differentiable(sums[1])
        return sums

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        if torch.is_grad_enabled():  # the gradient is a constant, so a second derivative would be wrong
            raise RuntimeError("this cross-entropy has no second derivative (create_graph); F.cross_entropy has one")
        return context.gradient * gradients[0].to(context.gradient.dtype), None, None, None


def _chunks(logits: Tensor) -> list[slice]:
    size = len(logits) if logits.device.type != "cpu" else max(1, CHUNK_ELEMENTS // logits.shape[1])
    return [slice(start, start + size) for start in range(0, len(logits), size)]


def smoothed_cross_entropy(logits: Tensor, targets: Tensor, mask: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """The cross-entropy with 1 - smoothing on the target and smoothing / V on every word, summed over real positions.

    The second result is the same sum without smoothing. It has no gradient, and needs no further pass over the logits.

    Args:
        logits: (..., V), of any floating type; the sum is computed in float32.
        targets: (...) ids.
        mask: (...), True at positions that count.
        smoothing: the share of the probability that is spread over the whole vocabulary.
    """
    flat = logits.reshape(-1, logits.shape[-1])
    sums: tuple[Tensor, Tensor] = _SmoothedCrossEntropy.apply(
        flat, targets.reshape(-1), mask.reshape(-1).float(), smoothing
    )  # type: ignore[no-untyped-call]
    return sums


class CrossEntropyConfig(Section):
    """The options of the cross-entropy. `label_smoothing`: the share that is spread over the whole vocabulary."""

    label_smoothing: Probability = 0.1


@dataclass(frozen=True)
class CrossEntropy(LossPart):
    """The label-smoothed cross-entropy of the true target."""

    Config: ClassVar = CrossEntropyConfig

    config: CrossEntropyConfig

    def __call__(self, output: Output, batch: TargetBatch) -> Mapping[str, Tensor]:
        return {"cross_entropy": self.sums(output, batch)[0]}

    def sums(self, output: Output, batch: TargetBatch) -> tuple[Tensor, Tensor]:
        """The loss, and the cross-entropy without smoothing, each summed over the target positions of the batch."""
        smoothing = self.config.label_smoothing
        return smoothed_cross_entropy(output.logits, batch.target_output, batch.scored, smoothing)
