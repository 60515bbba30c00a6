"""Guided alignment: a head of cross-attention is trained to attend to the source of each target (Garg et al. 2019).

Row t of the decoder reads y(t-1) and predicts y(t). The loss supervises this row with the links of y(t); word
alignments are read from the same row. Garg et al. let the supervised layer see the whole target. Here it sees only the
past, so that links are available at every step of a search.

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
    """A head of cross-attention that is supervised with the links of `data.links`.

    `layer`: its name, such as `decoder.2.cross`. `head`: counted from 1. `weight`: the factor of the loss, by default
    as in Garg et al. (2019).
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
        return (LINKS,)

    @property
    def attention(self) -> dict[str, tuple[int, ...] | None]:
        return {self.config.layer: (self.config.head,)}

    def __call__(self, output: Output, batch: TargetBatch) -> Mapping[str, Tensor]:
        """The weighted loss times the number of target tokens, so per token it is the mean over tokens with links."""
        scale = batch.mean_of_labels(self.config.weight, LINKS)
        weights = output.attention[self.config.layer][:, self.config.head - 1]
        return {KIND: scale * guided_loss(weights, batch.labels[LINKS])}


def guided(losses: Iterable[Mapping[str, Any]]) -> GuidedAlignmentConfig | None:
    """The options of the first guided alignment loss in `objective.losses` of a recipe; None if there is none."""
    options = ({key: loss[key] for key in loss if key != "kind"} for loss in losses if loss["kind"] == KIND)
    return next(map(GuidedAlignmentConfig.model_validate, options), None)


def guided_loss(weights: Tensor, links: Tensor) -> Tensor:
    """- sum of G log A, in float32 or wider.

    Args:
        weights: A (B, T, S) before dropout.
        links: G (B, T, S), not above 0 for pairs without a link.
    """
    wide = weights.to(torch.promote_types(weights.dtype, torch.float32))
    # Without the clamp, the logarithm of a weight that underflowed would be infinite.
    logarithms = wide.clamp(min=torch.finfo(wide.dtype).tiny).log()
    return -(links.clamp(min=0).to(wide.dtype) * logarithms).sum()
