"""The contract of a loss beside the cross-entropy, the registry of losses, and how several read attention.

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
    """Refuse a head that is named twice, which would count twice."""
    if len(set(heads)) < len(heads):
        raise ValueError("a head is named twice")
    return heads


Head = Annotated[int, Field(ge=1, le=2**16)]  # they count from 1
Heads = Annotated[tuple[Head, ...], Field(min_length=1), AfterValidator(_once_each)]


class LossPart(ABC):
    """A part of the objective. A subclass takes its `Config`, or keyword-only options."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The per-token labels that batches have to carry; none unless a loss says so."""
        return ()

    @property
    def attention(self) -> Mapping[str, tuple[int, ...] | None]:
        """The full names of the attention that is read, and which heads of each, from 1 (None for all there are)."""
        return {}

    @abstractmethod
    def __call__(self, output: Output, batch: TargetBatch) -> Mapping[str, Tensor]:
        """Weighted losses by name, each summed over the batch's target tokens."""


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
    """Some of the heads of (B, K, L, S), from 1, each (B, L, S), without copying the others."""
    return [weights[:, head - 1] for head in heads]


def mean_of_heads(weights: Tensor, heads: tuple[int, ...] | None) -> Tensor:
    """(B, L, S): the mean of some of K heads, or of all of them, in float32 or wider."""
    wide = torch.promote_types(weights.dtype, torch.float32)
    if heads is None:
        return weights.mean(1, dtype=wide)
    first, *others = heads_of(weights, heads)
    total = first.to(wide)
    for other in others:
        total = total + other
    return total / len(heads)
