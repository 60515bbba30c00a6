"""The interface of losses other than the cross-entropy, their registry, and functions that read attention heads.

Shapes: B batch, K heads, L queries, S keys.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Annotated

import torch
from pydantic import AfterValidator, Field
from torch import Tensor

from headway.core.registry import Registry
from headway.models import Output
from headway.tensors.batch import TargetBatch

Weight = Annotated[float, Field(gt=0, le=1e6)]


def _once_each(heads: tuple[int, ...]) -> tuple[int, ...]:
    """Raise ValueError if a head is listed twice, because it would count twice."""
    if len(set(heads)) < len(heads):
        raise ValueError("a head is named twice")
    return heads


Head = Annotated[int, Field(ge=1, le=2**16)]  # they count from 1
Heads = Annotated[tuple[Head, ...], Field(min_length=1), AfterValidator(_once_each)]


class LossPart(ABC):
    """A part of the objective. A subclass takes its `Config`, or keyword-only options."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the token labels that batches must have; none by default."""
        return ()

    @property
    def attention(self) -> Mapping[str, tuple[int, ...] | None]:
        """The full names of the attention that is read, each with its heads, from 1, or None for all heads."""
        return {}

    @abstractmethod
    def __call__(self, output: Output, batch: TargetBatch) -> Mapping[str, Tensor]:
        """Return the weighted losses by name, each summed over the target tokens of the batch."""


LOSSES: Registry[LossPart] = Registry(
    "loss",
    "headway.losses.parts:LossPart",
    {
        "cross_entropy": "headway.losses.cross_entropy:CrossEntropy",
        "dependency": "headway.losses.dependency_loss:DependencyLoss",
        "guided_alignment": "headway.losses.guided_alignment:GuidedAlignment",
        "synchronous": "headway.losses.synchronous:SynchronousLoss",
    },
)


def heads_of(weights: Tensor, heads: tuple[int, ...]) -> list[Tensor]:
    """The given heads, counted from 1, of weights (B, K, L, S), each (B, L, S), without copying the others."""
    return [weights[:, head - 1] for head in heads]


def mean_of_heads(weights: Tensor, heads: tuple[int, ...] | None) -> Tensor:
    """The mean (B, L, S) over the given heads of weights (B, K, L, S), or over all, in float32 or wider."""
    wide = torch.promote_types(weights.dtype, torch.float32)
    if heads is None:
        return weights.mean(1, dtype=wide)
    first, *others = heads_of(weights, heads)
    total = first.to(wide)
    for other in others:
        total = total + other
    return total / len(heads)
