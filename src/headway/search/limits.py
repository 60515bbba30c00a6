"""Hypotheses with their scores, and limits of outputs: lengths, forced beginnings, no n-gram twice.

Shapes: N sentences, R rows (hypotheses of all sentences), V vocabulary, t tokens so far, n the length of an n-gram.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headway.core.errors import NotFiniteError
from headway.tensors.batch import BOS, EOS, PAD


@dataclass(frozen=True)
class Hypothesis:
    """One output.

    Args:
        ids: token ids, without the marks at either end.
        log_probabilities: of each token and, last, of the end mark; their sum is the log probability of the hypothesis.
        score: what hypotheses are ranked by: that sum over a length penalty (see `Ranking`), or an expected utility.
        text: what an engine wrote that gives text alone. Its ids are then those that this text has, and its log
            probabilities, which the engine does not tell, are NaN.
    """

    ids: tuple[int, ...]
    log_probabilities: tuple[float, ...]
    score: float
    text: str | None = None

    @property
    def log_probability(self) -> float:
        """log P(target | source), the end mark included."""
        return sum(self.log_probabilities)


def check_scores(faults: Tensor) -> None:
    """Raise NotFiniteError where one of the `faults` (n,) of a model's scores is true; waits for the device."""
    if bool(faults.any()):
        raise NotFiniteError(
            "the model's scores are not finite, so that no output is the best: its training diverged, or its numbers"
            " are too large for this precision"
        )


NEVER = (PAD, BOS, EOS)  # no tokens of an output: the first of the vocabulary, in this order


@dataclass(frozen=True)
class Limits:
    """The limits of the outputs of N sentences; lengths count tokens without the end mark.

    `prefix` holds, for each sentence, the ids that its output starts with. No `no_repeat` tokens in a row come twice in
    an output, unless they are forced to or nothing else is left; 0 for no such limit. `context`, equally many ids of
    each sentence, is what the decoder reads before the output; no length, score or repetition counts it. No output
    has the token `mark`. Scores do not count the first `uncounted` tokens, which are forced, though lengths do.
    """

    shortest: int
    longest: Sequence[int]
    prefix: Sequence[Sequence[int]] = ()
    no_repeat: int = 0
    context: Sequence[Sequence[int]] = ()
    mark: int | None = None
    uncounted: int = 0

    def start(self, count: int, device: torch.device) -> Tensor:
        """(N, 1 + n): what the decoder reads first for N sentences, the begin mark and n tokens of context."""
        last = torch.full((count, 1), BOS, device=device)
        return torch.cat([last, torch.tensor(self.context, device=device)], 1) if self.context else last

    def ends(self) -> list[int]:
        """The most tokens that each output can have: `longest` or, where more are forced, these."""
        forced = [len(ids) for ids in self.prefix] or [0] * len(self.longest)
        return [max(longest, count) for longest, count in zip(self.longest, forced, strict=True)]

    def restrict(self, scores: Tensor, sentences: Tensor, time: int, history: Tensor) -> None:
        """Set to minus infinity, in place, the scores of what may not come next in a row.

        Args:
            scores: (R, V), a copy that search may change.
            sentences: (R,) sentence of each row.
            time: how many tokens each row has so far, t.
            history: (R, t) these tokens; looked at only where there is a `no_repeat`.
        """
        forced = self._forced(sentences, time)
        kept = None if forced is None else scores.gather(1, forced[:, None])
        scores[:, : NEVER.index(EOS)] = -torch.inf
        if self.mark is not None:
            scores[:, self.mark] = -torch.inf
        if time < self.shortest:
            scores[:, EOS] = -torch.inf
        if 0 < self.no_repeat <= time:
            block_repeats(scores, history, self.no_repeat)
        if forced is not None and kept is not None:
            free = (forced == PAD)[:, None]
            scores.masked_fill_(~free, -torch.inf)
            scores.scatter_(1, forced[:, None], kept.masked_fill(free, -torch.inf))

    def forbidden(self, time: int) -> int | None:
        """How many of the first tokens may not come after `time` others, where no others may not; else None."""
        if self.prefix or self.mark is not None or time >= min(self.longest) or 0 < self.no_repeat <= time:
            return None
        return len(NEVER) if time < self.shortest else NEVER.index(EOS)

    def _forced(self, sentences: Tensor, time: int) -> Tensor | None:
        """The token that must come at position `time` of each row, (R,), PAD where there is a choice."""
        if not self.prefix and time < min(self.longest):
            return None
        longest = torch.tensor(self.longest, device=sentences.device)[sentences]
        forced = torch.where(time >= longest, EOS, PAD)
        if self.prefix:
            given = [ids[time] if time < len(ids) else PAD for ids in self.prefix]
            prefix = torch.tensor(given, device=sentences.device)[sentences]
            forced = prefix.where(prefix != PAD, forced)
        return forced


def block_repeats(scores: Tensor, history: Tensor, size: int) -> None:
    """Set to minus infinity, in place, every token that would complete an n-gram which its row holds already.

    A row in which nothing would be left stays as it is; with a vocabulary larger than the output is long there is none.

    Args:
        scores: (R, V), minus infinity for PAD.
        history: (R, t), t >= n.
        size: n.
    """
    ngrams = history.unfold(1, size, 1)  # (R, t - n + 1, n)
    ending = history[:, history.shape[1] - size + 1 :]  # (R, n - 1)
    begun = (ngrams[:, :, :-1] == ending[:, None]).all(2)
    again = ngrams[:, :, -1].where(begun, PAD)
    if history.shape[1] < scores.shape[1] - len(NEVER):  # fewer tokens than could be blocked: something is left
        scores.scatter_(1, again, -torch.inf)
        return
    blocked = scores.scatter(1, again, -torch.inf)
    stuck = blocked.isneginf().all(1, keepdim=True)
    scores.copy_(scores.where(stuck, blocked))
