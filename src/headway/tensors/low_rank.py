"""Low-rank adaptation of linear maps (LoRA): W is frozen, and a product of two thin matrices is learned and added.

h = W x + b + (alpha / rank) B A x, with A (rank, D) initialised as in `nn.Linear`, and B (O, rank) initialised to zero,
so that training starts from the original model (Hu et al. 2022, section 4.1).

Shapes: D inputs, O outputs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from torch import Tensor, nn
from torch.nn import functional as F

from headway.tensors.dropout import Dropout
from headway.tensors.linear import Linear
from headway.tensors.names import counted_from_1

CHANGE = ".low_rank."  # in the names of its tensors, after the name of the linear map


class LowRank(nn.Module):
    """The learned change of a linear map: scale * B A x.

    Args:
        layer: the linear map, which determines type and device.
        rank: of the change.
        alpha: the scale is alpha / rank.
        dropout: of x, for the change only.
    """

    scale: Tensor

    def __init__(self, layer: nn.Linear, rank: int, alpha: float, dropout: float) -> None:
        super().__init__()
        outputs, inputs = layer.weight.shape
        self.dropout = Dropout(dropout)
        self.down = nn.Parameter(layer.weight.new_empty(rank, inputs))
        self.up = nn.Parameter(layer.weight.new_zeros(outputs, rank))
        self.register_buffer(
            "scale", layer.weight.new_tensor(alpha / rank)
        )  # saved, so that the tensors suffice for merging
        nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))

    def forward(self, x: Tensor) -> Tensor:
        """The change (..., O) for x (..., D)."""
        return F.linear(F.linear(self.dropout(x), self.down), self.up) * self.scale


def adapt(model: nn.Module, rank: int, alpha: float, dropout: float, patterns: Sequence[str]) -> list[str]:
    """Freeze a model, and add a trainable low-rank change to the linear maps whose names match a pattern.

    Args:
        model: the model; its other parameters no longer require a gradient.
        rank: of each change.
        alpha: each is scaled by alpha / rank.
        dropout: of the input of each change.
        patterns: of names with layers counted from 1, such as `encoder.1.*` or `*.in_projection`; maps that share their
            weight are left out.

    Returns:
        The names of the maps.

    Raises:
        ValueError: a pattern matches no linear map that could be changed.
    """
    layers = {name: module for name, module in model.named_modules() if isinstance(module, Linear)}
    uses = Counter(id(parameter) for _, parameter in model.named_parameters(remove_duplicate=False))
    free = {counted_from_1(name): name for name, layer in layers.items() if uses[id(layer.weight)] == 1}
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in free):
            raise ValueError(f"{pattern} matches none of the linear maps ({', '.join(free) or 'there are none'})")
    model.requires_grad_(False)
    chosen = [name for shown, name in free.items() if any(fnmatchcase(shown, pattern) for pattern in patterns)]
    for name in chosen:
        layers[name].low_rank = LowRank(layers[name], rank, alpha, dropout)
    return chosen


def merged(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights by name, with every low-rank change added to its weight, computed in float64."""
    plain = {name: tensor for name, tensor in weights.items() if CHANGE not in name}
    for layer in dict.fromkeys(name.partition(CHANGE)[0] for name in weights if CHANGE in name):
        scale, up, down = (weights[f"{layer}{CHANGE}{part}"].double() for part in ("scale", "up", "down"))
        weight = plain[f"{layer}.weight"]
        plain[f"{layer}.weight"] = (weight.double() + scale * (up @ down)).to(weight.dtype)
    return plain
