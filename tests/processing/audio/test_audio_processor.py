"""The side of recordings: frames, their normalisation, and settings that a run keeps."""

import numpy as np
import pytest

from headway.core.errors import UserError
from headway.processing.audio.audio_processor import AudioProcessor
from headway.processing.audio.features import AudioConfig, Statistics, filterbanks
from tests.processing.audio.tones import say, write

CONFIG = AudioConfig(sample_rate=8000, bins=12)


def test_frames_of_a_recording(tmp_path):
    samples, side = say("low mid"), AudioProcessor(CONFIG)
    path = write(tmp_path / "a.flac", samples)
    frames = side.encode(samples).values
    assert frames.shape[1] == side.size == 12
    np.testing.assert_allclose(frames.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(frames.std(0), 1, atol=1e-4)
    assert np.abs(side.encode(path).values - frames).max() < 0.1  # 16 bits round the quiet parts
    assert side.name(path) == str(path)
    assert side.labels(frames, [0, 4, 8, 120]) == ["0.00", "0.04", "0.08", "1.20"]


def test_normalisations():
    samples, statistics = say("low"), Statistics(np.full(12, 2.0), np.full(12, 4.0))
    raw = filterbanks(samples, CONFIG)
    none = AudioProcessor(CONFIG.model_copy(update={"normalise": "none"}))
    np.testing.assert_array_equal(none.encode(samples).values, raw)
    whole = AudioProcessor(CONFIG.model_copy(update={"normalise": "global"}), statistics)
    np.testing.assert_allclose(whole.encode(samples).values, (raw - 2) / 2, rtol=1e-6)


def test_too_short_is_named(tmp_path):
    path = write(tmp_path / "short.wav", say("low")[:300])
    with pytest.raises(UserError, match=r"short\.wav: this recording is too short; received '2 frames'.*min_frames"):
        AudioProcessor(CONFIG).encode(path)


def test_settings_are_kept(tmp_path):
    statistics = Statistics(np.random.default_rng(1).normal(size=12), np.full(12, 1 / 3))
    side = AudioProcessor(CONFIG.model_copy(update={"normalise": "global"}), statistics)
    side.save(tmp_path / "side")
    loaded = AudioProcessor.load(tmp_path / "side")
    assert loaded.config == side.config
    np.testing.assert_array_equal(loaded.statistics.mean, statistics.mean)
    assert loaded.same(side)
    assert AudioProcessor(CONFIG.model_copy(update={"cache": False})).same(AudioProcessor(CONFIG))
    assert not AudioProcessor(CONFIG.model_copy(update={"bins": 13})).same(AudioProcessor(CONFIG))
    assert not AudioProcessor(CONFIG).same(side)
    (tmp_path / "side" / "audio.json").write_text("{")
    with pytest.raises(UserError, match=r"audio\.json.*damaged"):
        AudioProcessor.load(tmp_path / "side")
