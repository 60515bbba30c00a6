"""Canon layers (Allen-Zhu 2025): each position receives weighted vectors of its neighbours before a sublayer reads it.

Shapes: B batch, L length, D model, R rows of a state, n new positions.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headway.mixers.mixer import State, latest, require_causal
from headway.tensors.depthwise import depthwise
from headway.tensors.masks import zero_padding

WINDOW = 4  # positions, as in the paper


@dataclass(frozen=True)
class CanonState(State):
    """The last three vectors (R, 3, D), zeros before the first."""

    recent: Tensor


class Canon(nn.Module):
    """h'_t = h_t + w_0 * h_t + w_1 * h_{t-1} + w_2 * h_{t-2} + w_3 * h_{t-3}, a weight a channel, without bias.

    A layer that is not causal reads h_{t-2} .. h_{t+1}, the window that `LightConv` has of four positions. h is zero at
    padding and outside the sequence. Weights begin as zeros, where h' = h: the model begins as the one without Canon
    layers, and none of its other parameters is drawn otherwise. The paper's code begins with weights drawn from -1/2 to
    1/2.

    Args:
        dim: D.
        causal: whether a position may only see itself and those before it.
    """

    def __init__(self, dim: int, causal: bool) -> None:
        super().__init__()
        self.causal, self.before = causal, WINDOW - 1 if causal else WINDOW // 2
        self.weight = nn.Parameter(torch.zeros(dim, WINDOW))  # from the leftmost position of the window on

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """h' (B, L, D) of h, arbitrary at padding.

        Args:
            x: h (B, L, D).
            mask: (B, L), True where a position is real; None when all are.
        """
        padded = F.pad(zero_padding(x, mask), (0, 0, self.before, WINDOW - 1 - self.before))
        return x + depthwise(padded, self.weight)

    def initial_state(self, rows: int) -> CanonState:
        """The state of R rows before their first position. Raises ValueError where the layer is not causal."""
        require_causal(self.causal)
        return CanonState(self.weight.new_zeros(rows, WINDOW - 1, len(self.weight)))

    def extend(self, x: Tensor, state: CanonState, lengths: Tensor | None = None) -> tuple[Tensor, CanonState]:
        """h' (R, n, D) of new positions, arbitrary at padding, and the state after the real ones.

        Args:
            x: h (R, n, D).
            state: the state before them.
            lengths: (R,), how many of the n are real, where they are not all.
        """
        window = torch.cat([state.recent, x], 1)  # (R, 3 + n, D)
        return x + depthwise(window, self.weight), CanonState(latest(window, WINDOW - 1, lengths))

    def extra_repr(self) -> str:
        """The options, for print(model)."""
        return f"causal={self.causal}"
