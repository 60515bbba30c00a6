"""Corpora sampled by weight: the shares are exact over epochs, all pairs of a corpus are used equally, no state."""

import numpy as np
import pytest

from headway.corpora.mixture import Mixture, split_by_origin


def test_shares_are_exact_and_pairs_are_used_equally() -> None:
    mixture = Mixture([np.arange(40), np.arange(40, 47)], [1.0, 3.0])
    epochs = [mixture.chosen(5, epoch) for epoch in range(60)]
    counts = np.bincount(np.concatenate(epochs), minlength=47)
    assert counts.sum() == 60 * 47
    assert counts[:40].sum() == 60 * 47 // 4
    for part in (counts[:40], counts[40:]):
        assert part.max() - part.min() <= 1
    assert all(abs(int((epoch >= 40).sum()) - 47 * 3 / 4) <= 1 for epoch in epochs)


def test_an_epoch_is_a_function_of_seed_and_epoch() -> None:
    first, second = (Mixture([np.arange(9), np.arange(9, 30)], [0.3, 0.7]) for _ in range(2))
    for epoch in range(4):
        first.chosen(1, epoch)
    assert np.array_equal(first.chosen(1, 7), second.chosen(1, 7))
    assert not np.array_equal(first.chosen(1, 7), first.chosen(2, 7))
    assert not np.array_equal(first.chosen(1, 7), first.chosen(1, 8))


@pytest.mark.parametrize("seed", [1, 2])
def test_within_a_pass_no_pair_comes_twice(seed: int) -> None:
    mixture = Mixture([np.arange(10), np.arange(10, 20)], [1, 1])
    epoch = mixture.chosen(seed, 3)
    assert len(set(epoch.tolist())) == len(epoch) == 20


def test_positions_by_origin() -> None:
    parts = split_by_origin(np.array([1, 3, 4, 5, 9]), [3, 3, 9])
    assert [part.tolist() for part in parts] == [[0, 1], [], [2, 3, 4]]
