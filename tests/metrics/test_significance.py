"""The resampling tests: against sacrebleu's own, against enumeration, and how often they err under the null."""

import itertools
import random

import numpy as np
import pytest
from numpy.typing import NDArray
from sacrebleu.significance import PairedTest

from headway.errors import UserError
from headway.metrics import (
    Metric,
    PairedDifference,
    Signature,
    approximate_randomisation,
    bootstrap_interval,
    build_metric,
    paired_bootstrap,
    significance,
)

METRICS = ["bleu", "chrf", "ter", "exact_match"]


def corpus(noise: float, seed: int, segments: int = 60) -> tuple[list[str], list[str]]:
    """Outputs in which a share of the reference words is replaced, and the references."""
    source, errors = random.Random(0), random.Random(seed)
    words = [f"word{number}" for number in range(40)]
    references = [source.choices(words, k=source.randint(4, 12)) for _ in range(segments)]
    outputs = [[errors.choice(words) if errors.random() < noise else word for word in line] for line in references]
    return [" ".join(line) for line in outputs], [" ".join(line) for line in references]


def pair(
    name: str, first: float = 0.3, second: float = 0.22
) -> tuple[Metric, NDArray[np.float64], NDArray[np.float64]]:
    """Statistics of two systems with different shares of wrong words."""
    metric = build_metric(name)
    (baseline, references), (system, _) = corpus(first, seed=1), corpus(second, seed=2)
    return metric, metric.statistics(baseline, [references]), metric.statistics(system, [references])


class Mean(Metric):
    """The mean of one number a segment."""

    name = "mean"

    def statistics(self, hypotheses: object, references: object) -> NDArray[np.float64]:
        raise NotImplementedError

    def aggregate(self, totals: NDArray[np.float64]) -> float:
        return float(totals[0] / totals[1])

    def signature(self) -> Signature:
        return Signature()


