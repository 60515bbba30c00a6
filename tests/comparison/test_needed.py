"""The seeds that would decide: the fewest with which the interval is narrow enough, and mostly in the right place."""

import numpy as np
import pytest

from headway.comparison.claims import MOST_SEEDS, POWER, needed, needed_in_words, reach, scaled
from headway.comparison.statistics import Estimate

ESTIMATE = Estimate(0.5, 3, 400, seed_variance=0.3, segment_variance=0.04, interaction_variance=0.1)


def test_variances_shrink_as_there_is_more() -> None:
    assert scaled(ESTIMATE, 3, 400) == ESTIMATE
    more = scaled(ESTIMATE, 12, 1600)
    assert (more.seed_variance, more.segment_variance) == pytest.approx(((0.2 + 0.1 / 4) / 4, 0.01))
    assert more.interaction_variance == pytest.approx(0.1 / 16)


def test_seeds_alone_where_they_are_enough() -> None:
    seeds, segments = needed(ESTIMATE, 1.0) or (0, 0)
    assert segments == 400
    assert reach(scaled(ESTIMATE, seeds, 400), 0.95) <= 1.0 < reach(scaled(ESTIMATE, seeds - 1, 400), 0.95)
    assert needed_in_words(ESTIMATE, 1.0) == f"{seeds} seeds"


def test_seeds_and_segments_where_the_test_set_is_too_small() -> None:
    assert scaled(ESTIMATE, MOST_SEEDS, 400).half_width() > 0.4
    seeds, segments = needed(ESTIMATE, 0.4) or (0, 0)
    times = seeds // 3
    assert (seeds, segments) == (3 * times, 400 * times)
    assert reach(scaled(ESTIMATE, seeds, segments), 0.95) <= 0.4
    assert reach(scaled(ESTIMATE, seeds - 3, segments - 400), 0.95) > 0.4
    assert needed_in_words(ESTIMATE, 0.4) == f"{seeds} seeds and {segments:,} segments"


def test_so_many_decide_as_often_as_they_should() -> None:
    """Of seeds with the variances that were seen, and with a true difference of 1."""
    seeds, _ = needed(ESTIMATE, 1.0) or (0, 0)
    enough = scaled(ESTIMATE, seeds, 400)
    rng = np.random.default_rng(1)
    deviation = np.sqrt((enough.seed_variance or 0) * seeds)
    drawn = rng.normal(1.0, deviation, (5000, seeds)) + rng.normal(0, np.sqrt(enough.segment_variance), (5000, 1))
    found = [
        Estimate(row.mean(), seeds, 400, row.var(ddof=1) / seeds, enough.segment_variance).interval()[0] > 0
        for row in drawn
    ]
    assert np.mean(found) == pytest.approx(POWER, abs=0.04)


def test_more_seeds_than_there_are() -> None:
    assert needed_in_words(Estimate(1.0, 5, 1000, 0.3, 0.02, 0.01), 20.0) == "6 seeds"


def test_a_cost_has_no_segments() -> None:
    estimate = Estimate(0.5, 3, 3, seed_variance=100.0, segment_variance=0.0)
    seeds, segments = needed(estimate, 1.0) or (0, 0)
    assert seeds > MOST_SEEDS
    assert segments == 3
    assert needed_in_words(estimate, 1.0) == f"{seeds:,} seeds"
    assert needed_in_words(estimate, 1e-4) == "more than 1,000 times as many seeds"


def test_what_nothing_would_tell() -> None:
    assert needed(ESTIMATE, 0.0) is None
    assert needed(Estimate(0.5, 1, 400, None, 0.04), 1.0) is None
    assert needed_in_words(ESTIMATE, 1e-4) == "more than 1,000 times as many seeds and segments"
