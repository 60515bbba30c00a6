"""Attention to the source with one head: a score, a window and a choice (Luong et al. 2015; Bahdanau et al. 2015).

The values are the encoded source itself.
Shapes: B sentences, T queries, S source, E memory, H query, W hypotheses of a sentence, R = B * W rows of a decoding
step, n new positions of a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from pydantic import model_validator
from torch import Tensor

from headway.config import Section, Width
from headway.models.choices import Choice, hard, joined, soft
from headway.models.cross_attention import CrossMixer, Read, View
from headway.models.scores import Additive, AttentionScore, Dot, General, Location
from headway.models.windows import WINDOWS
from headway.tensors.masks import additive


class ScoredConfig(Section):
    """The options of attention with one head.

    `window`: `global`, or positions up to `width` from a centre: the query's own position (`local-m`) or a predicted
    one (`local-p`). `choice`: `soft` takes the weighted sum of all positions, `hard` one position, `monotonic` one
    position that never moves back. `estimator`, in training of the last two: `reinforce` or `straight_through`.
    """

    window: Literal["global", "local-m", "local-p"] = "global"
    width: Width = 10
    choice: Literal["soft", "hard", "monotonic"] = "soft"
    estimator: Literal["reinforce", "straight_through"] = "reinforce"

    @model_validator(mode="after")
    def _one_position_has_no_weight(self) -> ScoredConfig:
        if self.choice != "soft" and self.window == "local-p":
            raise ValueError(
                f"window local-p weighs positions, and {self.choice} attention takes one: use soft attention"
            )
        return self


class ProductConfig(ScoredConfig):
    """The options where scores are products. `scaled` divides them by the root of H, so that attention begins soft."""

    scaled: bool = False


@dataclass(frozen=True)
class ScoredView(View):
    """Values (B, S, E), a mask (B, S), and the keys that the score made of them."""

    values: Tensor
    mask: Tensor
    keys: Tensor


class ScoredAttention(CrossMixer):
    """A score within a window, soft or hard.

    Args:
        dim: H.
        memory_dim: E, also the size of the values.
        positions: the longest source in training, for scores that learn positions.
        config: window and choice.
    """

    Config: ClassVar[type[ScoredConfig]]
    AttentionScore: ClassVar[type[AttentionScore]]

    def __init__(self, dim: int, memory_dim: int, positions: int, config: ScoredConfig) -> None:
        super().__init__()
        self.size, self.choice, self.estimator = memory_dim, config.choice, config.estimator
        self.ordered = config.choice == "monotonic"
        self.sampled = config.choice != "soft" and config.estimator == "reinforce"
        self.score = self.AttentionScore(memory_dim, dim, positions)
        self.scale = dim**-0.5 if isinstance(config, ProductConfig) and config.scaled else 1.0
        self.window = WINDOWS[config.window](dim, config.width)

    def project(self, memory: Tensor, mask: Tensor | None) -> ScoredView:
        if mask is None:
            mask = torch.ones(memory.shape[:2], dtype=torch.bool, device=memory.device)
        return ScoredView(memory, mask, self.score.keys(memory))

    def forward(self, x: Tensor, view: View, *, need_weights: bool = False) -> Read:
        assert isinstance(view, ScoredView)
        positions = torch.arange(x.shape[1], device=x.device)[None]
        return self._read(x, view, positions, positions.new_zeros(len(x), 1))

    def extend(
        self,
        x: Tensor,
        view: View,
        width: int,
        positions: Tensor,
        previous: Tensor | None = None,
        *,
        need_weights: bool = False,
    ) -> Read:
        assert isinstance(view, ScoredView)
        queries = x.reshape(-1, width * x.shape[1], x.shape[2])
        following = positions[:, None] + torch.arange(x.shape[1], device=x.device)  # (R, n)
        before = None if previous is None else previous.view(-1, width)
        read = self._read(queries, view, following.view(len(queries), -1), before)
        return read._replace(values=read.values.reshape(*x.shape[:2], -1))

    def scores(self, x: Tensor, view: View) -> Tensor:
        assert isinstance(view, ScoredView)
        scores: Tensor = self.score(x, view.keys) * self.scale
        return scores[:, None]

    def _read(self, x: Tensor, view: ScoredView, positions: Tensor, previous: Tensor | None) -> Read:
        """The queries x (B, W * n, H), W hypotheses one after the other; `previous` (B, W) for `ordered` attention."""
        allowed, factor = self.window(x, view.mask, positions)
        scores = self.score(x, view.keys) * self.scale
        scores = scores + additive(allowed, scores.dtype)
        if self.choice == "soft":
            choice = soft(scores, factor)
        elif self.choice == "hard":
            choice = hard(scores, self.estimator, self.training)
        else:
            assert previous is not None
            choice = self._in_order(scores, previous)
        values = torch.bmm(choice.weights.to(view.values.dtype), view.values)
        return Read(values, choice.weights[:, None], choice)

    def _in_order(self, scores: Tensor, previous: Tensor) -> Choice:
        """Choices from scores (B, W * n, S), none of them before that of the query before it, at first `previous`."""
        hypotheses = scores.view(*previous.shape, -1, scores.shape[-1])  # (B, W, n, S)
        source, choices = torch.arange(scores.shape[-1], device=scores.device), list[Choice]()
        for step in hypotheses.unbind(2):
            behind = source < previous[..., None]
            choices.append(hard(step.masked_fill(behind, torch.finfo(step.dtype).min), self.estimator, self.training))
            assert choices[-1].position is not None
            previous = choices[-1].position
        return joined(choices)


class DotAttention(ScoredAttention):
    """Scores s_j^T h; needs E = H."""

    Config, AttentionScore = ProductConfig, Dot

    def __init__(self, dim: int, memory_dim: int, positions: int, config: ProductConfig) -> None:
        if dim != memory_dim:
            raise ValueError(f"dot compares vectors of one size; received {memory_dim} and {dim}")
        super().__init__(dim, memory_dim, positions, config)


class GeneralAttention(ScoredAttention):
    """Scores s_j^T W h."""

    Config, AttentionScore = ProductConfig, General


class AdditiveAttention(ScoredAttention):
    """Scores v^T tanh(W s_j + U h), also called concat."""

    Config, AttentionScore = ScoredConfig, Additive


class LocationAttention(ScoredAttention):
    """Scores W h, whatever the source says."""

    Config, AttentionScore = ProductConfig, Location
