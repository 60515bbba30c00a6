"""Single-head attention to the source: a score, a window and a choice (Luong et al. 2015; Bahdanau et al. 2015).

Scores say how well each source position matches a query (Luong et al. 2015, section 3.1). Windows restrict the
positions (section 3.2). Choices turn scores into weights, either spread over positions (soft) or on one of them (hard).
The values are the encoded source itself, s_j; h is a query. Positions count from 0.

Shapes: B sentences, T queries, S source, E memory, H query, W hypotheses of a sentence, R = B * W rows of a decoding
step, n new positions of a row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from pydantic import model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from headway.core.config import Section, Width
from headway.core.errors import UserError
from headway.models.cross_attention import Choice, CrossMixer, Read, View
from headway.tensors.linear import Linear
from headway.tensors.masks import additive


class AttentionScore(nn.Module, ABC):
    """The scores of all source positions: by default dot products of queries and keys, which depend only on the source.

    Args:
        memory_dim: E.
        dim: H.
        positions: the longest source in training.
    """

    def __init__(self, memory_dim: int, dim: int, positions: int) -> None:
        super().__init__()

    @abstractmethod
    def keys(self, values: Tensor) -> Tensor:
        """The keys (B, S, H) of the encoded source (B, S, E)."""

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """The scores (B, T, S) of queries (B, T, H) and keys (B, S, H)."""
        return torch.bmm(query, keys.transpose(1, 2))


class Dot(AttentionScore):
    """s_j^T h."""

    def keys(self, values: Tensor) -> Tensor:
        return values


class General(AttentionScore):
    """s_j^T W h."""

    def __init__(self, memory_dim: int, dim: int, positions: int) -> None:
        super().__init__(memory_dim, dim, positions)
        self.source = Linear(memory_dim, dim, bias=False)
        nn.init.xavier_uniform_(self.source.weight)

    def keys(self, values: Tensor) -> Tensor:
        return self.source(values)  # type: ignore[no-any-return]


class Additive(AttentionScore):
    """v^T tanh(W s_j + U h) (Bahdanau et al. 2015, A.1.2); Luong's concat, v^T tanh([W U] [s_j; h]), is the same."""

    def __init__(self, memory_dim: int, dim: int, positions: int) -> None:
        super().__init__(memory_dim, dim, positions)
        self.source, self.target = Linear(memory_dim, dim, bias=False), Linear(dim, dim, bias=False)
        self.v = Linear(dim, 1, bias=False)
        for layer in (self.source, self.target, self.v):
            nn.init.xavier_uniform_(layer.weight)

    def keys(self, values: Tensor) -> Tensor:
        return self.source(values)  # type: ignore[no-any-return]

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        return self.v((self.target(query)[:, :, None] + keys[:, None]).tanh()).squeeze(3)  # type: ignore[no-any-return]


class Location(AttentionScore):
    """Row j of W h, independent of the source (equation 8); there are as many rows as positions in training."""

    def __init__(self, memory_dim: int, dim: int, positions: int) -> None:
        super().__init__(memory_dim, dim, positions)
        self.weight = nn.Parameter(torch.empty(positions, dim))
        nn.init.xavier_uniform_(self.weight)

    def keys(self, values: Tensor) -> Tensor:
        if values.shape[1] > len(self.weight):
            raise UserError(
                "a source is longer than the positions that score location has learned",
                where="model.max_position",
                received=values.shape[1],
                allowed=f"up to {len(self.weight)}",
            )
        return self.weight[: values.shape[1]].expand(len(values), -1, -1)


