"""Estimates over seeds and segments: their parts against definitions, and their coverage against what they promise."""

import statistics

import numpy as np
import pytest
import sacrebleu
from sacrebleu.significance import PairedTest
from scipy import stats

from headway.core.errors import UserError
from headway.metrics import build_metric
from headway.metrics.intervals import (
    Estimate,
    Linearised,
    holm,
    length_bins,
    linearise,
    ordered_groups,
    pooled_difference,
    randomized,
)
from tests.comparison.toys import LINES, REFERENCES, hypotheses
from tests.tiers import thinned


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
    drawn = np.random.default_rng(1).multinomial(200, np.full(200, 1 / 200), size=1000)
    least, most = np.quantile(metric.aggregate_all(drawn @ rows), [0.025, 0.975])
    assert low == pytest.approx(least, abs=0.25 * (most - least))
    assert high - low == pytest.approx(most - least, rel=0.15)


def test_p_values_of_outputs_are_those_that_sacrebleu_prints() -> None:
    references, given = [REFERENCES * 5], [hypotheses(40, seed=seed) for seed in (1, 2)]
    theirs = {"BLEU": sacrebleu.BLEU(), "chrF2": sacrebleu.CHRF()}
    _, printed = PairedTest([(str(seed), each) for seed, each in enumerate(given)], theirs, references, "ar")()
    for name in theirs:
        metric = build_metric(name.lower().rstrip("2"))
        first, second = (metric.statistics(each, references) for each in given)
        assert randomized(metric, [(first, second)]) == pytest.approx(
            [printed[name][1].p_value], abs=0.001
        )  # which are not equal
    assert randomized(metric, [(first, first)]) == [1]


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


def counted(right: np.ndarray) -> Linearised:
    """Exact match of systems without and with an error, from which of N segments each seed has right, (n, N)."""
    metric = build_metric("exact_match")
    return linearise(metric, [np.stack([row, np.ones(len(row))], axis=1) for row in right.astype(float)])


@pytest.mark.parametrize("seeds", [2, 3])
def test_seeds_with_equal_scores_do_not_make_a_verdict(seeds: int) -> None:
    one_error_each = np.ones((seeds, 20)) - np.eye(seeds, 20)  # another segment by every seed
    estimate = (counted(np.ones((seeds, 20))) - counted(one_error_each)).estimate()
    assert estimate.value == pytest.approx(5)
    assert estimate.seed_variance == 0
    low, high = estimate.interval()
    assert low < 0 < high
    assert (estimate.p_value() or 0) > 0.05


@pytest.mark.parametrize(("segments", "margin"), thinned([(100, 1.0), (200, 0.5), (1000, 0.5)], 3, 1))
@pytest.mark.parametrize("seeds", [2, 3])
def test_systems_that_seldom_disagree_are_not_even_by_chance(segments: int, margin: float, seeds: int) -> None:
    """One is always right, and the other so often that the true difference is the margin; seeds err alike."""
    rng, even, always = np.random.default_rng(6), 0, counted(np.ones((seeds, segments)))
    for _ in range(200):
        right = np.tile(rng.random(segments) < 1 - margin / 100, (seeds, 1))
        low, high = (always - counted(right)).estimate().interval()
        even += -margin < low and high < margin
    assert even <= 0.05 * 200


def test_equal_outputs_are_even_within_what_their_number_tells() -> None:
    low, high = (counted(np.ones((3, 200))) - counted(np.ones((3, 200)))).estimate().interval()
    assert high == -low
    assert high == pytest.approx(100 * 2 * stats.t.isf(0.025, 199) / 200)


def test_disagreements_that_were_not_drawn_hardly_widen_other_intervals() -> None:
    metric, references = build_metric("bleu"), [REFERENCES * 25]
    one, other = (linearise(metric, [metric.statistics(hypotheses(200, seed=seed), references)]) for seed in (1, 2))
    difference = one - other
    spread = difference.influences[0].var(ddof=1) / 200
    assert difference.estimate().segment_variance == pytest.approx(spread, rel=0.03)


