"""Guided alignment: a head of cross-attention is taught to look where a target comes from (Garg et al. 2019).

Row t of the decoder reads y(t-1) and writes y(t). The loss teaches the row that writes y(t) the links of y(t), which is
the row that alignments of words are read from. Garg et al. show the taught layer the whole target; here it has the
past alone, so that every step of a search has its links.

Shapes: B batch, K heads, S source, T target.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from headway.core.config import Section
from headway.losses.parts import Head, LossPart, Weight
from headway.models import Output
from headway.tensors.batch import LINKS, TargetBatch

KIND = "guided_alignment"


class GuidedAlignmentConfig(Section):
    """A head of cross-attention that is taught the links of `data.links`.

    `layer`: its name, such as `decoder.2.cross`; `head` counts from 1. `weight`: 0.05 as Garg et al. have it.
    """

    layer: Annotated[str, Field(pattern=r"^decoder\.[1-9][0-9]{0,3}\.cross$")]
    head: Head = 1
    weight: Weight = 0.05


@dataclass(frozen=True)
class GuidedAlignment(LossPart):
    """- sum over s of G[t, s] log A[t, s], as the mean over the target tokens t that have links."""

    Config: ClassVar = GuidedAlignmentConfig

    config: GuidedAlignmentConfig

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels that batches have to carry."""
        return (LINKS,)

    @property
    def attention(self) -> dict[str, tuple[int, ...] | None]:
        """The attention that is read, and which of its heads."""
        return {self.config.layer: (self.config.head,)}

    def __call__(self, output: Output, batch: TargetBatch) -> Mapping[str, Tensor]:
        """The weighted loss times the target tokens, so that a token keeps the mean over those with links."""
        scale = batch.mean_of_labels(self.config.weight, LINKS)
        weights = output.attention[self.config.layer][:, self.config.head - 1]
        return {KIND: scale * guided_loss(weights, batch.labels[LINKS])}


def guided(losses: Iterable[Mapping[str, Any]]) -> GuidedAlignmentConfig | None:
    """The options of the first of the recipe's `objective.losses` that is of this kind, if there is one."""
    options = ({key: loss[key] for key in loss if key != "kind"} for loss in losses if loss["kind"] == KIND)
    return next(map(GuidedAlignmentConfig.model_validate, options), None)


def guided_loss(weights: Tensor, links: Tensor) -> Tensor:
    """- sum of G log A, in float32 or wider.

    Args:
        weights: A (B, T, S) before dropout.
        links: G (B, T, S), below or at 0 where there is none.
    """
    wide = weights.to(torch.promote_types(weights.dtype, torch.float32))
    # A weight that underflowed has no gradient, but its logarithm stays finite.
    logarithms = wide.clamp(min=torch.finfo(wide.dtype).tiny).log()
    return -(links.clamp(min=0).to(wide.dtype) * logarithms).sum()
