"""Combinations of all layers of an encoder into one vector per token, such as attention over layers (Kaneko & Komachi).

Each `LayerMix` maps the L layers' vectors of N tokens, lowest layer first and without the embeddings, to (N, `size`).

Shapes: L layers, N tokens, D encoder, J heads, d head.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from headway.tensors.dropout import Dropout


class LayerMix(nn.Module, ABC):
    """A module that combines the vectors of L layers into one vector.

    Attributes:
        size: the size of that vector.
        depth: the number of layers it reads, counted from the last.
    """

    size: int
    depth: int

    @abstractmethod
    def forward(self, layers: Sequence[Tensor]) -> tuple[Tensor, Tensor | None]:
        """Map the last `depth` layers, (N, D) each, to (N, size) and the weights (N, J, L) before dropout, or None."""


class LastLayer(LayerMix):
    """The last layer with dropout: the usual way to fine-tune an encoder (equation 3)."""

    def __init__(self, dim: int, dropout: float) -> None:
        super().__init__()
        self.size, self.depth, self.dropout = dim, 1, Dropout(dropout)

    def forward(self, layers: Sequence[Tensor]) -> tuple[Tensor, None]:
        return self.dropout(layers[-1]), None


class LayerAverage(LayerMix):
    """The mean over the layers of a linear map of each, W^l h^l + b^l."""

    def __init__(self, layers: int, dim: int, dropout: float) -> None:
        super().__init__()
        self.size, self.depth, self.dropout = dim, layers, Dropout(dropout)
        self.weight, self.bias = _linear(layers, dim, dim)

    def forward(self, layers: Sequence[Tensor]) -> tuple[Tensor, None]:
        beside = self.dropout(torch.cat(list(layers), dim=1))  # (N, L D): the sum over layers is part of the product
        return torch.addmm(self.bias.sum((0, 1)), beside, self.weight.flatten(0, 1)) / len(layers), None


class LayerAttention(LayerMix):
    """Multi-head multi-layer attention, equations 4 to 9; with one head, single-head multi-layer attention.

    All values and keys of all layers and heads come from one batched product.

    Args:
        layers: L.
        dim: D.
        heads: J.
        head_dim: d, of values and of keys.
        dropout: of the layers' vectors, of the keys and of the weights.
    """

    def __init__(self, layers: int, dim: int, heads: int, head_dim: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.size, self.depth, self.dropout = heads, heads * head_dim, layers, Dropout(dropout)
        self.weight, self.bias = _linear(layers, dim, 2 * self.size)  # values of all heads, then keys of all heads
        bound = head_dim**-0.5
        self.score_weight = nn.Parameter(torch.empty(layers, 1, heads, head_dim).uniform_(-bound, bound))
        self.score_bias = nn.Parameter(torch.empty(layers, 1, heads).uniform_(-bound, bound))

    def forward(self, layers: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        hidden = self.dropout(torch.stack(list(layers)))
        projected = torch.baddbmm(self.bias, hidden, self.weight)  # (L, N, 2 J d)
        values, keys = projected.chunk(2, dim=2)  # (L, N, J d) each: equations 4 and 5
        keys = self.dropout(keys.relu())
        # Each head's score weights in their own rows (L, J d, J), so that one product scores the keys of all heads.
        diagonal = torch.eye(self.heads, device=self.score_weight.device)[:, None]  # (J, 1, J)
        matrix = (self.score_weight.squeeze(1)[..., None] * diagonal).flatten(1, 2)
        scores = torch.baddbmm(self.score_bias, keys, matrix)  # (L, N, J): equation 6
        weights = scores.softmax(0)  # equation 7
        by_head = values.view(*values.shape[:2], self.heads, self.size // self.heads)
        mixed = (self.dropout(weights)[..., None] * by_head).sum(0)  # equation 8
        return mixed.flatten(1), weights.permute(1, 2, 0)  # equation 9


def _linear(layers: int, inputs: int, outputs: int) -> tuple[nn.Parameter, nn.Parameter]:
    """Weights (L, inputs, outputs) and biases (L, 1, outputs), initialised as in `nn.Linear`."""
    bound = inputs**-0.5
    weight = torch.empty(layers, inputs, outputs).uniform_(-bound, bound)
    return nn.Parameter(weight), nn.Parameter(torch.empty(layers, 1, outputs).uniform_(-bound, bound))


def build_layer_mix(kind: str, layers: int, dim: int, heads: int, head_dim: int | None, dropout: float) -> LayerMix:
    """Build a `last`, `average` or `attention` mix; `head_dim` is D / J by default."""
    if kind == "last":
        return LastLayer(dim, dropout)
    if kind == "average":
        return LayerAverage(layers, dim, dropout)
    return LayerAttention(layers, dim, heads, head_dim or dim // heads, dropout)