class AttentionWindow(nn.Module, ABC):
    """A restriction of attention to some source positions.

    Args:
        dim: H.
        width: how far a window reaches from its centre, in positions.
    """

    def __init__(self, dim: int, width: int) -> None:
        super().__init__()
        self.width = width

    @abstractmethod
    def forward(self, query: Tensor, mask: Tensor, positions: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the positions that each query may attend to, and factors of its weights.

        Args:
            query: (B, T, H).
            mask: (B, S), True at real source positions.
            positions: (B or 1, T) of the queries in their target.

        Returns:
            A mask (B, T or 1, S) with at least one source position per query, and factors (B, T, S) or None.
        """


class Global(AttentionWindow):
    """The whole source."""

    def forward(self, query: Tensor, mask: Tensor, positions: Tensor) -> tuple[Tensor, None]:
        return mask[:, None], None


class LocalMonotonic(AttentionWindow):
    """local-m: up to D positions from the query's own position, or from the end of the source if that comes first."""

    def forward(self, query: Tensor, mask: Tensor, positions: Tensor) -> tuple[Tensor, None]:
        centre = torch.minimum(positions, mask.sum(1, keepdim=True) - 1)
        return mask[:, None] & (_distances(mask, centre).abs() <= self.width), None


class LocalPredictive(AttentionWindow):
    """local-p: up to D positions from p = length * sigmoid(v^T tanh(W h)), weighted by a Gaussian around p.

    Its deviation is D / 2 (equations 9 and 10); the weights are not normalised again.
    """

    def __init__(self, dim: int, width: int) -> None:
        super().__init__(dim, width)
        self.hidden, self.v = Linear(dim, dim, bias=False), Linear(dim, 1, bias=False)
        for layer in (self.hidden, self.v):
            nn.init.xavier_uniform_(layer.weight)

    def forward(self, query: Tensor, mask: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        # In float32 also under autocast: bf16 cannot represent all positions beyond 256.
        share = self.v(self.hidden(query).tanh()).squeeze(2)
        share = share.to(torch.promote_types(share.dtype, torch.float32)).sigmoid()
        distances = _distances(mask, mask.sum(1, keepdim=True) * share)
        deviation = self.width / 2
        return mask[:, None] & (distances.abs() <= self.width), (-(distances**2) / (2 * deviation**2)).exp()


def _distances(mask: Tensor, centre: Tensor) -> Tensor:
    """The signed distance (B, T, S) of each source position from `centre` (B, T)."""
    return torch.arange(mask.shape[1], device=mask.device) - centre[:, :, None]


WINDOWS: dict[str, type[AttentionWindow]] = {"global": Global, "local-m": LocalMonotonic, "local-p": LocalPredictive}


def soft(scores: Tensor, factor: Tensor | None) -> Choice:
    """Soft attention: the softmax of the scores (B, T, S), times `factor` if given."""
    weights = scores.softmax(-1)
    return Choice(weights if factor is None else weights * factor)


def hard(scores: Tensor, estimator: str, training: bool) -> Choice:
    """Hard attention: the position of the highest score or, in training by `reinforce`, a sample from the softmax.

    In training by `straight_through`, the gradient of the weights is passed to the softmax.
    """
    if not training or estimator == "straight_through":
        position = scores.argmax(-1)
        weights = F.one_hot(position, scores.shape[-1]).to(scores.dtype)
        if training:
            spread = scores.softmax(-1)
            weights = weights - spread.detach() + spread
        return Choice(weights, position)
    log_probabilities = scores.log_softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32))
    probabilities = log_probabilities.exp()
    position = torch.multinomial(probabilities.detach().flatten(0, 1), 1).view(scores.shape[:2])
    return Choice(
        F.one_hot(position, scores.shape[-1]).to(scores.dtype),
        position,
        log_probabilities.gather(2, position[..., None]).squeeze(2),
        -(probabilities * log_probabilities).sum(-1),
    )


def joined(choices: list[Choice]) -> Choice:
    """Combine the choices of n steps, (B, W) queries each, into that of W * n queries, grouped by hypothesis."""

    def join(name: str) -> Tensor | None:
        parts = [getattr(choice, name) for choice in choices]
        return None if parts[0] is None else torch.stack(parts, 2).flatten(1, 2)

    weights = torch.stack([choice.weights for choice in choices], 2).flatten(1, 2)
    return Choice(weights, *map(join, Choice._fields[1:]))


class ScoredConfig(Section):
    """The options of attention with one head.

    `window`: `global`, or positions around a centre: the query's own position (`local-m`) or a predicted one
    (`local-p`). `width`: the largest distance from the centre. `choice`: `soft` takes the weighted sum of all
    positions, `hard` one position, `monotonic` one position that never moves back. `estimator`: how the gradient of
    `hard` and `monotonic` is estimated.
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
    """The options of scores that are products. `scaled`: divide them by the root of H, for initially soft attention."""

    scaled: bool = False


@dataclass(frozen=True)
class ScoredView(View):
    """The encoded source: values (B, S, E), a mask (B, S), and the keys (B, S, H) of the score."""

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
        """Attend with queries x (B, W * n, H), grouped by hypothesis; `previous` (B, W) for `ordered` attention."""
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
        """Choose positions from scores (B, W * n, S), none before that of the previous query, at first `previous`."""
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
    """Scores W h, independent of the source."""

    Config, AttentionScore = ProductConfig, Location
