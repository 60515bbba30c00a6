"""Hypotheses with their scores, which search gives."""

from dataclasses import dataclass

from torch import Tensor

from headway.errors import NotFiniteError


@dataclass(frozen=True)
class Hypothesis:
    """One output.

    Args:
        ids: token ids, without the marks at either end.
        log_probabilities: of each token and, last, of the end mark; their sum is the log probability of the hypothesis.
        score: what hypotheses are ranked by, that sum over `length_penalty`.
    """

    ids: tuple[int, ...]
    log_probabilities: tuple[float, ...]
    score: float

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


def length_penalty(length: int, alpha: float) -> float:
    """((5 + length) / 6) ** alpha, Wu et al. (2016), equation 14; `length` counts the end mark."""
    return float(((5 + length) / 6) ** alpha)
