"""Search: greedy, beam and sampling. It sees only start, step and select of a model, so any object with these will do.

Shapes: N sentences, W hypotheses of a sentence, V vocabulary, t tokens so far.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from headway.models.model import Memory, State
from headway.search.hypotheses import Hypothesis, length_penalty
from headway.search.limits import Limits
from headway.tensors.batch import BOS, EOS


class Searchable(Protocol):
    """The part of a model that search uses (see `Seq2Seq`)."""

    def start(self, memory: Memory) -> State:
        """The state before the first token, one row a sentence."""
        ...

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Log probabilities (B, V) of the next token after `tokens` (B,), and the new state."""
        ...


@dataclass
class _Beams:
    """The live hypotheses of N sentences: scores (N, W), tokens and their log probabilities (N, W, t)."""

    sentences: Tensor  # (N,) which sentence each row is
    scores: Tensor
    tokens: Tensor
    log_probabilities: Tensor

    def extend(
        self, keep: Tensor, parents: Tensor, tokens: Tensor, scores: Tensor, log_probabilities: Tensor
    ) -> "_Beams":
        """Hypotheses made of `parents` (N', W) of the sentences `keep` (N',) and one more token each."""

        def grow(history: Tensor, new: Tensor) -> Tensor:
            index = parents[:, :, None].expand(-1, -1, history.shape[2])
            return torch.cat([history[keep].gather(1, index), new[:, :, None]], 2)

        return _Beams(
            self.sentences[keep], scores, grow(self.tokens, tokens), grow(self.log_probabilities, log_probabilities)
        )


@torch.inference_mode()
def beam_search(
    model: Searchable, memory: Memory, limits: Limits, *, beam: int, alpha: float = 0.0
) -> list[list[Hypothesis]]:
    """The best outputs of each of N sentences, best first; beam 1 is greedy search.

    At each step the 2 * beam best continuations of a sentence are ranked; those among the first `beam` that end are
    finished, and the best `beam` of the others live on. A sentence is done when `beam` hypotheses are finished or its
    longest length is reached, where the end is forced. A score is what `Hypothesis` says, so it equals the re-scoring.

    Args:
        model: anything with start and step.
        memory: the encoded sources, N rows.
        limits: shortest and longest output, forced prefixes, repetitions.
        beam: W.
        alpha: the exponent of the length penalty.
    """
    count, device = memory.values.shape[0], memory.values.device
    finished: list[list[Hypothesis]] = [[] for _ in range(count)]
    state = model.start(memory)
    zeros = torch.zeros(count, 1, device=device)
    beams = _Beams(
        torch.arange(count, device=device), zeros, zeros[..., None][..., :0].long(), zeros[..., None][..., :0]
    )
    last = torch.full((count,), BOS, device=device)
    time = 0
    while True:
        rows, width = len(beams.sentences), beams.scores.shape[1]
        raw, state = model.step(last, state)
        sentences = beams.sentences.repeat_interleave(width)
        allowed = limits.apply(raw, sentences, beams.tokens.flatten(0, 1)).view(rows, width, -1)
        scores, parents, tokens, each = _rank(allowed, beams.scores, 2 * beam)
        _finish(finished, beams, scores, parents, tokens, each, beam, alpha)
        keep = torch.tensor(
            [
                row
                for row, sentence in enumerate(beams.sentences.tolist())
                if len(finished[sentence]) < beam and time < limits.longest[sentence]
            ],
            dtype=torch.long,
            device=device,
        )
        if not len(keep):
            break
        scores, parents, tokens, each = (part[keep] for part in (scores, parents, tokens, each))
        scores, order = scores.masked_fill(tokens == EOS, -torch.inf).sort(dim=1, descending=True, stable=True)
        order = order[:, :beam]
        parents, tokens, each = (part.gather(1, order) for part in (parents, tokens, each))
        beams = beams.extend(keep, parents, tokens, scores[:, :beam], each)
        state = state.select(keep[:, None] * width + parents)
        last = tokens.reshape(-1)
        time += 1
    return [sorted(each, key=lambda hypothesis: -hypothesis.score) for each in finished]


def _rank(log_probabilities: Tensor, scores: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The `count` best continuations of each sentence: their scores, parents, tokens and own log probabilities."""
    rows, width, size = log_probabilities.shape
    total = (scores[:, :, None] + log_probabilities).view(rows, -1)
    best, flat = total.topk(min(count, width * size), dim=1)
    if best.shape[1] < count:  # fewer continuations than the beam has places: fill up with impossible ones
        missing = count - best.shape[1]
        best = torch.cat([best, best.new_full((rows, missing), -torch.inf)], 1)
        flat = torch.cat([flat, flat.new_zeros(rows, missing)], 1)
    each = log_probabilities.reshape(rows, -1).gather(1, flat)
    return best, flat // size, flat % size, each


def _finish(
    finished: list[list[Hypothesis]],
    beams: _Beams,
    scores: Tensor,
    parents: Tensor,
    tokens: Tensor,
    each: Tensor,
    beam: int,
    alpha: float,
) -> None:
    """Move the continuations that end, among the `beam` best of each sentence, to `finished`."""
    ended = (tokens[:, :beam] == EOS) & scores[:, :beam].isfinite()
    for row, rank in ended.nonzero().tolist():
        sentence, parent = int(beams.sentences[row]), int(parents[row, rank])
        if len(finished[sentence]) == beam:
            continue
        ids = tuple(beams.tokens[row, parent].tolist())
        log_probabilities = (*beams.log_probabilities[row, parent].tolist(), float(each[row, rank]))
        score = float(scores[row, rank]) / length_penalty(len(log_probabilities), alpha)
        finished[sentence].append(Hypothesis(ids, log_probabilities, score))
