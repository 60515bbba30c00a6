"""The best threshold, against trying every one."""

import numpy as np
import pytest

from headway.metrics.label_metrics import best_threshold


def f_beta(scores: np.ndarray, wanted: np.ndarray, threshold: float, beta: float) -> float:
    predicted = scores >= threshold
    hits, given, all_wanted = (predicted & wanted).sum(), predicted.sum(), wanted.sum()
    precision, recall = hits / max(1, given), hits / max(1, all_wanted)
    return 100 * (1 + beta**2) * precision * recall / max(1e-12, beta**2 * precision + recall)


@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("seed", range(8))
def test_no_threshold_is_better(beta: float, seed: int) -> None:
    random = np.random.default_rng(seed)
    scores = random.integers(0, 9, 30) / 10  # many words have the same score
    wanted = random.random(30) < 0.3
    threshold, value = best_threshold(scores, wanted, beta)
    assert value == pytest.approx(f_beta(scores, wanted, threshold, beta))
    assert value == pytest.approx(max(f_beta(scores, wanted, threshold, beta) for threshold in np.linspace(0, 1, 101)))


def test_nothing_to_find_and_everything() -> None:
    assert best_threshold(np.array([0.2, 0.9]), np.array([False, False]))[1] == 0
    threshold, value = best_threshold(np.array([0.2, 0.9]), np.array([True, True]))
    assert (threshold, value) == (pytest.approx(0.1), 100)


@pytest.mark.parametrize("high", [0.99999994, 0.6000001, 0.5])
def test_neighbours_are_told_apart(high: float) -> None:
    """Between them there is no number, and their mean may round to the lower one."""
    scores = np.array([high, 0], dtype=np.float32)
    scores[1] = np.nextafter(scores[0], np.float32(0))
    threshold, value = best_threshold(scores, np.array([True, False]))
    assert value == 100
    assert (scores >= threshold).tolist() == [True, False]
