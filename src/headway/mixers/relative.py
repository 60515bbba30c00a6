"""Relative positions, used within attention: the biases of T5 and ALiBi, and rotations.

Shapes: B batch, K heads, L queries, S keys, O offsets, d head.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor, nn

from headway.core.config import Count, Width
from headway.core.errors import UserError
from headway.mixers import POSITIONS
from headway.mixers.positions import Position


class RelativePosition(Position):
    """The interface of relative positions; one such module can serve all layers of a stack.

    Subclasses transform queries and keys before their product (`rotate`), add biases to the scores (`ScoreBias`), or
    both. This class does neither.
    """

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """Transform queries or keys (B, K, L, d) at `positions`, (L,) or (B, L)."""
        return x

    def forward(
        self, queries: int, keys: int, offset: int | Tensor = 0, device: torch.device | None = None
    ) -> Tensor | None:
        """Return the biases of scores, or None if there are none.

        Args:
            queries: L.
            keys: S.
            offset: query i and key j are j - i + `offset` apart; a tensor (B,) if rows differ.
            device: the device of the biases.

        Returns:
            (K, L, S), or (B, K, L, S) if rows differ.
        """
        return None


class ScoreBias(RelativePosition, ABC):
    """A number for each head and offset that is added to the score."""

    @abstractmethod
    def bias(self, offsets: Tensor) -> Tensor:
        """The biases (..., K, O) at `offsets` (..., O), key position minus query position."""

    def forward(self, queries: int, keys: int, offset: int | Tensor = 0, device: torch.device | None = None) -> Tensor:
        if torch.compiler.is_exporting():  # graphs for other engines fix the size of a window
            return self._every_pair(queries, keys, offset, device)
        offsets = torch.arange(1 - queries, keys, device=device)
        offsets = offsets + (offset if isinstance(offset, int) else offset[:, None])
        # Row i is a window of `keys` values, the first of which belongs to the offset `offset` - i.
        return self.bias(offsets).unfold(-1, keys, 1).flip(-2)

    def _every_pair(self, queries: int, keys: int, offset: int | Tensor, device: torch.device | None) -> Tensor:
        """`forward`, with the bias of each pair computed separately."""
        offsets = torch.arange(keys, device=device) - torch.arange(queries, device=device)[:, None]
        offsets = offsets + (offset if isinstance(offset, int) else offset[:, None, None])
        bias = self.bias(offsets.flatten(-2))
        return bias.reshape(*bias.shape[:-1], queries, keys)


class T5Bias(ScoreBias):
    """A learned bias a head and bucket of offsets (Raffel et al. 2020, section 2.1; all layers share it).

    Half of the buckets are single offsets, the others grow logarithmically up to `max_distance`; larger offsets share
    the last bucket. If not causal, each direction has half of the buckets.

    Args:
        heads: K.
        head_dim: d, of queries and keys (not used).
        causal: whether keys only come before their query.
        buckets: the number of biases per head.
        max_distance: the distance from which all offsets share a bucket.
    """

    def __init__(
        self, heads: int, head_dim: int, causal: bool, *, buckets: Width = 32, max_distance: Count = 128
    ) -> None:
        super().__init__()
        sides = 1 if causal else 2
        if buckets % (2 * sides) or buckets <= 0:
            raise ValueError(f"buckets must be a multiple of {2 * sides}; received {buckets}")
        if max_distance <= buckets // (2 * sides):
            raise ValueError(f"max_distance must be above {buckets // (2 * sides)}; received {max_distance}")
        self.causal, self.buckets, self.max_distance = causal, buckets, max_distance
        self.table = nn.Parameter(torch.empty(buckets, heads))
        nn.init.normal_(self.table, std=0.1)

    def bucket(self, offsets: Tensor) -> Tensor:
        """The bucket of each offset (key position minus query position)."""
        size = self.buckets if self.causal else self.buckets // 2
        right = torch.zeros_like(offsets) if self.causal else (offsets > 0) * size
        distance = (-offsets).clamp(min=0) if self.causal else offsets.abs()
        exact = size // 2
        share = torch.log(distance.clamp(min=1).float() / exact) / math.log(self.max_distance / exact)
        far = (exact + (share * (size - exact)).long()).clamp(max=size - 1)
        return right + torch.where(distance < exact, distance, far)

    def bias(self, offsets: Tensor) -> Tensor:
        return self.table[self.bucket(offsets)].transpose(-1, -2)

    def extra_repr(self) -> str:
        return f"buckets={self.buckets}, max_distance={self.max_distance}"


class Alibi(ScoreBias):
    """Scores fall linearly with distance, at a fixed slope a head (Press et al. 2022, section 3).

    In both directions the slope is the same. Arguments as for `T5Bias`.
    """

    def __init__(self, heads: int, head_dim: int, causal: bool) -> None:
        super().__init__()
        self.register_buffer("slopes", torch.tensor(alibi_slopes(heads)), persistent=False)
        self.slopes: Tensor

    def bias(self, offsets: Tensor) -> Tensor:
        return -self.slopes[:, None] * offsets.abs()[..., None, :]


def alibi_slopes(heads: int) -> list[float]:
    """2^(-8/K), 2^(-16/K), ... if K is a power of two; else those of the next lower power, and every other slope of the
    next higher power (Press et al. 2022, footnote 5 and their code)."""
    power = 2 ** int(math.log2(heads))
    slopes = [2 ** (-8 * (head + 1) / power) for head in range(power)]
    return slopes + [2 ** (-4 * (2 * head + 1) / power) for head in range(heads - power)]


class Rotary(RelativePosition):
    """Queries and keys are rotated by angles proportional to their positions (Su et al. 2021, equation 34).

    Of the rotated dimensions, the first half and the second half form the pairs.

    Args:
        heads: K (not used).
        head_dim: d, of queries and keys.
        causal: not used.
        share: the share of the head's dimensions that are rotated; the others carry no position.
        base: of the geometric sequence of angles.
    """

    def __init__(
        self,
        heads: int,
        head_dim: int,
        causal: bool,
        *,
        share: Annotated[float, Field(gt=0, le=1)] = 1.0,
        base: Annotated[float, Field(gt=0, le=1e9)] = 10_000.0,
    ) -> None:
        super().__init__()
        if not 0 < share <= 1:
            raise ValueError(f"share must be above 0 and at most 1; received {share}")
        self.rotated, self.base = 2 * int(head_dim * share / 2), base
        if self.rotated == 0:
            raise ValueError(f"share {share} of a head of {head_dim} leaves no pair to rotate")
        exponents = torch.arange(0, self.rotated, 2, dtype=torch.float64) / self.rotated
        self.register_buffer("frequencies", (base**-exponents).float(), persistent=False)
        self.frequencies: Tensor

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        angles = positions.to(self.frequencies.dtype)[..., None] * self.frequencies
        angles = angles.unsqueeze(-3)  # one axis for the heads
        cosine, sine = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        left, right = x[..., : self.rotated].chunk(2, -1)
        rest = x[..., self.rotated :]
        return torch.cat([left * cosine - right * sine, right * cosine + left * sine, rest], 3)

    def extra_repr(self) -> str:
        return f"rotated={self.rotated}"


def is_relative(kind: str, where: str = "position") -> bool:
    """Whether this kind of position is used by attention, not embeddings. Raises UserError for unknown kinds."""
    return issubclass(POSITIONS.get(kind, f"{where}.kind"), RelativePosition)


class RelativePositions:
    """The relative positions of a stack: mixers with the same heads share one module with its weights.

    Args:
        config: a kind, a kind with its options, or None for no positions.
        causal: whether keys only come before their query.
        where: the recipe key, for messages.
    """

    def __init__(self, config: Mapping[str, Any] | str | None, causal: bool, where: str = "position") -> None:
        self.config = {"kind": config} if isinstance(config, str) else dict(config or {})
        self.causal, self.where = causal, where
        self.built: dict[tuple[int, int], RelativePosition] = {}

    def build(self, heads: int, head_dim: int) -> RelativePosition:
        """The module for mixers with K heads of size d. Raises UserError for an unknown kind or options."""
        if not self.config:
            return RelativePosition()
        if (heads, head_dim) not in self.built:
            kind = str(self.config.get("kind"))
            if not is_relative(kind, self.where):
                allowed = [name for name in POSITIONS if is_relative(name)]
                raise UserError("attention reads relative positions", where=self.where, received=kind, allowed=allowed)
            position = POSITIONS.build(self.config, heads, head_dim, self.causal, where=self.where)
            assert isinstance(position, RelativePosition)
            self.built[heads, head_dim] = position
        return self.built[heads, head_dim]
