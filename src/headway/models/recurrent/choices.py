"""Choices: from scores to weights, spread over positions (soft) or all on one (hard).

Shapes: B batch, T queries, S source.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from headway.models.model_config import RecurrentAttentionConfig


class Choice(NamedTuple):
    """What was chosen: weights (B, T, S); and where one position was, its number, all (B, T).

    `log_probability` and `entropy`, of the distribution it was drawn from, exist where REINFORCE needs them.
    """

    weights: Tensor
    place: Tensor | None = None
    log_probability: Tensor | None = None
    entropy: Tensor | None = None


def soft(scores: Tensor, factor: Tensor | None) -> Choice:
    """The softmax, times `factor`."""
    weights = scores.softmax(-1)
    return Choice(weights if factor is None else weights * factor)


def hard(scores: Tensor, config: RecurrentAttentionConfig, training: bool) -> Choice:
    """One position: the best one, or, where REINFORCE trains, one drawn with the softmax of the scores.

    Straight-through training passes the gradient of the weights on to the softmax.
    """
    if not training or config.estimator == "straight_through":
        place = scores.argmax(-1)
        weights = F.one_hot(place, scores.shape[-1]).to(scores.dtype)
        if training:
            spread = scores.softmax(-1)
            weights = weights - spread.detach() + spread
        return Choice(weights, place)
    log_probabilities = scores.log_softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32))
    probabilities = log_probabilities.exp()
    place = torch.multinomial(probabilities.detach().flatten(0, 1), 1).view(scores.shape[:2])
    return Choice(
        F.one_hot(place, scores.shape[-1]).to(scores.dtype),
        place,
        log_probabilities.gather(2, place[..., None]).squeeze(2),
        -(probabilities * log_probabilities).sum(-1),
    )


def joined(choices: list[Choice]) -> Choice:
    """The choices of consecutive queries as one."""

    def join(name: str) -> Tensor | None:
        parts = [getattr(choice, name) for choice in choices]
        return None if parts[0] is None else torch.cat(parts, 1)

    return Choice(torch.cat([choice.weights for choice in choices], 1), *map(join, Choice._fields[1:]))
