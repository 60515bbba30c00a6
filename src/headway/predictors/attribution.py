"""Attribution: how much each input token, of the source or of the output so far, contributes to each output token.

A method sees the model as a function of its token embeddings, so every method works with every model.

Shapes: S source and T target tokens, both with the end-of-sentence token; C = S + T inputs: the source, and the
decoder's input, which begins with `<s>`; D dimensions of an embedding; R rows of a batch; L positions of a block.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from headway.core.errors import UserError, option
from headway.core.log import warn
from headway.core.registry import Registry
from headway.mixers import Mixer
from headway.models import Seq2Seq
from headway.models.block import Block
from headway.models.cross_attention import CrossMixer
from headway.models.model import log_probabilities
from headway.processing.processor import Words
from headway.tensors.batch import Batch

MOST_LOGITS = 1 << 25  # of one batch
MOST_VECTORS = 1 << 13
POINTS = 4  # of the Gauss-Legendre quadrature of an interval
Baseline = Literal["zero", "unknown"]


@dataclass(frozen=True)
class Question:
    """The scores to explain: the log probability of each target token of one sentence pair, or its difference from the
    log probability of another token.

    Attributes:
        model: the model, in evaluation mode.
        batch: a batch with one sentence pair.
        against: the contrasting tokens (T,), whose log probabilities are subtracted. None to subtract nothing.
        vectors: the embeddings (C, D) of all input tokens.
        unknown: the embeddings (C, D) if every input token is replaced by the unknown token.
        choices: the size of the target vocabulary.
    """

    model: Seq2Seq
    batch: Batch
    against: Tensor | None
    vectors: Tensor
    unknown: Tensor
    choices: int

    @classmethod
    def of(cls, model: Seq2Seq, batch: Batch, against: Tensor | None, unknown: int) -> Question:
        """The scores of the pair in `batch`. Raises UserError if the model has no token embeddings on a side."""
        blank = batch.each_tensor(lambda ids: torch.full_like(ids, unknown) if ids.dtype == torch.int64 else ids)
        (vectors, choices), (nothing, _) = (_vectors(model, each) for each in (batch, blank))
        return cls(model, batch, against, vectors, nothing, choices)

    @property
    def length(self) -> int:
        """The number T of target tokens."""
        return self.batch.target_output.shape[1]

    def baseline(self, kind: Baseline) -> Tensor:
        """The embeddings (C, D) of an uninformative input: zeros, or the unknown token."""
        return torch.zeros_like(self.vectors) if kind == "zero" else self.unknown

    def scores(self, vectors: Tensor) -> Tensor:
        """The scores (R, T) of the target tokens for the embeddings (R, C, D) of the inputs."""
        with torch.no_grad():
            return torch.cat([self._scores(some) for some in torch.split(vectors, self._together)])

    def gradients(self, vectors: Tensor, tokens: Tensor) -> Tensor:
        """The gradients (R, C, D) with respect to `vectors`: in row r, of the score of target token `tokens[r]`."""
        found = []
        # In evaluation cuDNN's recurrent layers have no gradients.
        with torch.inference_mode(False), torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
            for some, token in zip(*(torch.split(each, self._together) for each in (vectors, tokens)), strict=True):
                given = some.clone().requires_grad_()
                total = self._scores(given).gather(1, token[:, None]).sum()
                found.append(torch.autograd.grad(total, given)[0])
        return torch.cat(found)

    @property
    def _together(self) -> int:
        """The number of rows that are computed in one batch."""
        return max(1, min(MOST_LOGITS // (self.length * self.choices), MOST_VECTORS // len(self.vectors)))

    def _scores(self, vectors: Tensor) -> Tensor:
        batch = replace(self.batch.each_tensor(lambda each: each.expand(len(vectors), *each.shape[1:])), labels={})
        with _embedded(self.model, batch, vectors):
            found = log_probabilities(self.model(batch).logits)
        scores = found.gather(2, batch.target_output[:, :, None])
        if self.against is not None:
            scores = scores - found.gather(2, self.against.expand(len(vectors), -1)[:, :, None])
        return scores.squeeze(2)


@contextmanager
def _embedded(
    model: Seq2Seq, batch: Batch, vectors: Tensor | None, seen: dict[str, Tensor] | None = None
) -> Iterator[None]:
    """Within this context the model uses the embeddings `vectors` (R, C, D), if any; its own are stored in `seen`."""

    def hook(module: nn.Module, given: tuple[Any, ...], found: Tensor) -> Tensor | None:
        side = next((name for name in ("source", "target_input") if given[0] is getattr(batch, name)), None)
        if side is None:
            return None
        if seen is not None:
            seen[side] = found
        size = batch.source.shape[1]
        return None if vectors is None else vectors[:, :size] if side == "source" else vectors[:, size:]

    with ExitStack() as hooks:
        for module in model.modules():
            if isinstance(module, nn.Embedding):
                hooks.callback(module.register_forward_hook(hook).remove)
        yield


@torch.no_grad()
def _vectors(model: Seq2Seq, batch: Batch) -> tuple[Tensor, int]:
    """The embeddings (C, D) of one pair, and the target vocabulary's size. Raises UserError if there are none."""
    seen: dict[str, Tensor] = {}
    with _embedded(model, batch, None, seen):
        choices = model(batch).logits.shape[2]
    if len(seen) < 2:
        what = "attribution is to the vectors of tokens, which this model does not read on both sides"
        raise UserError(what, where=option("attribution"), received=type(model).__name__)
    return torch.cat([seen["source"], seen["target_input"]], 1)[0], choices


