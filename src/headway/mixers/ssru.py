"""The simpler simple recurrent unit (Kim et al. 2019): a running mean of each channel with a forget gate.

Shapes: B batch, L length, D model, R rows of a state, n new positions of each.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headway.mixers.mixer import Mixed, Mixer, MixerState, State, latest, require_causal
from headway.tensors.linear import Linear
from headway.tensors.masks import zero_padding
from headway.tensors.recurrence import recurrence


@dataclass(frozen=True)
class SsruState(MixerState):
    """c (R, D) of the last position; zero before the first."""

    mean: Tensor


class Ssru(Mixer):
    """The simpler simple recurrent unit: a gated mean of all positions so far.

    f_t = sigmoid(W_f x_t + b), c_t = f_t c_{t-1} + (1 - f_t) W x_t, z_t = ReLU(c_t). A mixer that is not causal adds a
    second mean c' from the end of the sequence, with separate gates g_t = sigmoid(W_g x_t + b_g): z_t = ReLU(c_t + g_t
    c'_{t+1}), which counts W x_t once. Gates and means are float32 at least.

    Args:
        dim: D.
        causal: whether a position may only see itself and those before it.
    """

    def __init__(self, dim: int, causal: bool) -> None:
        super().__init__()
        self.causal = causal
        self.in_projection = Linear(dim, [dim] * (2 if causal else 3), bias=False)  # values, then the gates
        self.bias = nn.Parameter(torch.zeros((1 if causal else 2) * dim))  # of the gates
        for block in self.in_projection.matrices():
            nn.init.xavier_uniform_(block)

    def forward(self, x: Tensor, mask: Tensor | None, *, need_weights: bool = False) -> Mixed:
        values, gates = self._project(x)
        if mask is not None:  # padding keeps the mean unchanged
            gates = gates.masked_fill(~mask[..., None], 1)
        forward, backward = gates[..., : x.shape[2]], gates[..., x.shape[2] :]
        mean = recurrence(forward, (1 - forward) * values)
        if not self.causal:
            own = (1 - backward) * values
            mean = mean + recurrence(backward, own, reverse=True) - own
        return Mixed(zero_padding(mean.relu(), mask), None)

    def value_map(self) -> tuple[nn.Module, slice]:
        return self.in_projection, slice(self.in_projection.in_features)

    def _project(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """W x (B, L, D), and the gates (B, L, D), or of both directions (B, L, 2 D)."""
        projected = self.in_projection(x).to(self.bias.dtype)
        return projected[..., : x.shape[2]], torch.sigmoid(projected[..., x.shape[2] :] + self.bias)

    def initial_state(self, rows: int, capacity: int) -> MixerState:
        require_causal(self.causal)
        lengths = torch.zeros(rows, dtype=torch.int64, device=self.bias.device)
        return SsruState(lengths, self.bias.new_zeros(rows, len(self.bias)))

    def extend(self, x: Tensor, state: State, lengths: Tensor | None = None) -> tuple[Tensor, MixerState]:
        assert isinstance(state, SsruState)
        values, gate = self._project(x)
        if x.shape[1] == 1:
            means = torch.lerp(values, state.mean[:, None], gate)
        else:
            before = torch.cat([state.mean[:, None], (1 - gate) * values], 1)
            means = recurrence(F.pad(gate, (0, 0, 1, 0)), before)[:, 1:]
        window = means if lengths is None else torch.cat([state.mean[:, None], means], 1)
        mean = latest(window, 1, lengths).squeeze(1)
        return means.relu(), SsruState(state.lengths_after(x.shape[1], lengths), mean)
