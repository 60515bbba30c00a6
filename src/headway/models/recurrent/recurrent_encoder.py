"""The encoder of a recurrent model.

Shapes: B batch, S source, D embedding, E encoder state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from pydantic import model_validator
from torch import Tensor, nn

from headway.core.config import Layers, Section, Width
from headway.models.model import Memory
from headway.models.recurrent.cells import States, build_cells, read
from headway.tensors.dropout import Dropout
from headway.tensors.masks import zero_padding


class RecurrentEncoderConfig(Section):
    """The encoder of a recurrent model.

    `layers`: the number of layers. `hidden`: the size of the states, both directions together. `bidirectional`: whether
    layers read in both directions. `reverse`: whether the source is read from last to first word (Sutskever et al.
    2014); the end-of-sentence token stays last.
    """

    layers: Layers = 2
    hidden: Width = 512
    bidirectional: bool = False
    reverse: bool = False

    @model_validator(mode="after")
    def _directions_fit(self) -> Self:
        if self.bidirectional and self.hidden % 2:
            raise ValueError(f"two directions share hidden, and {self.hidden} is odd")
        if self.bidirectional and self.reverse:
            raise ValueError("reverse changes nothing in an encoder that reads in both directions")
        return self


@dataclass(frozen=True)
class EncodedSource(Memory):
    """An encoded source, and the final states (layers, B, E), with both directions concatenated."""

    last: States


class Encoder(nn.Module):
    """Recurrent layers over the embedded source, in one or both directions, with dropout between them.

    Args:
        config: layers, sizes and directions.
        dim: D.
        cell: the kind of cell.
        dropout: between layers.
    """

    def __init__(self, config: RecurrentEncoderConfig, dim: int, cell: str, dropout: float) -> None:
        super().__init__()
        directions = 2 if config.bidirectional else 1
        self.reverse, self.dropout = config.reverse, Dropout(dropout)
        self.layers = nn.ModuleList(
            nn.ModuleList(build_cells(cell, inputs, config.hidden // directions) for _ in range(directions))
            for inputs in (dim, *[config.hidden] * (config.layers - 1))
        )
        self.states = nn.ModuleList(nn.Identity() for _ in self.layers)  # points of interventions

    def forward(self, x: Tensor, mask: Tensor) -> EncodedSource:
        """Encode x (B, S, D), real where mask (B, S) is True. The values are in the order of the source."""
        lengths = mask.sum(1).clamp(min=1)  # an empty row is read as one position of padding, and zeroed afterwards
        order = _reversal(lengths - 1, mask.shape[1]) if self.reverse else None
        x = _ordered(x, order)
        backwards = _reversal(lengths, mask.shape[1])
        last = []
        for number, layer in enumerate(self.layers):
            x = x if number == 0 else self.dropout(x)
            forward = read(layer[0], x, lengths)  # type: ignore[index]
            both = [forward]
            if len(layer) == 2:  # type: ignore[arg-type]
                values, states = read(layer[1], _ordered(x, backwards), lengths)  # type: ignore[index]
                both.append((_ordered(values, backwards), states))
            x = self.states[number](torch.cat([values for values, _ in both], -1))
            last.append([torch.cat(ends, -1) for ends in zip(*(states for _, states in both), strict=True)])
        states = tuple(torch.cat(parts) for parts in zip(*last, strict=True))
        return EncodedSource(zero_padding(_ordered(x, order), mask), mask, states)


def _reversal(lengths: Tensor, length: int) -> Tensor:
    """The index (B, S) that reverses the first `lengths` (B,) positions of each row; it is its own inverse."""
    positions = torch.arange(length, device=lengths.device).expand(len(lengths), -1)
    turned = lengths[:, None] - 1 - positions
    return torch.where(turned >= 0, turned, positions)


def _ordered(x: Tensor, order: Tensor | None) -> Tensor:
    return x if order is None else x.gather(1, order[:, :, None].expand_as(x))
