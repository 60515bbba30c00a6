"""Label-smoothed cross-entropy (Szegedy et al. 2016, section 7).

Shapes: N positions, V vocabulary.
"""

from typing import Any

import torch
from torch import Tensor

CHUNK_ELEMENTS = (
    1 << 20
)  # rows are taken in chunks of about this many logits, so that the passes over them stay in cache


class _SmoothedCrossEntropy(torch.autograd.Function):
    """Two passes over the logits forward and two backward, where torch's own takes about ten."""

    @staticmethod
    def forward(context: Any, logits: Tensor, targets: Tensor, weights: Tensor, smoothing: float) -> Tensor:
        normaliser = torch.empty(len(logits), dtype=torch.float32, device=logits.device)
        mean = torch.empty_like(normaliser)
        for rows in _chunks(logits):
            part = logits[rows].float()
            normaliser[rows], mean[rows] = part.logsumexp(1), part.mean(1)
        picked = logits.gather(1, targets[:, None]).squeeze(1).float()
        context.save_for_backward(logits, targets, weights, normaliser)
        context.smoothing = smoothing
        return ((normaliser - (1 - smoothing) * picked - smoothing * mean) * weights).sum()

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        logits, targets, weights, normaliser = context.saved_tensors
        smoothing, scale = context.smoothing, weights * gradients[0]
        result = torch.empty_like(logits)
        for rows in _chunks(logits):
            part = (logits[rows].float() - normaliser[rows, None]).exp_()
            part.sub_(smoothing / logits.shape[1])
            part.scatter_add_(1, targets[rows, None], part.new_full((len(part), 1), smoothing - 1))
            result[rows] = part.mul_(scale[rows, None])
        return result, None, None, None


def _chunks(logits: Tensor) -> list[slice]:
    size = len(logits) if logits.device.type != "cpu" else max(1, CHUNK_ELEMENTS // logits.shape[1])
    return [slice(start, start + size) for start in range(0, len(logits), size)]


def smoothed_cross_entropy(logits: Tensor, targets: Tensor, mask: Tensor, smoothing: float) -> Tensor:
    """The cross-entropy with 1 - smoothing on the target and smoothing / V on every word, summed over real positions.

    Args:
        logits: (..., V), of any floating type; the sum is made in float32.
        targets: (...) ids.
        mask: (...), True where a position counts.
        smoothing: the share of the probability that is spread over the whole vocabulary.
    """
    flat = logits.reshape(-1, logits.shape[-1])
    loss: Tensor = _SmoothedCrossEntropy.apply(flat, targets.reshape(-1), mask.reshape(-1).float(), smoothing)  # type: ignore[no-untyped-call]
    return loss
