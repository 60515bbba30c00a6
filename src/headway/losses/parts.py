"""What objectives that read attention share.

Shapes: B batch, K heads, L queries, S keys.
"""

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor

from headway.models import Output
from headway.tensors.batch import TargetBatch


class Part(Protocol):
    """A loss beside the cross-entropy.

    Attributes:
        labels: the per-token labels that batches have to carry.
        attention: the full names of the attention it reads, and which heads of each (None for whichever there are).
    """

    @property
    def labels(self) -> tuple[str, ...]: ...

    @property
    def attention(self) -> Mapping[str, tuple[int, ...] | None]: ...

    def __call__(self, output: Output, batch: TargetBatch) -> Mapping[str, Tensor]:
        """Weighted losses by name, each summed over the batch's target tokens."""


def heads_of(weights: Tensor, heads: tuple[int, ...]) -> list[Tensor]:
    """Some of the heads of (B, K, L, S), each (B, L, S), without copying the others."""
    return [weights[:, head] for head in heads]


def mean_of_heads(weights: Tensor, heads: tuple[int, ...] | None) -> Tensor:
    """(B, L, S): the mean of some of K heads, or of all of them, in float32 or wider."""
    wide = torch.promote_types(weights.dtype, torch.float32)
    if heads is None:
        return weights.mean(1, dtype=wide)
    first, *others = heads_of(weights, heads)
    total = first.to(wide)
    for each in others:
        total = total + each
    return total / len(heads)