class Attribution(ABC):
    """The base class of attribution methods. The options of a method are its keyword-only arguments.

    Attributes:
        measure: the unit of the values.
        additive: whether the values are shares of a score. If so, the values of a word's tokens are summed; otherwise
            they are averaged over the tokens of an output word.
    """

    measure: ClassVar[str] = "nats"
    additive: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """The name in the registry, or the name of the class if it is not registered."""
        return next((name for name in ATTRIBUTIONS if ATTRIBUTIONS.get(name) is type(self)), type(self).__name__)

    @abstractmethod
    def __call__(self, question: Question) -> Tensor:
        """The contribution (T, C) of each input to each target token."""


class GradientInput(Attribution):
    """Gradient x input: the gradient of a score with respect to a token's vector, times that vector."""

    def __call__(self, question: Question) -> Tensor:
        vectors = question.vectors.expand(question.length, -1, -1)
        return (question.gradients(vectors, torch.arange(question.length)) * vectors).sum(-1)


class IntegratedGradients(Attribution):
    """Integrated gradients (Sundararajan et al. 2017).

    The contributions sum to the difference between the score and the baseline's score. The path between them is split
    into intervals, and intervals with a large error are halved until the total error is at most `tolerance` (of the
    difference, or of 0.1 nats if the difference is smaller). A warning counts the tokens for which this fails.

    Args:
        steps: the number of gradients that the computation of a token starts with.
        most_steps: the largest number of gradients for a token.
        tolerance: the largest error, as a share of the difference.
        baseline: the start of the path: zero, or the embedding of the unknown token.
    """

    def __init__(
        self,
        *,
        steps: Annotated[int, Field(ge=4, le=1 << 16)] = 32,
        most_steps: Annotated[int, Field(ge=4, le=1 << 16)] = 4096,
        tolerance: Annotated[float, Field(gt=0, le=1)] = 0.01,
        baseline: Baseline = "zero",
    ) -> None:
        self.steps, self.most_steps, self.tolerance, self.baseline = steps, most_steps, tolerance, baseline

    def __call__(self, question: Question) -> Tensor:
        found = [self._of_token(question, token) for token in range(question.length)]
        missing = [share for _, share in found if share > self.tolerance]
        if missing:
            warn(
                f"integrated gradients: with {self.most_steps:,} steps the shares of {len(missing)} of {len(found)}"
                f" tokens miss what they should sum to, interval by interval, by up to {100 * max(missing):.1f} %"
            )
        return torch.stack([values for values, _ in found])

    def _of_token(self, question: Question, token: int) -> tuple[Tensor, float]:
        """The contributions (C,) to the score of one token, and the remaining error as a share of the difference."""
        vectors, start, device = question.vectors, question.baseline(self.baseline), question.vectors.device
        way, steps = vectors - start, 0
        places, shares = (torch.tensor(each / 2, device=device) for each in np.polynomial.legendre.leggauss(POINTS))

        def on_way(at: Tensor) -> Tensor:
            return start + at.to(way.dtype)[:, None, None] * way

        edges = torch.linspace(0, 1, self.steps // POINTS + 1, dtype=torch.float64, device=device)
        below, above, kept = edges[:-1], edges[1:], list[Tensor]()
        last, first = question.scores(torch.stack([vectors, start]))[:, token].tolist()
        allowed = self.tolerance * max(abs(last - first), 0.1)
        while True:
            at = (below + above)[:, None] / 2 + (above - below)[:, None] * places
            tokens = torch.full((at.numel(),), token, device=device)
            values = (question.gradients(on_way(at.flatten()), tokens) * way).sum(-1).double().view(*at.shape, -1)
            sums = (values * shares[:, None]).sum(1) * (above - below)[:, None]
            before, after = question.scores(on_way(torch.cat([below, above])))[:, token].double().chunk(2)
            new = [torch.stack([below, above], 1), sums, (sums.sum(1) - (after - before)).abs()]
            kept = [torch.cat(pair) for pair in zip(kept, new, strict=True)] if kept else new
            steps += at.numel()
            intervals, sums, missed = kept
            halved = missed > allowed / (2 * len(missed))
            if missed.sum() <= allowed or steps + 2 * POINTS * int(halved.sum()) > self.most_steps:
                return sums.sum(0).to(way.dtype), self.tolerance * float(missed.sum()) / allowed
            below, above = intervals[halved].T
            middle = (below + above) / 2
            below, above = torch.cat([below, middle]), torch.cat([middle, above])
            kept = [each[~halved] for each in kept]


class Occlusion(Attribution):
    """Occlusion (Zeiler and Fergus 2014): how much a score falls when one token's vector is replaced.

    Args:
        baseline: the replacement: zero, or the embedding of the unknown token.
    """

    def __init__(self, *, baseline: Baseline = "zero") -> None:
        self.baseline = baseline

    def __call__(self, question: Question) -> Tensor:
        places = torch.arange(len(question.vectors))
        occluded = question.vectors.repeat(len(places), 1, 1)
        occluded[places, places] = question.baseline(self.baseline)
        return (question.scores(question.vectors[None]) - question.scores(occluded)).T


class ValueZeroing(Attribution):
    """Value zeroing (Mohebbi et al. 2023): how far a position moves when the value of another is zero.

    The attention weights are unchanged. The distance is the cosine distance between the outputs of a block. Each row of
    distances is normalised to sum to one, and the matrices of all blocks of a stack are multiplied, the lowest first.
    """

    measure: ClassVar[str] = "share"
    additive: ClassVar[bool] = False

    @torch.no_grad()
    def __call__(self, question: Question) -> Tensor:
        if question.against is not None:
            what = "value zeroing says what a position is made of, whatever token is written there"
            raise UserError(what, where=option("against"), allowed="another method")
        size, total = question.batch.source.shape[1], len(question.vectors)
        read: Tensor | None = None  # (L, L), of an encoder or of a decoder-only model
        written = torch.eye(total, dtype=question.vectors.dtype, device=question.vectors.device)[size:]
        crosses = False
        for call in _calls(question.model, question.batch):
            own, crossed = call.moved()
            if crossed is None:
                read = own if read is None else own @ read
            elif read is not None:
                written, crosses = own @ written + F.pad(crossed @ read, (0, total - size)), True
        if read is None:
            what = f"value zeroing is of stacks of blocks, and a model of {type(question.model).__name__} has none"
            raise UserError(what, where=option("attribution"), allowed="another method")
        return written if crosses else read[size:]


@dataclass(frozen=True)
class Call:
    """A call of a block: its arguments, and its output `values` (1, L, D)."""

    block: Block
    given: tuple[Any, ...]
    options: dict[str, Any]
    values: Tensor

    def moved(self) -> tuple[Tensor, Tensor | None]:
        """How much each position depends on its own stack (L, L), and on the source (L, S), if the block reads it."""
        mixer = self.block.mixer
        merged = mixer.reads_source
        reader: Mixer | CrossMixer | None = mixer if merged else self.block.cross
        own = self._distances(mixer, self.values.shape[1], int(merged))  # merged attention projects the source first
        crossed = None if reader is None else self._distances(reader, self.given[2].shape[1], 0)
        totals = own.sum(1) + (0 if crossed is None else crossed.sum(1))
        own[totals == 0, totals == 0] = 1  # a position that depends on no other
        totals = totals.masked_fill(totals == 0, 1)[:, None]
        return own / totals, None if crossed is None else crossed / totals

    def _distances(self, part: Mixer | CrossMixer, count: int, turn: int) -> Tensor:
        """The cosine distances (L, count) after zeroing one value, in call `turn` (from 0) of the value projection."""
        if (found := part.value_map()) is None:
            what = "value zeroing is of parts that hand on values, as attention does"
            raise UserError(what, where=option("attribution"), received=type(part).__name__, allowed="another method")
        (module, columns), calls, rows = found, itertools.count(), torch.arange(count)

        def hook(module: nn.Module, given: tuple[Any, ...], values: Tensor) -> Tensor | None:
            if next(calls) != turn:
                return None
            values = values.clone()
            values[rows, rows, columns] = 0
            return values

        def repeated(value: Any) -> Any:
            return value.repeat(count, *[1] * (value.dim() - 1)) if isinstance(value, Tensor) else value

        registered = module.register_forward_hook(hook)
        try:
            options = {name: repeated(value) for name, value in self.options.items()}
            moved, _ = self.block(*map(repeated, self.given), **options)
        finally:
            registered.remove()
        distances = 1 - F.cosine_similarity(moved.double(), self.values.double(), dim=-1)
        return distances.clamp(min=0).T.to(moved.dtype)


def _calls(model: Seq2Seq, batch: Batch) -> list[Call]:
    """The calls of all blocks for a batch of one pair. Raises UserError for attention residuals."""
    calls: list[Call] = []

    def hook(block: Block, given: tuple[Any, ...], options: dict[str, Any], found: tuple[Any, Any]) -> None:
        if not isinstance(found[0], Tensor):
            what = "value zeroing is of blocks with plain residuals"
            raise UserError(what, where=option("attribution"), received="residual: attention", allowed="another method")
        calls.append(Call(block, given, options, found[0]))

    with ExitStack() as hooks:
        for block in model.blocks():
            if isinstance(block, Block):
                hooks.callback(block.register_forward_hook(hook, with_kwargs=True).remove)
        model(batch)
    return calls


ATTRIBUTIONS: Registry[Attribution] = Registry(
    "attribution",
    "headway.predictors.attribution:Attribution",
    {
        "gradient_input": "headway.predictors.attribution:GradientInput",
        "integrated_gradients": "headway.predictors.attribution:IntegratedGradients",
        "occlusion": "headway.predictors.attribution:Occlusion",
        "value_zeroing": "headway.predictors.attribution:ValueZeroing",
    },
)


def foils(target: Sequence[int], word: Sequence[int]) -> list[int]:
    """For each position of a target, the token that would continue `word` there, to contrast with the actual token."""

    def begun(place: int) -> int:
        """The number of tokens of the word that precede this position."""
        most = min(len(word) - 1, place)
        return next(count for count in range(most, -1, -1) if [*target[place - count : place]] == [*word[:count]])

    return [word[begun(place)] for place in range(len(target))]


def merged(values: NDArray[np.float32], source: Words, target: Words, *, additive: bool) -> NDArray[np.float32]:
    """Attributions of words, from those of tokens (T, C). The end-of-sentence tokens and `<s>` are kept.

    Values are summed over the tokens of an input word. Over the tokens of an output word they are summed if `additive`,
    and averaged otherwise.
    """
    end = len(source.texts)
    of_rows = np.array([*target.of, len(target.texts)])
    of_columns = np.array([*source.of, end, *(end + 1 + np.array([0, *(1 + word for word in target.of)]))])
    found = np.zeros((len(target.texts) + 1, end + 2 + len(target.texts)))
    np.add.at(found, (of_rows[:, None], of_columns[None]), values)
    return (found if additive else found / np.bincount(of_rows)[:, None]).astype(np.float32)
