"""Greedy and beam search, and ensembles. Any object with the methods `start`, `extend` and `select` can be searched.

The number of rows stays fixed while no sentence is dropped: W hypotheses of each of N sentences, some of them finished.
Tokens and back-pointers are stored at each step, and followed backwards once the search ends.

Shapes: N sentences, W hypotheses of a sentence, C candidates of a sentence at a step, V vocabulary, T steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from headway.core.processes import check_waited_for
from headway.mixers import State
from headway.models.model import Memory, Seq2Seq
from headway.search.decoding_options import UNPENALIZED, Ranking
from headway.search.limits import Hypothesis, Limits, check_scores
from headway.tensors.batch import EOS

# For each step, by sentence: the parents, tokens and log probabilities of its W hypotheses.
BackPointers = list[dict[int, tuple[list[int], list[int], list[float]]]]

BLOCK = 16  # scores in a block; the maximum of each block is taken first
LOOK_EVERY = 8  # steps between two checks whether all is done, on an accelerator: each check waits for the device


class Searchable(Protocol):
    """The methods of a model that search calls (see `Seq2Seq`)."""

    def start(self, memory: Memory, capacity: int) -> State:
        """The state before the first token: one row per sentence, with room for `capacity` tokens."""
        ...

    def extend(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Log probabilities (R, V) of the next token after `tokens` (R, n), and the new state."""
        ...


def time_to_look(time: int, device: torch.device) -> bool:
    """Whether to check after step `time` if search is done: always on a CPU, every `LOOK_EVERY` steps elsewhere."""
    return device.type == "cpu" or (time + 1) % LOOK_EVERY == 0


class _Candidates(NamedTuple):
    """Candidate continuations of each sentence, best first. All fields are (N, C): the scores of the hypotheses, the
    indices of their parents, their new tokens, and the log probabilities of these tokens."""

    scores: Tensor
    parents: Tensor
    tokens: Tensor
    log_probabilities: Tensor

    def rows(self, index: Tensor) -> _Candidates:
        """The candidates of the sentences in `index`."""
        return _Candidates(*(part[index] for part in self))

    def may_end(self) -> bool:
        """Whether any candidate ends its hypothesis; always True on an accelerator, where checking would wait."""
        return self.tokens.device.type != "cpu" or bool((self.tokens == EOS).any())

    def first(self, count: int) -> _Candidates:
        """The `count` best candidates of each sentence."""
        return _Candidates(*(part[:, :count] for part in self))

    def survivors(self, beam: int) -> _Candidates:
        """The `beam` best candidates of each sentence that do not end their hypothesis."""
        scores, order = self.scores.masked_fill(self.tokens == EOS, -torch.inf).sort(
            dim=1, descending=True, stable=True
        )
        order = order[:, :beam]
        return _Candidates(scores[:, :beam], *(part.gather(1, order) for part in self[1:]))


class _Finished:
    """The best W finished hypotheses of each of N sentences, best first, and which sentences are done.

    A hypothesis is a row of four numbers: its score, the log probability of its end-of-sentence token, the step at
    which it ended, and the index of its parent at that step. A score of minus infinity marks an empty row.
    """

    def __init__(self, count: int, beam: int, ranking: Ranking, like: Tensor) -> None:
        self.ranking = ranking
        exact = torch.promote_types(like.dtype, torch.float32)  # bf16 represents integers only up to 256
        self.rows = torch.full((count, beam, 4), -torch.inf, dtype=exact, device=like.device)
        self.done = torch.zeros(count, dtype=torch.bool, device=like.device)

    def add(self, sentences: Tensor, time: int, candidates: _Candidates) -> None:
        """Add those of the best W candidates of `sentences` (N',) that end, and keep the best W finished hypotheses."""
        sums, parents, tokens, log_probabilities = candidates.first(self.rows.shape[1])
        ended = (tokens == EOS) & ~self.done[sentences, None]
        scores = (sums / self.ranking.penalty(time + 1)).masked_fill(~ended, -torch.inf)
        fresh = torch.stack([scores, log_probabilities, torch.full_like(sums, time), parents.to(sums.dtype)], 2)
        rows = torch.cat([self.rows[sentences], fresh], 1)
        order = rows[..., 0].sort(dim=1, descending=True, stable=True).indices[:, : self.rows.shape[1]]
        self.rows[sentences] = rows.gather(1, order[..., None].expand(-1, -1, 4))

    def mark_done(self, sentences: Tensor, time: int, best: Tensor) -> None:
        """Mark the sentences (N',) whose finished hypotheses no longer can be overtaken by the `best` (N',) alive."""
        self.done[sentences] |= self.ranking.ends(self.rows[sentences, :, 0], best, time + 1)

    def some_wait(self, sentences: Tensor) -> bool:
        """Whether any of `sentences` (N',) has W finished hypotheses but is not done."""
        return bool(((self.rows[sentences, -1, 0] > -torch.inf) & ~self.done[sentences]).any())


