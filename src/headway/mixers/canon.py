"""Canon layers (Allen-Zhu 2025): weighted vectors of its neighbours are added to each position before a sublayer.

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
    """The last three vectors (R, 3, D), zero before the first position."""

    recent: Tensor


class Canon(nn.Module):
    """h'_t = h_t + w_0 * h_t + w_1 * h_{t-1} + w_2 * h_{t-2} + w_3 * h_{t-3}, one weight per channel, without bias.

    A layer that is not causal reads h_{t-2} .. h_{t+1}, the window of a `LightConv` of four positions. h is zero at
    padding and outside the sequence. Weights are initialised to zero, where h' = h: the model starts as one without
    Canon layers, with the same initial values of all other parameters. The paper draws weights from -1/2 to 1/2.

    Args:
        dim: D.
        causal: whether a position may only see itself and those before it.
    """

    def __init__(self, dim: int, causal: bool) -> None:
        super().__init__()
        self.causal, self.before = causal, WINDOW - 1 if causal else WINDOW // 2
        self.weight = nn.Parameter(torch.zeros(dim, WINDOW))  # from left to right

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Return h' (B, L, D), arbitrary at padding.

        Args:
            x: h (B, L, D).
            mask: (B, L), True at real positions; None if all are real.
        """
        padded = F.pad(zero_padding(x, mask), (0, 0, self.before, WINDOW - 1 - self.before))
        return x + depthwise(padded, self.weight)

    def initial_state(self, rows: int) -> CanonState:
        """The state of `rows` rows before their first position. Raises ValueError if the layer is not causal."""
        require_causal(self.causal)
        return CanonState(self.weight.new_zeros(rows, WINDOW - 1, len(self.weight)))

    def extend(self, x: Tensor, state: CanonState, lengths: Tensor | None = None) -> tuple[Tensor, CanonState]:
        """Return h' (R, n, D) of new positions, arbitrary at padding, and the state after the real ones.

        Args:
            x: h (R, n, D).
            state: the state before them.
            lengths: (R,), how many of the n are real; None if all are.
        """
        window = torch.cat([state.recent, x], 1)  # (R, 3 + n, D)
        return x + depthwise(window, self.weight), CanonState(latest(window, WINDOW - 1, lengths))

    def extra_repr(self) -> str:
        return f"causal={self.causal}"


def extend_canon(
    canon: Canon | None, x: Tensor, state: CanonState | None, lengths: Tensor | None
) -> tuple[Tensor, CanonState | None]:
    """Apply a Canon layer, if given, to new positions x (R, n, D), and return them with its new state."""
    if canon is None:
        return x, None
    assert state is not None
    return canon.extend(x, state, lengths)
