"""SpecAugment hides what it may and no more, and draws from torch's generator alone."""

import numpy as np
import pytest
import torch

from headway.errors import UserError
from headway.processing.audio.augment import SpecAugmentConfig, spec_augment
from headway.recipe import parse_recipe


def runs(hidden) -> list[int]:
    """The lengths of the stretches of True."""
    text = "".join("x" if each else " " for each in hidden)
    return [len(part) for part in text.split()]


def masked(count, bins, seed, **settings):
    torch.manual_seed(seed)
    frames = np.ones((count, bins), np.float32)
    found = spec_augment(frames, SpecAugmentConfig(**settings))
    assert (frames == 1).all()
    assert set(np.unique(found)) <= {0.0, 1.0}
    return found == 0


def test_masks_over_bins_and_frames():
    bins_hidden, frames_hidden = set(), set()
    for seed in range(200):
        hidden = masked(30, 10, seed, frequency_masks=1, frequency_width=4, time_masks=1, time_width=7)
        columns, rows = hidden.all(axis=0), hidden.all(axis=1)
        assert (hidden == (columns[None] | rows[:, None])).all()  # nothing but whole bins and whole frames
        for seen, counts in ((bins_hidden, runs(columns)), (frames_hidden, runs(rows))):
            assert len(counts) <= 1
            seen.add(sum(counts))
    assert bins_hidden == set(range(5))
    assert frames_hidden == set(range(8))


def test_masks_reach_both_ends():
    hidden = np.stack([masked(9, 6, seed, frequency_masks=1, frequency_width=2, time_masks=1, time_width=3)
                       for seed in range(300)])  # fmt: skip
    assert hidden.all(axis=2).any(axis=0).all()
    assert hidden.all(axis=1).any(axis=0).all()


@pytest.mark.parametrize(("count", "share", "most"), [(3, 1.0, 3), (10, 0.25, 2), (2, 0.2, 0), (1, 1.0, 1)])
def test_never_more_than_the_utterance_has(count, share, most):
    hidden = [masked(count, 5, seed, frequency_masks=0, time_masks=1, time_width=100, time_share=share).all(1).sum()
              for seed in range(100)]  # fmt: skip
    assert max(hidden) == most
    assert masked(4, 3, 1, frequency_masks=3, frequency_width=27, time_masks=0).shape == (4, 3)


def test_the_same_seed_hides_the_same():
    first, again, other = (masked(40, 20, seed) for seed in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()


def test_policies_have_names():
    def audio(**settings):
        data = {"train": {"tsv": "train.tsv"}, "audio": settings}
        return parse_recipe({"data": data, "training": {"updates": 1}}).data.audio

    assert audio().spec_augment is None
    assert audio(spec_augment="LD").spec_augment == SpecAugmentConfig(
        frequency_masks=2, frequency_width=27, time_masks=2, time_width=100, time_share=1.0
    )
    assert audio(spec_augment={"time_masks": 0}).spec_augment.time_masks == 0
    with pytest.raises(UserError, match=r"data\.audio\.spec_augment: unknown policy 'LX'; allowed: LB, LD, SM, SS"):
        audio(spec_augment="LX")
    with pytest.raises(UserError, match=r"data\.audio: spec_augment puts the mean"):
        audio(spec_augment="LD", normalise="none")
    with pytest.raises(UserError, match=r"min_frames \(9\) is above max_frames \(8\)"):
        audio(min_frames=9, max_frames=8)