def _hypotheses(steps: Sequence[tuple[Tensor, _Candidates]], finished: _Finished) -> list[list[Hypothesis]]:
    """The finished hypotheses of each sentence, best first. `steps` has the sentences and survivors of each step."""
    pointers: BackPointers = [
        dict(zip(sentences.tolist(), zip(*(part.tolist() for part in chosen[1:]), strict=True), strict=True))
        for sentences, chosen in steps
    ]
    return [
        [_follow(pointers, sentence, *row) for row in rows if row[0] > -math.inf]
        for sentence, rows in enumerate(finished.rows.tolist())
    ]


def _follow(pointers: BackPointers, sentence: int, score: float, end: float, step: float, parent: float) -> Hypothesis:
    """Return the hypothesis that ends at `step` with log probability `end`, following back-pointers from `parent`."""
    ids, logs, index = [], [end], int(parent)
    for time in range(int(step) - 1, -1, -1):
        parents, tokens, log_probabilities = pointers[time][sentence]
        ids.append(tokens[index])
        logs.append(log_probabilities[index])
        index = parents[index]
    return Hypothesis(tuple(ids[::-1]), tuple(logs[::-1]), score)


@torch.inference_mode()
def beam_search(
    model: Searchable, memory: Memory, limits: Limits, *, beam: int, ranking: Ranking = UNPENALIZED
) -> list[list[Hypothesis]]:
    """Return the `beam` best outputs of each of N sentences, best first; beam 1 is greedy search.

    At each step the 2 * beam best candidates of a sentence are ranked. Those among the first `beam` that end are
    finished, and the best `beam` of the others survive. A sentence is done when `ranking.ends` says so, or when it has
    reached its longest length, where the end is forced. The scores are those of `Hypothesis`, and equal re-scoring.

    Args:
        model: any object with `start` and `extend`.
        memory: the encoded sources, N rows.
        limits: shortest and longest output, forced prefixes, repetitions.
        beam: W.
        ranking: the length penalty, and the condition that ends the search of a sentence.

    Raises:
        NotFiniteError: the model's scores are not finite.
    """
    ends, count, device = limits.ends(), memory.values.shape[0], memory.values.device
    steps, longest, sentences = max(ends), torch.tensor(ends, device=device), torch.arange(count, device=device)
    last = limits.start(count, device)
    state = model.start(memory, steps + last.shape[1])
    scores, history = torch.zeros(count, 1, device=device), last[:, :0]
    raw, state = model.extend(last, state)
    stored, finished, waiting = list[tuple[Tensor, _Candidates]](), _Finished(count, beam, ranking, raw), False
    for time in range(steps + 1):
        check_waited_for()
        width = scores.shape[1]
        candidates = _candidates(scores, raw, limits, sentences, time, history, 2 * beam)
        ending = candidates.may_end()
        if ending:
            finished.add(sentences, time, candidates)
        if time == steps:
            break
        chosen = candidates.survivors(beam) if ending else candidates.first(beam)
        stored.append((sentences, chosen))
        if ending or waiting:
            finished.mark_done(sentences, time, chosen.scores[:, 0])
        rows = torch.arange(len(sentences), device=device)
        if (ending or waiting or time >= min(limits.longest)) and time_to_look(time, device):
            rows = _rows_to_go(finished, sentences, longest, time)
            if not len(rows):
                break
            sentences, chosen = sentences[rows], chosen.rows(rows)
            waiting = device.type != "cpu" or finished.some_wait(sentences)
        index = rows[:, None] * width + chosen.parents
        # No copy where no row moves, as in greedy search; on an accelerator, the comparison would wait for the device.
        if device.type != "cpu" or not torch.equal(index.flatten(), torch.arange(len(last))):
            state = state.select(index)
        last = chosen.tokens.reshape(-1, 1)
        if limits.no_repeat:
            history = torch.cat([history[index.flatten()], last], 1)
        scores = chosen.scores
        if time < limits.uncounted:
            scores = scores.where(scores == -torch.inf, 0.0)
        raw, state = model.extend(last, state)
    unsound = (
        torch.cat([raw.new_zeros(0), *(chosen.log_probabilities.flatten() for _, chosen in stored)]).isnan().any(),
        raw.isnan().any(),
        (finished.rows[:, 0, 0] == -torch.inf).any(),
    )
    check_scores(torch.stack(unsound))
    return _hypotheses(stored, finished)


def _rows_to_go(finished: _Finished, sentences: Tensor, longest: Tensor, time: int) -> Tensor:
    """The rows of `sentences` (N',) to continue: on a CPU those that are not done, elsewhere see `halved`."""
    going = ~finished.done[sentences] & (time < longest[sentences])
    return going.nonzero().squeeze(1) if sentences.device.type == "cpu" else halved(going)