def values(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.stack([numbers, np.ones(len(numbers))], axis=1)


@pytest.mark.parametrize("name", ["bleu", "chrf", "ter"])
@pytest.mark.parametrize("test", ["bs", "ar"])
def test_agrees_with_sacrebleu(name: str, test: str) -> None:
    metric, baseline, system = pair(name)
    (first, references), (second, _) = corpus(0.3, seed=1), corpus(0.22, seed=2)
    peer = metric._metric  # type: ignore[attr-defined]
    _, columns = PairedTest([("a", first), ("b", second)], {name: peer}, [references], test, n_samples=500)()
    a, b = columns[metric.label]
    if test == "bs":
        ours = paired_bootstrap(metric, baseline, system, samples=500, formulation="sacrebleu")
        interval = bootstrap_interval(metric, system, samples=500)
        # sacrebleu samples in float32 and takes the nearest order statistic for a quantile.
        assert interval.mean == pytest.approx(b.mean, abs=1e-3)
        assert (interval.high - interval.low) / 2 == pytest.approx(b.ci, rel=0.05)
    else:
        ours = approximate_randomisation(metric, baseline, system, trials=500)
    assert (ours.baseline, ours.system) == pytest.approx((a.score, b.score))
    assert ours.difference == pytest.approx(b.score - a.score)
    assert (ours.difference > 0) is metric.higher_is_better
    # The same seed draws the same resamples: only ties, which sacrebleu does not count, tell the two apart. TER's
    # are many here: one reference makes its numerators whole numbers over the same length.
    ties = 0.1 if (name, test) == ("ter", "ar") else 0
    assert -1e-9 <= ours.p_value - b.p_value <= ties + 1e-9
    assert 0.002 < ours.p_value < 0.5


@pytest.mark.parametrize("name", METRICS)
def test_a_system_does_not_differ_from_itself(name: str) -> None:
    metric, baseline, _ = pair(name)
    for test in (paired_bootstrap, approximate_randomisation):
        comparison = test(metric, baseline, baseline, 50)
        assert (comparison.difference, comparison.p_value) == (0, 1)


@pytest.mark.parametrize("name", METRICS)
def test_clear_differences_are_found_in_either_direction(name: str) -> None:
    metric, worse, better = pair(name, 0.5, 0.05)
    for test in (paired_bootstrap, approximate_randomisation):
        up, down = test(metric, worse, better, 200), test(metric, better, worse, 200)
        assert up.p_value == down.p_value == 1 / 201
        assert up.difference == -down.difference
        assert (up.difference > 0) is metric.higher_is_better
    interval = paired_bootstrap(metric, worse, better, 200).interval
    assert interval is not None
    assert interval.low < paired_bootstrap(metric, worse, better, 200).difference < interval.high
    assert (interval.low > 0) is metric.higher_is_better


def test_randomisation_approaches_the_exact_permutation_test() -> None:
    generator = np.random.default_rng(3)
    a, b = generator.normal(size=10), generator.normal(0.5, 1, size=10)
    observed = abs((b - a).mean())
    signs = itertools.product([1, -1], repeat=10)
    exact = np.mean([abs(np.mean(np.array(sign) * (b - a))) >= observed - 1e-12 for sign in signs])
    p_value = approximate_randomisation(Mean(), values(a), values(b), trials=20000).p_value
    assert p_value == pytest.approx(exact, abs=0.012)
    assert 0.02 < exact < 0.9


def test_interval_of_a_mean_is_that_of_the_normal_distribution() -> None:
    numbers = np.random.default_rng(4).normal(10, 2, size=400)
    interval = bootstrap_interval(Mean(), values(numbers), samples=4000)
    half = 1.96 * numbers.std() / 20
    assert interval.mean == pytest.approx(numbers.mean(), abs=0.01)
    assert (interval.low, interval.high) == pytest.approx((numbers.mean() - half, numbers.mean() + half), abs=0.02)
    narrow = bootstrap_interval(Mean(), values(numbers), samples=4000, level=0.5)
    assert narrow.high - narrow.low == pytest.approx(0.6745 / 1.96 * (interval.high - interval.low), rel=0.06)


def test_results_do_not_depend_on_chunks_and_do_on_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    metric, baseline, system = pair("chrf", 0.3, 0.28)
    tests = (paired_bootstrap, approximate_randomisation)
    whole = [test(metric, baseline, system, 300) for test in tests]
    monkeypatch.setattr(significance, "CHUNK", 1)
    assert [test(metric, baseline, system, 300) for test in tests] == whole
    for test in tests:
        assert len({test(metric, baseline, system, 300, seed=seed).p_value for seed in range(5)}) > 1


def null_p_values(test: str) -> NDArray[np.float64]:
    """P-values of two systems that are right equally often, 400 times."""
    generator = np.random.default_rng(100)
    p_values = []
    for run in range(400):
        a, b = (values(generator.normal(size=50)) for _ in range(2))
        comparison: PairedDifference
        if test == "randomisation":
            comparison = approximate_randomisation(Mean(), a, b, 199, seed=run)
        else:
            comparison = paired_bootstrap(Mean(), a, b, 199, seed=run, formulation=test)  # type: ignore[arg-type]
        p_values.append(comparison.p_value)
    return np.array(p_values)


@pytest.mark.parametrize("test", ["centred", "randomisation"])
def test_p_values_are_uniform_under_the_null(test: str) -> None:
    p_values = null_p_values(test)
    for level in (0.05, 0.1, 0.25, 0.5, 0.75):
        # Three standard errors of a share of 400.
        assert (p_values <= level).mean() == pytest.approx(level, abs=3 * (level * (1 - level) / 400) ** 0.5)


def test_sacrebleus_bootstrap_rejects_twice_as_often_as_its_level() -> None:
    p_values = null_p_values("sacrebleu")
    assert 0.075 < (p_values <= 0.05).mean() < 0.15
    assert p_values[p_values < 1].max() < 0.6


def test_the_bootstrap_of_ten_segments_rejects_too_often() -> None:
    metric, random, rejected = (
        build_metric("exact_match"),
        np.random.default_rng(1),
        {"bootstrap": 0, "randomisation": 0},
    )
    for trial in range(300):
        right = random.integers(2, size=(2, 10)).astype(float)
        a, b = (np.stack([row, np.ones(10)], axis=1) for row in right)
        rejected["bootstrap"] += paired_bootstrap(metric, a, b, 400, seed=trial).p_value <= 0.05
        rejected["randomisation"] += approximate_randomisation(metric, a, b, 400, seed=trial).p_value <= 0.05
    assert 0.07 < rejected["bootstrap"] / 300 < 0.15
    assert rejected["randomisation"] / 300 < 0.06


def test_one_segment_is_not_enough() -> None:
    metric, baseline, system = pair("bleu")
    with pytest.raises(UserError, match=r"need two or more; received 1; allowed: approximate randomisation"):
        paired_bootstrap(metric, baseline[:1], system[:1])
