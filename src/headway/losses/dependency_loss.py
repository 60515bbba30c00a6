"""The dependency loss: attention heads are trained to attend to the head of each word (Deguchi et al., equation 4).

Shapes: B batch, K heads, L length (S source, T target).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from headway.core.config import Layers, Section
from headway.core.errors import UserError
from headway.losses.parts import Heads, LossPart, Weight, heads_of
from headway.models import Output
from headway.models.model import Axes
from headway.tensors.batch import TargetBatch

STACKS = {"source": "encoder", "target": "decoder"}


class DependencyConfig(Section):
    """Attention heads that are supervised with the dependency heads of `data.parses` (dependency-based self-attention).

    `weight`: the factor of the loss. `layer`, `heads`: counted from 1, as in papers. `sides`: where attention is
    supervised. `index_by`: the decoder's row t, which reads y(t-1) and predicts y(t), stands for the predicted word
    (`output`) or the word that is read (`input`).
    """

    weight: Weight = 0.5
    layer: Layers = 1
    heads: Heads = (1,)
    sides: Annotated[tuple[Literal["source", "target"], ...], Field(min_length=1)] = ("source", "target")
    index_by: Literal["output", "input"] = "output"


@dataclass(frozen=True)
class DependencyLoss(LossPart):
    """- log A[t, head(t)], as the mean over the edges of each side and over the taught heads."""

    Config: ClassVar = DependencyConfig

    config: DependencyConfig

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(f"{side}_heads" for side in self.config.sides)

    @property
    def attention(self) -> dict[str, tuple[int, ...] | None]:
        return {self.name_of(side): self.config.heads for side in self.config.sides}

    def name_of(self, side: str) -> str:
        return f"{STACKS[side]}.{self.config.layer}.self"

    def __call__(self, output: Output, batch: TargetBatch) -> Mapping[str, Tensor]:
        """The weighted loss of each side times the number of target tokens, so per token it is the mean over edges."""
        parts = {}
        for side in self.config.sides:
            name = f"{side}_heads"
            heads = batch.labels[name]
            if side == "target":
                heads = decoder_heads(heads, self.config.index_by)
            loss = attachment_loss(output.attention[self.name_of(side)], heads, self.config.heads)
            scale = batch.mean_of_labels(self.config.weight, name)
            parts[f"dependency.{side}"] = scale * loss
        return parts


def check_sides(name: str, axes: Axes, where: str) -> None:
    """Raise UserError for attention over the joined source and target, because dependency heads are of one side."""
    if axes.keys == "both":
        raise UserError(
            "this attention is over the source and the target in one, and dependency heads are of one side",
            where=where, received=name, allowed="a model with an encoder",
        )  # fmt: skip


def decoder_heads(heads: Tensor, index_by: str) -> Tensor:
    """Map the heads (B, T) of tokens to heads of the decoder's rows, both below 0 for none.

    Row t reads y(t-1) and predicts y(t). With `output`, row and column t stand for the predicted token. With `input`
    they stand for the token that is read, so heads move by one, and row 0, the begin-of-sentence token, has none.
    """
    if index_by == "output":
        return heads
    none = heads.new_full((len(heads), 1), -1)
    return torch.cat([none, torch.where(heads >= 0, heads + 1, -1)[:, :-1]], 1)


def attachment_loss(weights: Tensor, heads: Tensor, taught: tuple[int, ...]) -> Tensor:
    """- sum over (t, head(t)) of log A[t, head(t)], averaged over the `taught` heads, in float32 or wider.

    Args:
        weights: (B, K, L, L) before dropout.
        heads: (B, L); below 0 for tokens without a label.
        taught: the numbers of the supervised attention heads, from 1.
    """
    edges = heads >= 0
    index = heads.clamp(min=0)[..., None]
    total = weights.new_zeros((), dtype=torch.promote_types(weights.dtype, torch.float32))
    for head in heads_of(weights, taught):
        picked = head.gather(-1, index).squeeze(-1).to(total.dtype)
        # Without the clamp, the logarithm of a weight that underflowed would be infinite.
        logarithms = picked.clamp(min=torch.finfo(total.dtype).tiny).log()
        total = total - logarithms.masked_fill(~edges, 0).sum()
    return total / len(taught)
