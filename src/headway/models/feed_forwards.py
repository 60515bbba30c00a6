"""Feed-forward networks of a Transformer block: each position on its own.

Shapes: D model.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor, nn
from torch.nn import functional as F

from headway.config import Section, Width
from headway.tensors.linear import Linear


class FeedForward(nn.Module, ABC):
    """A map of single vectors. A subclass takes `dim` and its `Config`, or keyword-only options."""

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """(..., D) to (..., D)."""


class FeedForwardConfig(Section):
    """The options of the networks here. `hidden`: the size of the hidden layer."""

    hidden: Width = 2048


class ReluFeedForward(FeedForward):
    """ReLU(x W1 + b1) W2 + b2 (Vaswani et al. 2017, equation 2)."""

    Config: ClassVar = FeedForwardConfig

    def __init__(self, dim: int, config: FeedForwardConfig) -> None:
        super().__init__()
        self.inner, self.outer = Linear(dim, config.hidden), Linear(config.hidden, dim)
        for layer in (self.inner, self.outer):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.activation(self.inner(x)))  # type: ignore[no-any-return]

    def activation(self, hidden: Tensor) -> Tensor:
        """The hidden layer (..., H) after its activation."""
        return F.relu(hidden)


class GeluFeedForward(ReluFeedForward):
    """The same with a GELU in the place of the ReLU (Hendrycks and Gimpel 2016)."""

    def activation(self, hidden: Tensor) -> Tensor:
        return F.gelu(hidden)


class SwishFeedForward(ReluFeedForward):
    """The same with a Swish, x sigmoid(x), in the place of the ReLU (Ramachandran et al. 2017)."""

    def activation(self, hidden: Tensor) -> Tensor:
        return F.silu(hidden)


class SwigluFeedForward(FeedForward):
    """(SiLU(x W1) * x V) W2, a hidden layer with a gate and no biases (Shazeer 2020, equation 6)."""

    Config: ClassVar = FeedForwardConfig

    def __init__(self, dim: int, config: FeedForwardConfig) -> None:
        super().__init__()
        self.gate, self.inner = Linear(dim, config.hidden, bias=False), Linear(dim, config.hidden, bias=False)
        self.outer = Linear(config.hidden, dim, bias=False)
        for layer in (self.gate, self.inner, self.outer):
            nn.init.xavier_uniform_(layer.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(F.silu(self.gate(x)) * self.inner(x))  # type: ignore[no-any-return]
