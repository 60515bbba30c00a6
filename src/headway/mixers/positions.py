"""Absolute positions, added to the embeddings (Vaswani et al. 2017, section 3.5).

Shapes: L length, D model.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from headway.core.errors import UserError
from headway.mixers import POSITIONS
from headway.mixers.mixer import bounds
from headway.tensors.precision import exact_dtype


class Position(nn.Module):
    """The base class of `AbsolutePosition`, for embeddings, and `RelativePosition`, for attention."""


class AbsolutePosition(Position, ABC):
    """A vector for each position.

    Args:
        dim: D.
        max_length: the number of positions that must be supported.
    """

    def __init__(self, dim: int, max_length: int) -> None:
        super().__init__()

    @abstractmethod
    def between(self, start: int, stop: int) -> Tensor:
        """The vectors (stop - start, D) of positions start .. stop - 1, or (1, D) if all are equal."""

    @abstractmethod
    def forward(self, positions: Tensor) -> Tensor:
        """The vectors (..., D) of `positions` (...) int64, counted from 0, or (1, D) if all are equal."""


Arrangement = Literal["interleaved", "halves"]


def sinusoids(length: int, dim: int, arrangement: Arrangement = "interleaved") -> Tensor:
    """The vectors (L, D): PE(t, 2i) = sin(t / 10000^(2i/D)), PE(t, 2i+1) = cos(t / 10000^(2i/D)).

    In `halves` PE(t, i) = sin(t / 10000^(i/(T-1))), PE(t, T+i) = cos(t / 10000^(i/(T-1))), T = D / 2.
    """
    return _sinusoids_at(torch.arange(length), dim, arrangement)


def _sinusoids_at(positions: Tensor, dim: int, arrangement: Arrangement) -> Tensor:
    """The vectors (..., D) of positions (...), computed in float64 if the device supports it."""
    exact, device = exact_dtype(positions.device), positions.device
    if arrangement == "halves":
        half = (dim + 1) // 2
        frequencies = 10000.0 ** (-torch.arange(half, dtype=exact, device=device) / max(half - 1, 1))
        angles = positions.to(exact)[..., None] * frequencies
        return torch.cat([angles.sin(), angles.cos()], -1)[..., :dim].float()
    frequencies = 10000.0 ** (-torch.arange(0, dim, 2, dtype=exact, device=device) / dim)
    angles = positions.to(exact)[..., None] * frequencies
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)[..., :dim].float()


class Sinusoidal(AbsolutePosition):
    """Sines and cosines, defined for every length: those beyond the table are computed when they are needed.

    They are not stored, so that threads can share the module.

    Args:
        dim: D.
        max_length: the rows of the table.
        arrangement: sine and cosine of a frequency side by side (`interleaved`), or all sines before all cosines
            (`halves`), with Marian's frequencies.
        first: the number of the first position, which is 2 in M2M-100.
    """

    def __init__(
        self,
        dim: int,
        max_length: int,
        *,
        arrangement: Arrangement = "interleaved",
        first: Annotated[int, Field(ge=0, le=1000)] = 0,
    ) -> None:
        super().__init__(dim, max_length)
        self.arrangement: Arrangement = arrangement
        self.first = first
        table = sinusoids(first + max_length, dim, arrangement)[first:]
        self.register_buffer("table", table, persistent=False)
        self.table: Tensor

    def between(self, start: int, stop: int) -> Tensor:
        if stop <= len(self.table) and not torch.compiler.is_exporting():  # an exported graph must support every length
            return self.table[start:stop]
        return self.forward(torch.arange(start, stop, device=self.table.device))

    def forward(self, positions: Tensor) -> Tensor:
        size, dim = self.table.shape
        extremes = bounds(positions.flatten())
        if extremes is not None and extremes[1] < size:
            return F.embedding(positions, self.table)
        within = F.embedding(positions.clamp(max=size - 1), self.table)
        beyond = _sinusoids_at(self.first + positions, dim, self.arrangement).to(self.table)
        return torch.where((positions < size)[..., None], within, beyond)


class Learned(AbsolutePosition):
    """One trained vector a position.

    Beyond the trained length `between` raises UserError, as does `forward` on a CPU; on an accelerator torch fails.
    """

    def __init__(self, dim: int, max_length: int) -> None:
        super().__init__(dim, max_length)
        self.table = nn.Parameter(torch.empty(max_length, dim))
        nn.init.normal_(self.table, std=dim**-0.5)

    def between(self, start: int, stop: int) -> Tensor:
        self._require(stop)
        return self.table[start:stop]

    def forward(self, positions: Tensor) -> Tensor:
        extremes = bounds(positions.flatten())
        if extremes is not None:
            self._require(extremes[1] + 1)
        return F.embedding(positions, self.table)

    def _require(self, length: int) -> None:
        if length > self.table.shape[0]:
            raise UserError(
                "a sequence is longer than the learned positions",
                where="model.max_position",
                received=length,
                allowed=f"at most {self.table.shape[0]} positions; sinusoidal positions have no limit",
            )


class NoPosition(AbsolutePosition):
    """Nothing is added."""

    def __init__(self, dim: int, max_length: int) -> None:
        super().__init__(dim, max_length)
        self.register_buffer("zero", torch.zeros(1, dim), persistent=False)
        self.zero: Tensor

    def between(self, start: int, stop: int) -> Tensor:
        return self.zero

    def forward(self, positions: Tensor) -> Tensor:
        return self.zero


def build_absolute(config: Mapping[str, Any], dim: int, max_length: int) -> AbsolutePosition:
    """Build the absolute positions of a model's `position` section; `NoPosition` if the kind is used by attention.

    Raises:
        UserError: an unknown kind, or options that it does not have.
    """
    if not issubclass(POSITIONS.get(str(config.get("kind")), "model.position.kind"), AbsolutePosition):
        return NoPosition(dim, max_length)
    position = POSITIONS.build(config, dim, max_length, where="model.position")
    assert isinstance(position, AbsolutePosition)
    return position