@pytest.mark.parametrize("segments", [2, 3])
def test_two_segments_make_no_verdict(segments: int) -> None:
    estimate = (counted(np.ones((2, segments))) - counted(np.zeros((2, segments)))).estimate()
    assert estimate.value == 100
    assert (estimate.p_value() or 0) > 0.05


def test_no_interval_is_narrower_than_that_of_the_test_set_alone() -> None:
    rng = np.random.default_rng(3)
    for _ in range(200):
        effects = crossed(3, 50, (0.0, 0.2, 1.0), rng)
        means = effects.influences.mean(axis=0)
        alone = stats.t.isf(0.025, 49) * np.sqrt(means.var(ddof=1) / 50)
        assert effects.estimate().half_width() >= alone * (1 - 1e-9)


@pytest.mark.parametrize("share", [0.05, 0.5])
def test_equal_systems_with_two_seeds_seldom_differ_by_a_counted_metric(share: float) -> None:
    rng = np.random.default_rng(4)
    wrong = 0
    for _ in range(400):
        one, other = (counted(rng.random((2, 20)) < share) for _ in range(2))
        wrong += ((one - other).estimate().p_value() or 1.0) <= 0.05
    assert wrong <= 0.05 * 400


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


@pytest.mark.parametrize(("deviations", "of_pair"), [((1, 1, 3, 3), False), ((3, 3, 1, 1), True), ((2, 1, 1, 1), True)])
def test_pooled_intervals_are_those_of_independent_seeds(deviations: tuple[int, ...], of_pair: bool) -> None:
    base, seeds = [0.0, 1.0, -1.0, 0.5], 4
    rows = [[index + sd * base[(seed + index) % seeds] for seed in range(seeds)] for index, sd in enumerate(deviations)]
    systems = [Linearised(np.array(row), np.zeros((seeds, 1000))) for row in rows]
    estimate = pooled_difference(systems[0], systems[1], systems)
    variances = [statistics.variance(row) for row in rows]
    own, shared = variances[0] + variances[1], 2 * statistics.fmean(variances)
    assert (own > shared) is of_pair
    quantile = stats.t.ppf(0.975, 3 * (seeds - 1))  # of three systems at most
    by_seeds = quantile**2 * max(own, shared) / seeds
    unseen = 4 * (statistics.fmean(rows[1]) - statistics.fmean(rows[0])) ** 2 / 1000**2
    half = (by_seeds + stats.t.ppf(0.975, 999) ** 2 * unseen) ** 0.5
    middle = statistics.fmean(rows[1]) - statistics.fmean(rows[0])
    assert estimate.interval() == pytest.approx((middle - half, middle + half), rel=1e-9)
    two = pooled_difference(systems[0], systems[1], systems[:2])
    assert two.pooled == 2
    alone = [Linearised(one.scores[:1], one.influences[:1]) for one in systems]
    assert pooled_difference(alone[0], alone[1], alone).seed_variance is None


def test_holm() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_one_segment_has_no_interval() -> None:
    linear = linearise(build_metric("exact_match"), [np.ones((1, 2))])
    assert linear.interval() == (100, None, None, None)
    assert linear.estimate().interval() == (-np.inf, np.inf)


def test_a_metric_without_finite_scores_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    metric = build_metric("exact_match")
    monkeypatch.setattr(metric, "aggregate", lambda totals: float("nan"))
    with pytest.raises(UserError, match=r"exact_match: .*no finite score.*received \[nan, nan\]"):
        linearise(metric, [np.ones((3, 2))])


def test_bins_of_lengths_hold_about_equally_many() -> None:
    assert length_bins([12, *range(1, 12)]) == [1, 3, 5, 7, 9, 11]
    assert length_bins([4, 4, 4]) == [4]
    assert length_bins([1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 3, 4]) == [1, 3]  # a length is in one bin


def test_groups_are_in_the_order_of_their_numbers() -> None:
    assert ordered_groups(["10", "2", "10"]) == (("2", "10"), (2.0, 10.0))
    assert ordered_groups(["10", "two", "10"]) == (("10", "two"), ())
    assert ordered_groups(["3", "nan", "1"]) == (("3", "nan", "1"), ())
