"""Filterbanks are Kaldi's: equal to kaldi-native-fbank called directly, and to their definition written out."""

import math

import kaldi_native_fbank
import numpy as np
import pytest
import torch
from pydantic import ValidationError

from headway.core.errors import UserError
from headway.processing.audio.features import (
    AudioConfig,
    RunningStatistics,
    SpecAugmentConfig,
    Statistics,
    check_bins,
    count_frames,
    filterbanks,
    spec_augment,
)
from headway.recipe import parse_recipe
from tests.processing.audio.tones import say

SMALL = AudioConfig(sample_rate=8000, bins=23)


def kaldi(samples, rate, bins):
    """kaldi-native-fbank with its own defaults, which are Kaldi's but for the dither."""
    options = kaldi_native_fbank.FbankOptions()
    options.frame_opts.samp_freq, options.frame_opts.dither, options.mel_opts.num_bins = rate, 0, bins
    online = kaldi_native_fbank.OnlineFbank(options)
    online.accept_waveform(rate, (samples * 32768).tolist())
    online.input_finished()
    return np.stack([online.get_frame(number) for number in range(online.num_frames_ready)])


def oracle(samples, config):
    """Kaldi's definition, frame by frame in float64 (feat/feature-window.cc, mel-computations.cc, feature-fbank.cc)."""
    rate, bins = config.sample_rate, config.bins
    length, shift = int(rate * config.frame_length / 1000), int(rate * config.frame_shift / 1000)
    size = 2 ** math.ceil(math.log2(length))
    window = [(0.5 - 0.5 * math.cos(2 * math.pi * i / (length - 1))) ** 0.85 for i in range(length)]

    def mel(frequency):
        return 1127 * math.log(1 + frequency / 700)

    low, step = mel(20), (mel(rate / 2) - mel(20)) / (bins + 1)
    rows = []
    for start in range(0, len(samples) - length + 1, shift):
        x = samples[start : start + length].astype(np.float64) * 32768
        x = x - x.mean()
        x = np.array([x[i] - 0.97 * x[max(0, i - 1)] for i in range(length)]) * window
        power = np.abs(np.fft.rfft(np.concatenate([x, np.zeros(size - length)]))) ** 2
        row = []
        for number in range(bins):
            left, centre, right = (low + (number + each) * step for each in (0, 1, 2))
            energy = 0.0
            for place in range(size // 2):
                m = mel(place * rate / size)
                if left < m < right:
                    energy += power[place] * min((m - left) / (centre - left), (right - m) / (right - centre))
            row.append(math.log(max(energy, np.finfo(np.float32).eps)))
        rows.append(row)
    return np.array(rows)


@pytest.mark.parametrize(("rate", "bins"), [(16000, 80), (8000, 40)])
def test_equal_to_kaldi(rate, bins):
    samples = say("low high", rate=rate)
    found = filterbanks(samples, AudioConfig(sample_rate=rate, bins=bins))
    np.testing.assert_array_equal(found, kaldi(samples, rate, bins))
    assert found.dtype == np.float32
    assert len(found) == count_frames(len(samples) / rate, AudioConfig(sample_rate=rate, bins=bins))


def test_frames_are_counted_as_resampling_rounds():
    config = AudioConfig(sample_rate=11025, bins=40)
    assert [count_frames(samples / 22050, config) for samples in (3187, 3188, 3189, 3190)] == [12, 12, 13, 13]
    assert count_frames(3301 / 44100, AudioConfig(sample_rate=22050, bins=40)) == 1 + (1651 - 551) // 220


def test_equal_to_the_definition():
    samples = say("low")
    np.testing.assert_allclose(filterbanks(samples, SMALL), oracle(samples, SMALL), atol=2e-3)
    other = AudioConfig(sample_rate=8000, bins=11, frame_length=20, frame_shift=15)
    np.testing.assert_allclose(filterbanks(samples, other), oracle(samples, other), atol=2e-3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"frame_shift": 0.05}, "frame_shift is shorter than 1 of 8,000 samples"),
        ({"frame_length": 0.1}, "frame_length is shorter than 2 of 8,000 samples"),
        ({"bins": 2}, "greater than or equal to 3"),
    ],
)
def test_frames_that_no_recording_has_are_refused(settings, message):
    """Kaldi's filterbanks divide by a shift of 0 samples, which ends the process."""
    with pytest.raises(ValidationError, match=message):
        AudioConfig(sample_rate=8000, **settings)


def test_more_bins_than_a_spectrum_has_are_refused():
    check_bins(AudioConfig(sample_rate=8000, bins=80))
    with pytest.raises(UserError, match=r"data\.audio\.bins: a frame of 25 ms at 8,000 Hz has no room .*received 128"):
        check_bins(AudioConfig(sample_rate=8000, bins=128))


@pytest.mark.parametrize("samples", [0, 199, 200, 279, 280, 281])
def test_frames_are_counted(samples):
    found = filterbanks(np.zeros(samples, np.float32), SMALL)
    assert found.shape == (count_frames(samples / 8000, SMALL), 23)
    assert len(found) == (0 if samples < 200 else 1 if samples < 280 else 2)


def test_an_utterance_is_normalised_bin_by_bin():
    frames = np.random.default_rng(1).normal(3, 2, (50, 4)).astype(np.float32)
    frames[:, 2] = 7  # a bin that never changes
    found = Statistics.of(frames).normalise(frames)
    for each in (0, 1, 3):
        values = [float(value) for value in frames[:, each]]
        mean = sum(values) / 50
        deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / 50)
        np.testing.assert_allclose(found[:, each], [(value - mean) / deviation for value in values], atol=1e-5)
    assert not found[:, 2].any()
    assert found.dtype == np.float32


def test_running_statistics_are_those_of_all_frames():
    parts = [np.random.default_rng(seed).normal(seed, 2, (20 + seed, 3)).astype(np.float32) for seed in range(4)]
    running = RunningStatistics(3)
    for part in parts:
        running.add(part)
    found, whole = running.statistics(), Statistics.of(np.concatenate(parts))
    np.testing.assert_allclose(found.mean, whole.mean, rtol=1e-12)
    np.testing.assert_allclose(found.variance, whole.variance, rtol=1e-10)


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
