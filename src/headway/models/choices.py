"""Choices: from scores to weights, spread over positions (soft) or all on one (hard).

Shapes: B batch, T queries, S source.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F


class Choice(NamedTuple):
    """Weights (B, T, S) and, where they are all on one source position, that `position` (B, T).

    `log_probability` and `entropy` (B, T), of the distribution it was drawn from, exist where REINFORCE needs them.
    """

    weights: Tensor
    position: Tensor | None = None
    log_probability: Tensor | None = None
    entropy: Tensor | None = None


def soft(scores: Tensor, factor: Tensor | None) -> Choice:
    """The softmax, times `factor`."""
    weights = scores.softmax(-1)
    return Choice(weights if factor is None else weights * factor)


def hard(scores: Tensor, estimator: str, training: bool) -> Choice:
    """One position: the best one, or, where `reinforce` trains, one drawn with the softmax of the scores.

    Training by `straight_through` passes the gradient of the weights on to the softmax.
    """
    if not training or estimator == "straight_through":
        position = scores.argmax(-1)
        weights = F.one_hot(position, scores.shape[-1]).to(scores.dtype)
        if training:
            spread = scores.softmax(-1)
            weights = weights - spread.detach() + spread
        return Choice(weights, position)
    log_probabilities = scores.log_softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32))
    probabilities = log_probabilities.exp()
    position = torch.multinomial(probabilities.detach().flatten(0, 1), 1).view(scores.shape[:2])
    return Choice(
        F.one_hot(position, scores.shape[-1]).to(scores.dtype),
        position,
        log_probabilities.gather(2, position[..., None]).squeeze(2),
        -(probabilities * log_probabilities).sum(-1),
    )


def joined(choices: list[Choice]) -> Choice:
    """The choices of n single queries of W hypotheses as those of W * n queries, those of a hypothesis together."""

    def join(name: str) -> Tensor | None:
        parts = [getattr(choice, name) for choice in choices]
        return None if parts[0] is None else torch.stack(parts, 2).flatten(1, 2)

    weights = torch.stack([choice.weights for choice in choices], 2).flatten(1, 2)
    return Choice(weights, *map(join, Choice._fields[1:]))
