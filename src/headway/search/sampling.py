"""Sampling of outputs from a model.

Shapes: N sentences, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from headway.core.processes import check_waited_for
from headway.models.model import Memory
from headway.search.beam import Searchable, time_to_look
from headway.search.decoding_options import UNPENALIZED, Ranking
from headway.search.limits import Hypothesis, Limits, check_scores
from headway.tensors.batch import EOS
from headway.tensors.precision import exact_dtype


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn: temperature, top-k and nucleus (top-p) sampling.

    Tokens are drawn from the `top_k` most probable and, among these, from the smallest set that holds `top_p` of the
    probability. Log probabilities are divided by `temperature` first. Each line has its own random stream, determined
    by `seed` and the line's number, so an output does not depend on the other sentences of its batch.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    seed: int = 1

    def streams(self, lines: Sequence[int]) -> list[np.random.Generator]:
        return [np.random.Generator(np.random.Philox(key=[self.seed, line])) for line in lines]

    def draw(self, log_probabilities: Tensor, uniform: Tensor) -> Tensor:
        """Draw token ids (rows,) from `log_probabilities` (rows, V), by inverse sampling at `uniform` (rows,)."""
        exact = log_probabilities.to(exact_dtype(log_probabilities.device))
        scores, ids = (exact / self.temperature).sort(dim=-1, descending=True, stable=True)
        if self.top_k is not None:
            scores[:, self.top_k :] = -torch.inf
        probabilities = scores.softmax(-1)
        before = probabilities.cumsum(-1) - probabilities
        probabilities = probabilities.masked_fill(before >= self.top_p, 0)
        cumulative = probabilities.cumsum(-1)
        rank = (cumulative < uniform[:, None].to(cumulative) * cumulative[:, -1:]).sum(-1, keepdim=True)
        last = (probabilities > 0).sum(-1, keepdim=True) - 1
        return ids.gather(1, rank.minimum(last).clamp(min=0)).squeeze(1)  # if scores are NaN, no token is probable


@torch.inference_mode()
def sample(
    model: Searchable,
    memory: Memory,
    limits: Limits,
    *,
    sampling: Sampling,
    lines: Sequence[int],
    count: int,
    ranking: Ranking = UNPENALIZED,
) -> list[list[Hypothesis]]:
    """Draw `count` independent outputs for each of N sentences, and return them sorted by score, best first.

    Args:
        model: any object with `start` and `extend`.
        memory: the encoded sources, N rows.
        limits: shortest and longest output, forced prefixes, repetitions.
        sampling: how tokens are drawn.
        lines: (N,) the line numbers that determine the random streams.
        count: outputs per sentence.
        ranking: the length penalty of the score; log probabilities are the model's, at temperature 1.

    Raises:
        NotFiniteError: the model's scores are not finite.
    """
    sentences, device = memory.values.shape[0], memory.values.device
    owner = torch.arange(sentences, device=device).repeat_interleave(count)
    steps = 1 + max(limits.ends())
    streams, last = sampling.streams(lines), limits.start(sentences, device)[owner]
    state = model.start(memory, steps + last.shape[1] - 1).select(owner.view(sentences, count))
    tokens, scores = last.new_full((len(owner), steps), EOS), memory.values.new_zeros(len(owner), steps)
    done = torch.zeros_like(last[:, :1], dtype=torch.bool)
    for time in range(steps):
        check_waited_for()
        raw, state = model.extend(last, state)
        numbers = torch.from_numpy(np.concatenate([stream.random(count) for stream in streams]))
        uniform = numbers.to(exact_dtype(device)).to(device)
        allowed = raw.clone()
        limits.restrict(allowed, owner, time, tokens[:, :time])
        last = sampling.draw(allowed, uniform)[:, None]
        tokens[:, time : time + 1], scores[:, time : time + 1] = last, raw.gather(1, last)
        done = done | (last == EOS)
        if time_to_look(time, device) and bool(done.all()):
            break
    check_scores(scores.isnan().any(keepdim=True))
    ends = (tokens == EOS).int().argmax(1).tolist()
    outputs = [
        Hypothesis(
            tuple(ids[:end]), tuple(logs[: end + 1]), sum(logs[limits.uncounted : end + 1]) / ranking.penalty(end + 1)
        )
        for ids, logs, end in zip(tokens.tolist(), scores.tolist(), ends, strict=True)
    ]
    grouped = [outputs[start : start + count] for start in range(0, len(outputs), count)]
    return [sorted(group, key=lambda hypothesis: -hypothesis.score) for group in grouped]
