"""The synchronous constraint: the decoder's self-attention should agree with the encoder's, mapped to the target by
cross-attention (Deguchi et al., equations 9 to 13).

Shapes: B batch, K heads, S source, T target.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from headway.core.config import Layers, Section
from headway.losses.parts import Head, Heads, LossPart, Weight, heads_of, mean_of_heads
from headway.models import Output
from headway.tensors.batch import TargetBatch
from headway.tensors.masks import additive, causal_mask


class SynchronousConfig(Section):
    """The decoder's self-attention D is trained to agree with D', the encoder's E mapped by cross-attention C.

    Layers and heads count from 1. `weight`: the factor of the loss. `layer`: the layer of E and D. `heads`: the heads
    that E and D are averaged over; by default those of `dependency` if it is on the same layer, else all.
    `cross_layer`: the layer of C. `cross_head`: the head of C, or the mean of all. `reverse`: C_back is C transposed,
    or a separate softmax over the transposed scores. `target`: D' is the softmax of the masked product C E C_back
    (equation 12), or its division by the sum of each row. `detach`: the side without gradient, the `projected` D' or
    the `decoder`'s D.
    """

    weight: Weight = 10.0
    layer: Layers = 1
    heads: Heads | None = None
    cross_layer: Layers = 5
    cross_head: Literal["mean"] | Head = "mean"
    reverse: Literal["transpose", "softmax"] = "transpose"
    target: Literal["softmax", "renormalise"] = "softmax"
    detach: Literal["projected", "decoder"] | None = None


@dataclass(frozen=True)
class SynchronousLoss(LossPart):
    """The sum over (t, q) of (D'[t, q] - D[t, q])^2, equation 13; `taught` are heads of `dependency` on its layer."""

    Config: ClassVar = SynchronousConfig

    config: SynchronousConfig
    taught: tuple[int, ...] | None = None

    @property
    def heads(self) -> tuple[int, ...] | None:
        """The heads that E and D are averaged over; None for all."""
        return self.taught if self.config.heads is None else self.config.heads

    @property
    def attention(self) -> dict[str, tuple[int, ...] | None]:
        config, chosen = self.config, self._cross_heads
        layer, cross = config.layer, f"decoder.{config.cross_layer}.cross"
        read = {f"encoder.{layer}.self": self.heads, f"decoder.{layer}.self": self.heads, cross: chosen}
        return read | ({f"{cross}_scores": chosen} if config.reverse == "softmax" else {})

    @property
    def _cross_heads(self) -> tuple[int, ...] | None:
        return None if self.config.cross_head == "mean" else (self.config.cross_head,)

    def __call__(self, output: Output, batch: TargetBatch) -> Mapping[str, Tensor]:
        with torch.autocast(batch.target_mask.device.type, enabled=False):
            projected, decoder = self.compared(output, batch)
            if self.config.detach == "projected":
                projected = projected.detach()
            elif self.config.detach == "decoder":
                decoder = decoder.detach()
            squared = (projected - decoder).square().sum(-1)
            return {"synchronous": self.config.weight * squared.masked_fill(~batch.target_mask, 0).sum()}

    def compared(self, output: Output, batch: TargetBatch) -> tuple[Tensor, Tensor]:
        """D' and D, each (B, T, T); rows at padding are arbitrary."""
        names = list(self.attention)
        encoder, decoder = (mean_of_heads(output.attention[name], self.heads) for name in names[:2])
        cross = mean_of_heads(output.attention[names[2]], self._cross_heads)
        if self.config.reverse == "transpose":
            back = cross.transpose(1, 2)
        else:
            back = backward_attention(output.attention[names[3]], batch.target_mask, self._cross_heads)
        return carried_over(encoder, cross, back, self.config.target), decoder


def backward_attention(scores: Tensor, target_mask: Tensor, heads: tuple[int, ...] | None) -> Tensor:
    """Attention (B, S, T) from the source to the target, a softmax over the transposed scores (equation 11).

    Args:
        scores: (B, K, T, S), Q K^T / sqrt(d) of cross-attention.
        target_mask: (B, T), True at real positions.
        heads: the heads to average over, from 1; None for all.
    """
    chosen = scores if heads is None else torch.stack(heads_of(scores, heads), 1)
    chosen = chosen.to(torch.promote_types(scores.dtype, torch.float32)).transpose(2, 3)
    return (chosen + additive(target_mask[:, None, None, :], chosen.dtype)).softmax(-1).mean(1)


def carried_over(encoder: Tensor, cross: Tensor, back: Tensor, target: str) -> Tensor:
    """D' (B, T, T): C E C_back without the future, normalised to a distribution (equations 9 and 12).

    Equation 9 is printed with its arrows exchanged: only C first and C_back last gives a matrix of T by T.

    Args:
        encoder: E (B, S, S).
        cross: C (B, T, S).
        back: C_back (B, S, T).
        target: `softmax`, as in equation 12, or `renormalise`, division by the sum. The softmax of numbers between 0
            and 1 is nearly flat: with a perfect alignment no weight of row t exceeds e / (e + t).
    """
    product = torch.bmm(torch.bmm(cross, encoder), back)
    past = causal_mask(product.shape[-1], product.device)
    if target == "softmax":
        return (product + additive(past, product.dtype)).softmax(-1)
    product = product.masked_fill(~past, 0)
    return product / product.sum(-1, keepdim=True).clamp(min=torch.finfo(product.dtype).tiny)
