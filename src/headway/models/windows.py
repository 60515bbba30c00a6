"""Windows: the source positions that a query may look at (Luong et al. 2015, section 3.2).

Positions count from 0. Shapes: B batch, T queries, S source, H query.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from headway.tensors.linear import Linear


class AttentionWindow(nn.Module, ABC):
    """A choice of source positions.

    Args:
        dim: H.
        width: how far from its centre a window reaches, in positions.
    """

    def __init__(self, dim: int, width: int) -> None:
        super().__init__()
        self.width = width

    @abstractmethod
    def forward(self, query: Tensor, mask: Tensor, positions: Tensor) -> tuple[Tensor, Tensor | None]:
        """Positions that each query may look at, and the factors of its weights.

        Args:
            query: (B, T, H).
            mask: (B, S), True where the source is real.
            positions: (B or 1, T) of the queries in their target.

        Returns:
            A mask (B, T or 1, S), which leaves at least one position of a source, and factors (B, T, S) or None.
        """


class Global(AttentionWindow):
    """The whole source."""

    def forward(self, query: Tensor, mask: Tensor, positions: Tensor) -> tuple[Tensor, None]:
        return mask[:, None], None


class LocalMonotonic(AttentionWindow):
    """local-m: up to D positions from the query's own position, or from the source's end once that lies behind."""

    def forward(self, query: Tensor, mask: Tensor, positions: Tensor) -> tuple[Tensor, None]:
        centre = torch.minimum(positions, mask.sum(1, keepdim=True) - 1)
        return mask[:, None] & (_distances(mask, centre).abs() <= self.width), None


class LocalPredictive(AttentionWindow):
    """local-p: up to D positions from p = length * sigmoid(v^T tanh(W h)), weighed by a Gaussian around p.

    Its deviation is D / 2 (equations 9 and 10); the weights are not normalised again.
    """

    def __init__(self, dim: int, width: int) -> None:
        super().__init__(dim, width)
        self.hidden, self.v = Linear(dim, dim, bias=False), Linear(dim, 1, bias=False)
        for layer in (self.hidden, self.v):
            nn.init.xavier_uniform_(layer.weight)

    def forward(self, query: Tensor, mask: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        # In float32 also under autocast: bf16 cannot tell neighbouring positions beyond 256 apart.
        share = self.v(self.hidden(query).tanh()).squeeze(2)
        share = share.to(torch.promote_types(share.dtype, torch.float32)).sigmoid()
        distances = _distances(mask, mask.sum(1, keepdim=True) * share)
        deviation = self.width / 2
        return mask[:, None] & (distances.abs() <= self.width), (-(distances**2) / (2 * deviation**2)).exp()


def _distances(mask: Tensor, centre: Tensor) -> Tensor:
    """How far each source position lies behind `centre` (B, T): (B, T, S)."""
    return torch.arange(mask.shape[1], device=mask.device) - centre[:, :, None]


WINDOWS: dict[str, type[AttentionWindow]] = {"global": Global, "local-m": LocalMonotonic, "local-p": LocalPredictive}
