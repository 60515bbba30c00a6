"""The rules of the gate: when a proposal is dropped, confirmed and kept. Numbers in, a word out.

A loop tries an unknown number of proposals against a baseline. Each is screened on a public test set, which costs
nothing. A proposal that passes is confirmed with fresh seeds on a sealed test set. All confirmations of a loop together
keep a change that does not help with probability `ERROR` at most: confirmation j has the level
ERROR j^-1.5 / zeta(1.5), and its looks share the level (Bonferroni). The gain D of a look is the difference of means of
n and m seeds, which are not paired. The proposal is kept if D exceeds

    h = sqrt(t(nu)^2 s^2 / m + max(t(nu)^2 s^2, t(3n)^2 v if v > s^2, t(N-1)^2 c / N) / n + t(N-1)^2 w)

with t(k) the quantile of Student's distribution of k degrees of freedom at the level of the look, s^2 the variance of
seeds pooled over the baselines, the screens and all earlier confirmations, nu its degrees of freedom, v the proposal's
own variance, c the variance of seed x segment, and w the variance of the difference that is due to the N segments.

All functions of numbers also take arrays, so that many loops can be simulated at once.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import fsum
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

Word = Literal["keep", "drop", "open", "same", "more"]
EXIT_CODES: Final[dict[Word, int]] = {"keep": 0, "drop": 3, "open": 4, "same": 5, "more": 6}

ERROR = 0.05  # the probability that a loop keeps any change that does not help
DECAY = 1.5  # the level of confirmation j is proportional to j^-DECAY
SHARES = 0.2, 0.3, 0.5  # of the level of a confirmation, by look
FUTILE = 0.0, 0.5  # by look: a gain of so few standard errors or fewer is dropped
SCREEN = -0.25, 0.5  # by seed: a mean gain of so few standard deviations of seeds or fewer is dropped
PUBLIC_SEEDS = 4  # of the baseline, on the public set
OWN = 3  # the degrees of freedom of a proposal's own variance are those of so many proposals
TAIL = 0.025  # of a 95 % interval

Number = float | NDArray[np.float64]  # a number, or one for each simulated loop


class Preset(NamedTuple):
    """How many seeds a confirmation costs: `bank` of the baseline, and those of the proposal at each look."""

    bank: int
    looks: tuple[int, int, int]


PRESETS = {"small": Preset(8, (2, 4, 8)), "usual": Preset(12, (3, 6, 12)), "thorough": Preset(16, (4, 8, 16))}


def confirmation_level(confirmation: int | NDArray[np.int64]) -> Any:
    """The level of confirmation 1, 2, ...; the levels of all confirmations sum to `ERROR`."""
    return ERROR / special.zeta(DECAY) * np.asarray(confirmation, float) ** -DECAY


def spent(confirmations: int) -> float:
    """The error that the first confirmations have spent together."""
    return float(confirmation_level(np.arange(1, confirmations + 1)).sum())


def squared_quantile(degrees: Number, tail: Number) -> Any:
    """The square of the value that Student's t exceeds with probability `tail`, exact for tails of 1e-6 and less."""
    return special.stdtrit(degrees, tail) ** 2


class Pool(NamedTuple):
    """The variance of seeds pooled over groups of scores, each about its own mean."""

    squares: Any = 0.0
    degrees: Any = 0

    @classmethod
    def of(cls, groups: Iterable[Sequence[float]]) -> "Pool":
        given = [group for group in groups if len(group) > 1]
        squares = fsum((score - mean) ** 2 for group in given for mean in [fsum(group) / len(group)] for score in group)
        return cls(squares, sum(len(group) - 1 for group in given))

    @property
    def variance(self) -> Any:
        return self.squares / self.degrees


@dataclass(frozen=True)
class Evidence:
    """The gain of a proposal by one metric, and the variances that its bound depends on.

    Args:
        gain: the mean of the proposal's seeds less that of the baseline's, positive if better, less the least effect.
        seeds, bank: the numbers of seeds of the proposal and of the baseline, n and m.
        pool: the variance of seeds, s^2, and its degrees of freedom.
        own: the proposal's own variance, v.
        segments: N; with one segment, the segments have no variance.
        segment_variance: the variance of the gain that is due to the segments, w.
        interaction: the variance of seed x segment, c.
    """

    gain: Any
    seeds: int
    bank: int
    pool: Pool
    own: Any
    segments: int = 1
    segment_variance: Any = 0.0
    interaction: Any = 0.0

    def bound(self, tail: Number) -> Any:
        """The gain that chance exceeds with probability `tail` at most, h; infinite if nothing varies."""
        shared = squared_quantile(self.pool.degrees, tail) * self.pool.variance
        own = np.where(self.own > self.pool.variance, squared_quantile(OWN * self.seeds, tail) * self.own, 0.0)
        of_segments = squared_quantile(self.segments - 1, tail) if self.segments > 1 else 0.0
        of_both = of_segments * self.interaction / self.segments
        of_proposal = np.maximum(np.maximum(shared, own), of_both) / self.seeds
        squares = shared / self.bank + of_proposal + of_segments * self.segment_variance
        return np.where(squares > 0, np.sqrt(squares), np.inf)

    @property
    def z(self) -> Any:
        """The gain in standard errors; infinite, with its sign, if nothing varies."""
        variance = self.pool.variance * (1 / self.seeds + 1 / self.bank) + self.segment_variance
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.nan_to_num(self.gain / np.sqrt(variance), nan=0.0, posinf=np.inf, neginf=-np.inf)

    @property
    def is_screened_out(self) -> Any:
        """Whether the gain on the public set is too small for further seeds."""
        return self.gain <= SCREEN[self.seeds - 1] * np.sqrt(self.pool.variance)


def is_kept(look: int, confirmation: int | NDArray[np.int64], evidence: Sequence[Evidence]) -> Any:
    """Whether all gains exceed their bounds at look 0, 1 or 2 of a confirmation."""
    tail = SHARES[look] * confirmation_level(confirmation)
    return np.logical_and.reduce([one.gain > one.bound(tail) for one in evidence])


def is_futile(look: int, evidence: Sequence[Evidence]) -> Any:
    """Whether a gain is too small for a further look."""
    return np.logical_or.reduce([one.z <= FUTILE[look] for one in evidence])


def word_at(look: int, confirmation: int, evidence: Sequence[Evidence]) -> Word | None:
    """The word at look 0, 1 or 2 of a confirmation, by the evidence of all metrics; None before a further look."""
    if is_kept(look, confirmation, evidence):
        return "keep"
    if look < len(FUTILE):
        return "drop" if is_futile(look, evidence) else None
    return "open" if all(one.gain + one.bound(TAIL) > 0 for one in evidence) else "drop"
