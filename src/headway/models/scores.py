"""Scores: how well each source position suits a query, such as a state of the decoder (Luong et al. 2015, section 3.1).

s_j are the encoder's states, h is a query.
Shapes: B batch, T queries, S source, E encoder state, H query.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from headway.errors import UserError
from headway.tensors.linear import Linear


class AttentionScore(nn.Module, ABC):
    """Scores of all source positions: products with keys, which depend on the source alone, unless `forward` differs.

    Args:
        memory_dim: E.
        dim: H.
        positions: the longest source in training.
    """

    def __init__(self, memory_dim: int, dim: int, positions: int) -> None:
        super().__init__()

    @abstractmethod
    def keys(self, values: Tensor) -> Tensor:
        """The keys (B, S, H) of the encoded source (B, S, E)."""

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """Scores (B, T, S) for query (B, T, H)."""
        return torch.bmm(query, keys.transpose(1, 2))


class Dot(AttentionScore):
    """s_j^T h."""

    def keys(self, values: Tensor) -> Tensor:
        return values


class General(AttentionScore):
    """s_j^T W h."""

    def __init__(self, memory_dim: int, dim: int, positions: int) -> None:
        super().__init__(memory_dim, dim, positions)
        self.source = Linear(memory_dim, dim, bias=False)
        nn.init.xavier_uniform_(self.source.weight)

    def keys(self, values: Tensor) -> Tensor:
        return self.source(values)  # type: ignore[no-any-return]


class Additive(AttentionScore):
    """v^T tanh(W s_j + U h) (Bahdanau et al. 2015, A.1.2); Luong's concat, v^T tanh([W U] [s_j; h]), is the same."""

    def __init__(self, memory_dim: int, dim: int, positions: int) -> None:
        super().__init__(memory_dim, dim, positions)
        self.source, self.target = Linear(memory_dim, dim, bias=False), Linear(dim, dim, bias=False)
        self.v = Linear(dim, 1, bias=False)
        for layer in (self.source, self.target, self.v):
            nn.init.xavier_uniform_(layer.weight)

    def keys(self, values: Tensor) -> Tensor:
        return self.source(values)  # type: ignore[no-any-return]

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        return self.v((self.target(query)[:, :, None] + keys[:, None]).tanh()).squeeze(3)  # type: ignore[no-any-return]


class Location(AttentionScore):
    """Row j of W h, whatever the source says (equation 8); there are as many rows as positions in training."""

    def __init__(self, memory_dim: int, dim: int, positions: int) -> None:
        super().__init__(memory_dim, dim, positions)
        self.weight = nn.Parameter(torch.empty(positions, dim))
        nn.init.xavier_uniform_(self.weight)

    def keys(self, values: Tensor) -> Tensor:
        if values.shape[1] > len(self.weight):
            raise UserError(
                "a source is longer than the positions that score location has learned",
                where="model.max_position",
                received=values.shape[1],
                allowed=f"up to {len(self.weight)}",
            )
        return self.weight[: values.shape[1]].expand(len(values), -1, -1)
