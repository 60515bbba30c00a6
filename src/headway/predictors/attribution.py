"""Attribution: how much each token that a model reads, of the source and of its own prefix, counts for each it writes.

Methods see a model as a function of its token vectors, so that they are the same for every model.

Shapes: S source tokens with the end mark, T target tokens with theirs, C = S + T inputs: those of the source and, the
begin mark first, of the prefix; D of a token's vector, R rows of a batch, L positions of a block.
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

MOST_LOGITS = 1 << 25  # in memory at once
MOST_VECTORS = 1 << 13
POINTS = 4  # of a quadrature of an interval
Baseline = Literal["zero", "unknown"]


@dataclass(frozen=True)
class Question:
    """A pair, and the scores that are asked for: of each target token its log probability, or how much it is above
    that of another.

    Attributes:
        model: in evaluation.
        batch: of one pair.
        against: (T,) the tokens that stand against the target's; None without.
        vectors: (C, D) of all tokens that are read.
        unknown: (C, D), the vector of the unknown token in the place of each.
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
        """The question for a pair. Raises UserError where the model reads no token vectors."""
        blank = batch.each_tensor(lambda ids: torch.full_like(ids, unknown) if ids.dtype == torch.int64 else ids)
        (vectors, choices), (nothing, _) = (_vectors(model, each) for each in (batch, blank))
        return cls(model, batch, against, vectors, nothing, choices)

    @property
    def length(self) -> int:
        """T."""
        return self.batch.target_output.shape[1]

    def baseline(self, kind: Baseline) -> Tensor:
        """(C, D): vectors that say nothing."""
        return torch.zeros_like(self.vectors) if kind == "zero" else self.unknown

    def scores(self, vectors: Tensor) -> Tensor:
        """(R, T): what the model makes of each target token, for vectors (R, C, D)."""
        with torch.no_grad():
            return torch.cat([self._scores(some) for some in torch.split(vectors, self._together)])

    def gradients(self, vectors: Tensor, tokens: Tensor) -> Tensor:
        """(R, C, D): the gradient of the score of token `tokens` (R,) of each row with respect to its vectors."""
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
        """The rows of a batch."""
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
    """Within this context the ids of a batch become `vectors` (R, C, D); `seen` gets those that they would become."""

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
    """(C, D) of one pair, and how many tokens can be written. Raises UserError where no token vectors are read."""
    seen: dict[str, Tensor] = {}
    with _embedded(model, batch, None, seen):
        choices = model(batch).logits.shape[2]
    if len(seen) < 2:
        what = "attribution is to the vectors of tokens, which this model does not read on both sides"
        raise UserError(what, where=option("attribution"), received=type(model).__name__)
    return torch.cat([seen["source"], seen["target_input"]], 1)[0], choices


class Attribution(ABC):
    """A method. Its options are its keyword-only arguments.

    Attributes:
        measure: the unit of its values.
        additive: whether values are shares of a score, so that those of a word are the sum of its tokens'; else
            they are averaged over the tokens of a word that is written.
    """

    measure: ClassVar[str] = "nats"
    additive: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """The name in its registry, or of its class."""
        return next((name for name in ATTRIBUTIONS if ATTRIBUTIONS.get(name) is type(self)), type(self).__name__)

    @abstractmethod
    def __call__(self, question: Question) -> Tensor:
        """(T, C): how much each input counts for each target token."""


class GradientInput(Attribution):
    """Gradient x input: the gradient of a score with respect to a token's vector, times that vector."""

    def __call__(self, question: Question) -> Tensor:
        vectors = question.vectors.expand(question.length, -1, -1)
        return (question.gradients(vectors, torch.arange(question.length)) * vectors).sum(-1)


class IntegratedGradients(Attribution):
    """Integrated gradients (Sundararajan et al. 2017).

    The shares of a score sum to its difference to that of the baseline. The way from there is cut into intervals, each
    with a sum of its own, and those that miss theirs are halved until all of them together miss at most `tolerance` (of
    the difference, or of a tenth of a nat where that is smaller). A warning counts the tokens that do not get there.

    Args:
        steps: gradients of the first sum.
        most_steps: the most of a token.
        tolerance: a share of the difference.
        baseline: where the way to the tokens' vectors begins: at zero, or at the vector of the unknown token.
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
        """(C,), and the share of the difference that the intervals miss."""
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
        baseline: by zero, or by the vector of the unknown token.
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

    All weights stay. The distance is that of cosines, behind each block. The distances of a row are divided by their
    sum, and the blocks of a stack are multiplied with each other, the lowest first: the shares of a row sum to one.
    """

    measure: ClassVar[str] = "share"
    additive: ClassVar[bool] = False

    @torch.no_grad()
    def __call__(self, question: Question) -> Tensor:
        if question.against is not None:
            what = "value zeroing says what a position is made of, whatever token is written there"
            raise UserError(what, where=option("against"), allowed="another method")
        size, total = question.batch.source.shape[1], len(question.vectors)
        read: Tensor | None = None  # (L, L): a position of an encoder, or of a decoder alone, by inputs
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
    """A block, what it was called with, and what it gave (1, L, D)."""

    block: Block
    given: tuple[Any, ...]
    options: dict[str, Any]
    values: Tensor

    def moved(self) -> tuple[Tensor, Tensor | None]:
        """How far each position is moved by the values of its own stack (L, L), and by those of the source (L, S)."""
        mixer = self.block.mixer
        merged = mixer.reads_source
        reader: Mixer | CrossMixer | None = mixer if merged else self.block.cross
        own = self._distances(mixer, self.values.shape[1], int(merged))  # a merged map reads the source first
        crossed = None if reader is None else self._distances(reader, self.given[2].shape[1], 0)
        totals = own.sum(1) + (0 if crossed is None else crossed.sum(1))
        own[totals == 0, totals == 0] = 1  # nothing moves it but itself
        totals = totals.masked_fill(totals == 0, 1)[:, None]
        return own / totals, None if crossed is None else crossed / totals

    def _distances(self, part: Mixer | CrossMixer, count: int, turn: int) -> Tensor:
        """(L, count): how far each position is moved by each value that call number `turn` of a map gives."""
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
    """The calls of a model's blocks for a batch of one pair. Raises UserError where blocks are not plain."""
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
    """The token that would go on writing `word` at each place of a target, in the place of the one that is there."""

    def begun(place: int) -> int:
        """How many tokens of the word stand right before a place."""
        most = min(len(word) - 1, place)
        return next(count for count in range(most, -1, -1) if [*target[place - count : place]] == [*word[:count]])

    return [word[begun(place)] for place in range(len(target))]


def merged(values: NDArray[np.float32], source: Words, target: Words, *, additive: bool) -> NDArray[np.float32]:
    """Values of words from those of tokens (T, C), the marks at the ends kept.

    The values of an input are summed over its tokens, as attention's are; those of a word that is written as well where
    they are shares of its score, else they are averaged.
    """
    end = len(source.texts)
    of_rows = np.array([*target.of, len(target.texts)])
    of_columns = np.array([*source.of, end, *(end + 1 + np.array([0, *(1 + word for word in target.of)]))])
    found = np.zeros((len(target.texts) + 1, end + 2 + len(target.texts)))
    np.add.at(found, (of_rows[:, None], of_columns[None]), values)
    return (found if additive else found / np.bincount(of_rows)[:, None]).astype(np.float32)
