"""Hypotheses with their scores, and constraints on outputs: lengths, forced prefixes, no repeated n-grams.

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
    """One output of a search.

    Args:
        ids: token ids, without begin- and end-of-sentence tokens.
        log_probabilities: of each token and, last, of the end-of-sentence token; their sum is that of the hypothesis.
        score: the number to rank by: that sum divided by a length penalty (see `Ranking`), or an expected utility.
        text: the output of an engine that returns only text. `ids` are then the ids of this text, and the log
            probabilities, which such an engine does not return, are NaN.
    """

    ids: tuple[int, ...]
    log_probabilities: tuple[float, ...]
    score: float
    text: str | None = None

    @property
    def log_probability(self) -> float:
        """log P(target | source), including the end-of-sentence token."""
        return sum(self.log_probabilities)


def check_scores(faults: Tensor) -> None:
    """Raise NotFiniteError if any of `faults` (n,) is True: the scores are not finite. Waits for the device."""
    if bool(faults.any()):
        raise NotFiniteError(
            "the model's scores are not finite, so that no output is the best: its training diverged, or its numbers"
            " are too large for this precision"
        )


NEVER = (PAD, BOS, EOS)  # never part of an output; the first ids of the vocabulary, in this order


@dataclass(frozen=True)
class Limits:
    """Constraints on the outputs of N sentences. Lengths count tokens without the end-of-sentence token.

    `shortest` and `longest` (N,) are the length limits. `prefix` holds, for each sentence, the ids that its output
    starts with. No n-gram of `no_repeat` tokens occurs twice in an output, unless it is forced or no other token is
    allowed; 0 allows repetitions. `context`, the same number of ids for each sentence, is read by the decoder before
    the output, and not counted by lengths, scores or repetitions. `mark` is a token that no output may contain. The
    first `uncounted` tokens, which are forced, count for lengths but not for scores.
    """

    shortest: int
    longest: Sequence[int]
    prefix: Sequence[Sequence[int]] = ()
    no_repeat: int = 0
    context: Sequence[Sequence[int]] = ()
    mark: int | None = None
    uncounted: int = 0

    def start(self, count: int, device: torch.device) -> Tensor:
        """The first decoder input for N sentences, (N, 1 + n): the begin-of-sentence token and n tokens of context."""
        last = torch.full((count, 1), BOS, device=device)
        return torch.cat([last, torch.tensor(self.context, device=device)], 1) if self.context else last

    def ends(self) -> list[int]:
        """The maximum output length of each sentence: `longest`, or the length of its prefix if that is longer."""
        forced = [len(ids) for ids in self.prefix] or [0] * len(self.longest)
        return [max(longest, count) for longest, count in zip(self.longest, forced, strict=True)]

    def restrict(self, scores: Tensor, sentences: Tensor, time: int, history: Tensor) -> None:
        """Set the scores of forbidden next tokens to minus infinity, in place.

        Args:
            scores: (R, V) log probabilities.
            sentences: (R,) the sentence of each row.
            time: the number of tokens that each row has so far, t.
            history: (R, t) these tokens; read only if `no_repeat` is not 0.
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
        """The number of leading ids that are forbidden after `time` tokens; None if `restrict` is needed."""
        if self.prefix or self.mark is not None or time >= min(self.longest) or 0 < self.no_repeat <= time:
            return None
        return len(NEVER) if time < self.shortest else NEVER.index(EOS)

    def _forced(self, sentences: Tensor, time: int) -> Tensor | None:
        """The token (R,) that is forced at position `time`, PAD in rows without one; None if no row has one."""
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
    """Set every token that would complete an n-gram that its row already contains to minus infinity, in place.

    A row in which no token would remain is not changed; with a vocabulary larger than the output is long there is none.

    Args:
        scores: (R, V), minus infinity for PAD.
        history: (R, t), t >= n.
        size: n.
    """
    ngrams = history.unfold(1, size, 1)  # (R, t - n + 1, n)
    ending = history[:, history.shape[1] - size + 1 :]  # (R, n - 1)
    begun = (ngrams[:, :, :-1] == ending[:, None]).all(2)
    again = ngrams[:, :, -1].where(begun, PAD)
    if history.shape[1] < scores.shape[1] - len(NEVER):  # some token always remains
        scores.scatter_(1, again, -torch.inf)
        return
    blocked = scores.scatter(1, again, -torch.inf)
    stuck = blocked.isneginf().all(1, keepdim=True)
    scores.copy_(scores.where(stuck, blocked))
