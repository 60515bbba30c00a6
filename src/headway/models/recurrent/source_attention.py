"""Attention of a recurrent decoder to the source: a score, a window and a choice.

Shapes: B batch, T queries, S source, E encoder state, H decoder state.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from headway.models.model_config import RecurrentAttentionConfig
from headway.models.recurrent.choices import Choice, hard, joined, soft
from headway.models.recurrent.scores import SCORES
from headway.models.recurrent.windows import WINDOWS
from headway.tensors.masks import additive


class SourceView(NamedTuple):
    """What attention sees of the source: values (B, S, E), a mask (B, S), and what its score made of them."""

    values: Tensor
    mask: Tensor
    keys: Tensor


class SourceAttention(nn.Module):
    """Any of `SCORES` within any of `WINDOWS`, soft or hard.

    Args:
        config: the attention section of the model.
        encoder: E.
        decoder: H.
        positions: the longest source in training, for scores that learn positions.
    """

    def __init__(self, config: RecurrentAttentionConfig, encoder: int, decoder: int, positions: int) -> None:
        super().__init__()
        self.config = config
        self.score = SCORES[config.score](encoder, decoder, positions)
        self.scale = decoder**-0.5 if config.scaled else 1.0
        self.window = WINDOWS[config.window](decoder, config.width)

    def view(self, values: Tensor, mask: Tensor) -> SourceView:
        """What the queries of a target, or the steps of a search, see of the encoded source (B, S, E)."""
        return SourceView(values, mask, self.score.keys(values))

    def forward(
        self, query: Tensor, view: SourceView, positions: Tensor, place: Tensor | None
    ) -> tuple[Tensor, Choice]:
        """Contexts (B, T, E) of queries (B, T, H) that do not depend on each other, and the choices behind them.

        Args:
            query: (B, T, H).
            view: what `view` gave.
            positions: (T,) or (1,), the place of each query in the target.
            place: (B, T), for monotonic attention: the source position that each query may not go behind.
        """
        choice = self._choose(*self._scores(query, view, positions), place)
        return _contexts(choice, view), choice

    def in_order(self, query: Tensor, view: SourceView) -> tuple[Tensor, Choice]:
        """As `forward`, for the consecutive queries of a whole target."""
        positions = torch.arange(query.shape[1], device=query.device)
        scores, factor = self._scores(query, view, positions)
        if self.config.kind != "monotonic":
            choice = self._choose(scores, factor, None)
        else:
            choices, place = [], positions.new_zeros(len(query), 1)
            for each in scores.unsqueeze(2).unbind(1):
                choices.append(self._choose(each, None, place))
                assert choices[-1].place is not None
                place = choices[-1].place
            choice = joined(choices)
        return _contexts(choice, view), choice

    def _scores(self, query: Tensor, view: SourceView, positions: Tensor) -> tuple[Tensor, Tensor | None]:
        allowed, factor = self.window(query, view.mask, positions)
        scores = self.score(query, view.keys) * self.scale
        return scores + additive(allowed, scores.dtype), factor

    def _choose(self, scores: Tensor, factor: Tensor | None, place: Tensor | None) -> Choice:
        if self.config.kind == "soft":
            return soft(scores, factor)
        if place is not None:
            ahead = torch.arange(scores.shape[-1], device=scores.device) >= place[..., None]
            scores = scores.masked_fill(~ahead, torch.finfo(scores.dtype).min)
        return hard(scores, self.config, self.training)


def _contexts(choice: Choice, view: SourceView) -> Tensor:
    return torch.bmm(choice.weights.to(view.values.dtype), view.values)
