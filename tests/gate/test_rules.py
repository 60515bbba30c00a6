"""The rules of the gate against a slow twin by scipy.stats, and the sums of their levels."""

import math
import random
import statistics

import numpy as np
import pytest
from scipy import stats

from headway.gate.rules import ERROR, PRESETS, SHARES, Evidence, Pool, confirmation_level, spent, word_at
from headway.gate.simulation import Loops, simulate

STATES = 1000


def drawn(seed: int) -> tuple[list[float], list[float], list[list[float]], int, float, float]:
    """Scores of the proposal and of the bank, the groups of the pool, N, w and c."""
    rng = random.Random(seed)
    bank, looks = PRESETS[rng.choice(list(PRESETS))]
    spread = rng.choice([0.3, 1.0, 3.0])
    proposal = [rng.gauss(rng.choice([0, 1, 4]), spread) for _ in range(rng.choice(looks))]
    groups = [[rng.gauss(0, 1) for _ in range(size)] for size in (bank, 4, *[2] * rng.randrange(60))]
    segments = rng.choice([1, 2, 50, 2000])
    variances = (rng.expovariate(10), rng.expovariate(0.05)) if segments > 1 else (0.0, 0.0)
    return proposal, groups[0], groups, segments, *variances


def slow_bound(tail: float, own: float, state: tuple[list[float], list[float], list[list[float]], int, float, float]):
    """The bound of the specification, term by term."""
    proposal, bank, groups, size, by_segment, interaction = state
    n, m = len(proposal), len(bank)
    squares = math.fsum((score - statistics.fmean(row)) ** 2 for row in groups for score in row)
    nu = sum(len(row) - 1 for row in groups)
    shared = stats.t.isf(tail, nu) ** 2 * squares / nu
    terms = [shared]
    if own > squares / nu:
        terms.append(stats.t.isf(tail, 3 * n) ** 2 * own)
    of_segments = 0.0
    if size > 1:
        of_segments = stats.t.isf(tail, size - 1) ** 2
        terms.append(of_segments * interaction / size)
    return math.sqrt(shared / m + max(terms) / n + of_segments * by_segment)


def test_bounds_and_scores_are_those_of_the_specification() -> None:
    for seed in range(STATES):
        state = drawn(seed)
        proposal, bank, groups, size, by_segment, interaction = state
        own, gain = statistics.variance(proposal), statistics.fmean(proposal) - statistics.fmean(bank)
        pool, look, number = Pool.of(groups), seed % 3, 1 + seed % 200
        evidence = Evidence(gain, len(proposal), len(bank), pool, own, size, by_segment, interaction)
        level = 0.05 * number**-1.5 / sum(k**-1.5 for k in range(1, 10**5)) if seed == 0 else None
        if level is not None:  # zeta(1.5), by its slowly converging sum
            assert confirmation_level(number) == pytest.approx(level, rel=0.01)
        tail = SHARES[look] * float(confirmation_level(number))
        bound = slow_bound(tail, own, state)
        assert float(evidence.bound(tail)) == pytest.approx(bound, rel=1e-9)
        z = gain / math.sqrt(pool.variance * (1 / len(proposal) + 1 / len(bank)) + by_segment)
        assert float(evidence.z) == pytest.approx(z, rel=1e-9)
        usual = slow_bound(0.025, own, state)
        futile = "drop" if z <= (0, 0.5, 0)[look] else None
        last = "open" if gain + usual > 0 else "drop"
        assert word_at(look, number, [evidence]) == ("keep" if gain > bound else futile if look < 2 else last)


def test_all_metrics_must_hold() -> None:
    pool = Pool(30.0, 30)
    good, bad = (Evidence(gain, 3, 12, pool, 1.0) for gain in (9.0, -1.0))
    assert word_at(0, 1, [good]) == "keep"
    assert word_at(0, 1, [good, bad]) == "drop"


def test_all_confirmations_together_spend_the_error() -> None:
    assert spent(10**6) < ERROR
    assert spent(10**6) == pytest.approx(ERROR, rel=0.001)
    assert sum(SHARES) == pytest.approx(1)


def test_tails_are_exact_far_out() -> None:
    evidence = Evidence(0.0, 12, 12, Pool(20.0, 20), 0.0)
    assert float(evidence.bound(1e-12)) == pytest.approx(math.sqrt(stats.t.isf(1e-12, 20) ** 2 / 6), rel=1e-9)


def test_what_does_not_vary_is_never_kept() -> None:
    """A program that ignores its seed, scored by one number."""
    assert word_at(2, 1, [Evidence(1.0, 12, 12, Pool(0.0, 20), 0.0)]) == "open"


def test_ties_drop() -> None:
    pool = Pool(20.0, 20)
    assert word_at(0, 1, [Evidence(0.0, 3, 12, pool, 0.0)]) == "drop"
    assert Evidence(0.0, 1, 4, Pool(0.0, 20), 0.0).is_screened_out


def test_a_loop_keeps_gains_and_seldom_anything_else() -> None:
    """The table of the record in small; benchmarks/gate.py has all of it."""
    found = simulate(Loops(PRESETS["usual"], 400, np.random.default_rng(1)), moments=(1, 10, 50))
    assert found.false[50] <= 4
    assert found.power[2.0][1] >= 86
    assert found.power[2.0][50] >= 72
    assert 2.7 < found.runs[0] < 3.8
    assert np.isfinite(found.runs[1])