def halved(going: Tensor) -> Tensor:
    """The rows to continue: all, or the `going` (N',) filled up to half, a quarter, ... of all, for few batch sizes."""
    left, size = going.nonzero().squeeze(1), len(going)
    while 0 < 2 * len(left) <= size:
        size //= 2
    return torch.cat([left, (~going).nonzero().squeeze(1)])[: size if len(left) else 0].sort().values


def _candidates(
    scores: Tensor, raw: Tensor, limits: Limits, sentences: Tensor, time: int, history: Tensor, count: int
) -> _Candidates:
    """The `count` best candidates of each sentence, whose hypotheses have `scores` (N, W).

    `raw` (N * W, V) holds the log probabilities of the model, and is not modified.
    """
    width, size, forbidden = scores.shape[1], raw.shape[1], limits.forbidden(time)
    if forbidden is None:
        raw, forbidden = raw.clone(), 0
        limits.restrict(raw, sentences.repeat_interleave(width), time, history)
    total, values, places = largest(scores, raw, count, forbidden)
    best, order = total.topk(min(count, total.shape[1]), dim=1)
    if (missing := count - best.shape[1]) > 0:  # fewer candidates than `count`: add impossible ones
        best = torch.cat([best, best.new_full((len(best), missing), -torch.inf)], 1)
        order = torch.cat([order, order.new_zeros(len(order), missing)], 1)
    places = places.gather(1, order)
    return _Candidates(best, places // size, places % size, values.gather(1, order))


def largest(scores: Tensor, raw: Tensor, count: int, first: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Candidates (N, C) of each sentence that include the `count` best: sums, log probabilities, and places in (W * V).

    On a CPU the columns of each hypothesis are split into blocks, and only the blocks with the largest maxima are
    sorted: maxima are computed with vector instructions, whereas sorting is not.

    Args:
        scores: (N, W), added to the log probabilities.
        raw: log probabilities (N * W, V).
        count: at least 1.
        first: the first column that is a candidate.
    """
    (sentences, width), size = scores.shape, raw.shape[1]
    blocks, device = (size - first) // BLOCK, raw.device
    if device.type != "cpu" or torch.compiler.is_compiling() or blocks < 4 * count:
        values, columns = raw[:, first:].topk(min(count, size - first), dim=1)
        places = columns.view(sentences, width, -1) + torch.arange(first, width * size, size, device=device)[:, None]
        return (scores.reshape(-1, 1) + values).view(sentences, -1), values.view(sentences, -1), places.flatten(1)
    end = first + blocks * BLOCK  # a block consists of every `blocks`-th column before this one
    maxima = raw[:, first:end].reshape(-1, BLOCK, blocks).amax(1) + scores.reshape(-1, 1)
    chosen = maxima.view(sentences, -1).topk(count, dim=1, sorted=False).indices
    parents = chosen // blocks
    places = ((chosen + parents * (size - blocks))[:, :, None] + torch.arange(first, end, blocks)).flatten(1)
    before = scores.gather(1, parents).repeat_interleave(BLOCK, 1)
    if rest := size - end:
        others = torch.arange(end, width * size, size)[:, None] + torch.arange(rest)
        places = torch.cat([places, others.flatten().expand(sentences, -1)], 1)
        before = torch.cat([before, scores.repeat_interleave(rest, 1)], 1)
    values = raw.reshape(sentences, -1).gather(1, places)
    return before + values, values, places


@dataclass(frozen=True)
class EnsembleMemory(Memory):
    """The memories of all models; `values` and `mask` are those of the first model."""

    members: tuple[Memory, ...]


@dataclass(frozen=True)
class EnsembleState(State):
    """The states of all models of an ensemble."""

    members: tuple[State, ...]


class Ensemble:
    """Models with the same vocabularies. The probability of the next token is the mean of their probabilities."""

    def __init__(self, models: Sequence[Seq2Seq]) -> None:
        self.models = tuple(models)

    def encode(self, source: Tensor, mask: Tensor) -> EnsembleMemory:
        members = tuple(model.encode(source, mask) for model in self.models)
        return EnsembleMemory(members[0].values, members[0].mask, members)

    def start(self, memory: Memory, capacity: int) -> EnsembleState:
        assert isinstance(memory, EnsembleMemory)
        pairs = zip(self.models, memory.members, strict=True)
        return EnsembleState(tuple(model.start(member, capacity) for model, member in pairs))

    def extend(self, tokens: Tensor, state: State) -> tuple[Tensor, EnsembleState]:
        """The log of the mean probability (R, V) of the token after `tokens` (R, n), and the new states."""
        assert isinstance(state, EnsembleState)
        steps = [model.extend(tokens, member) for model, member in zip(self.models, state.members, strict=True)]
        scores = torch.stack([log_probabilities for log_probabilities, _ in steps]).logsumexp(0) - math.log(len(steps))
        return scores, EnsembleState(tuple(after for _, after in steps))
