"""Estimates over seeds and segments: their parts against definitions, and their coverage against what they promise."""

import numpy as np
import pytest
from scipy import stats

from headway.comparison.statistics import Estimate, Linearised, holm, linearise
from headway.errors import UserError
from headway.metrics import bootstrap_interval, build_metric
from tests.comparison.toys import LINES, REFERENCES, hypotheses


def test_the_jackknife_of_a_mean_is_its_deviations() -> None:
    metric = build_metric("rouge-1")
    rows = metric.statistics(LINES, [REFERENCES])
    linear = linearise(metric, [rows])
    values = 100 * rows[:, 0]
    np.testing.assert_allclose(linear.influences[0], values - values.mean(), atol=1e-9)
    assert linear.scores[0] == pytest.approx(values.mean())
    estimate = linear.estimate()
    assert estimate.segment_variance == pytest.approx(values.var(ddof=1) / len(values))
    assert estimate.interval() == pytest.approx(stats.ttest_1samp(values, 0).confidence_interval(), rel=1e-6)


@pytest.mark.parametrize("name", ["bleu", "chrf", "ter", "wer"])
def test_one_seed_gives_about_the_interval_of_the_bootstrap(name: str) -> None:
    metric = build_metric(name)
    rows = metric.statistics(hypotheses(200, seed=1), [REFERENCES * 25])
    low, high = linearise(metric, [rows]).estimate().interval()
    drawn = bootstrap_interval(metric, rows, samples=1000)
    assert low == pytest.approx(drawn.low, abs=0.25 * (drawn.high - drawn.low))
    assert high - low == pytest.approx(drawn.high - drawn.low, rel=0.15)


def crossed(seeds: int, segments: int, sds: tuple[float, float, float], rng: np.random.Generator) -> Linearised:
    """A mean of 0 with effects of seeds, segments and both together, of these standard deviations."""
    of_seed, of_segment, of_both = sds
    values = (
        rng.normal(0, of_seed, (seeds, 1))
        + rng.normal(0, of_segment, segments)
        + rng.normal(0, of_both, (seeds, segments))
    )
    scores = values.mean(axis=1)
    return Linearised(scores, values - scores[:, None])


def test_variances_are_those_of_crossed_random_effects() -> None:
    sds, seeds, segments = (0.1, 1.0, 2.0), 4, 50
    rng = np.random.default_rng(1)
    found = [crossed(seeds, segments, sds, rng).estimate() for _ in range(2000)]
    means = np.array([estimate.value for estimate in found])
    assert np.mean([e.seed_variance for e in found]) == pytest.approx((0.01 + 4 / segments) / seeds, rel=0.05)
    assert np.mean([e.segment_variance for e in found]) == pytest.approx(1 / segments, rel=0.05)
    assert means.var() == pytest.approx(0.01 / seeds + 4 / seeds / segments + 1 / segments, rel=0.1)


@pytest.mark.parametrize("seeds", [2, 3, 5, 10])
@pytest.mark.parametrize("sds", [(0.0, 1.0, 0.0), (0.0, 1.0, 1.0), (0.05, 1.0, 0.5), (0.1, 1.0, 1.0), (0.5, 0.1, 0.1)])
def test_intervals_hold_the_truth_as_often_as_they_say(seeds: int, sds: tuple[float, float, float]) -> None:
    rng = np.random.default_rng(2)
    estimates = [crossed(seeds, 100, sds, rng).estimate() for _ in range(400)]
    held = np.mean([low <= 0 <= high for low, high in (estimate.interval() for estimate in estimates)])
    assert held >= 0.93


def test_the_p_value_is_where_the_interval_ends_at_nothing() -> None:
    estimate = Estimate(1.2, 3, 500, 0.04, 0.09)
    p = estimate.p_value()
    assert p is not None
    assert estimate.interval(1 - p)[0] == pytest.approx(0, abs=1e-6)
    assert 0.01 < p < 0.2
    assert Estimate(0.0, 3, 500, 0.04, 0.09).p_value() == 1
    assert Estimate(5.0, 3, 500, 0.0, 0.0).p_value() == pytest.approx(0, abs=1e-29)
    assert Estimate(5.0, 1, 500, None, 0.1).p_value() is None


def test_seeds_alone_are_the_paired_t_test() -> None:
    scores = np.array([0.3, 0.9, 0.5, 0.7])
    estimate = Linearised(scores, np.zeros((4, 10))).estimate()
    test = stats.ttest_1samp(scores, 0)
    assert estimate.p_value() == pytest.approx(test.pvalue, rel=1e-6)
    assert estimate.interval() == pytest.approx(test.confidence_interval(), rel=1e-9)


def test_holm() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_one_segment_is_too_few() -> None:
    with pytest.raises(UserError, match="two segments or more"):
        linearise(build_metric("bleu"), [np.ones((1, 10))])


def test_a_metric_without_finite_scores_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    metric = build_metric("exact_match")
    monkeypatch.setattr(metric, "aggregate", lambda totals: float("nan"))
    with pytest.raises(UserError, match=r"exact_match: .*no finite score.*received \[nan, nan\]"):
        linearise(metric, [np.ones((3, 2))])
