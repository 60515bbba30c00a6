from dataclasses import dataclass

import torch
from torch import Tensor, nn

from headway.mixers import Mixed, Mixer, MixerState
from headway.mixers.mixer import require_causal


@dataclass(frozen=True)
class Sum(MixerState):
    total: Tensor  # (rows, dim)


class Own(Mixer):
    """The mean of all positions that may be seen, mapped by a matrix."""

    def __init__(self, dim, causal):
        super().__init__()
        self.causal = causal
        self.map = nn.Linear(dim, dim)

    def forward(self, x, mask, *, need_weights=False):
        real = torch.ones_like(x[:, :, :1]) if mask is None else mask[:, :, None].to(x.dtype)
        total, count = (x * real).cumsum(1), real.cumsum(1)
        if not self.causal:
            total, count = total[:, -1:], count[:, -1:]
        return Mixed(self.map(total / count.clamp(min=1)) * real, None)

    def initial_state(self, rows, capacity):
        require_causal(self.causal)
        weight = self.map.weight
        return Sum(torch.zeros(rows, dtype=torch.int64, device=weight.device), weight.new_zeros(rows, len(weight)))

    def extend(self, x, state, lengths=None):
        total = state.total[:, None] + x.cumsum(1)
        count = state.positions(x.shape[1]) + 1
        values = self.map(total / count[:, :, None])
        after = state.lengths_after(x.shape[1], lengths)
        before = torch.cat([state.total[:, None], total], 1)
        last = (after - state.lengths)[:, None, None].expand(-1, 1, x.shape[2])
        return values, Sum(after, before.gather(1, last)[:, 0])
