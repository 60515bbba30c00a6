"""Recordings of every kind come out as the same samples, and what cannot be read is named."""

import numpy as np
import pytest
import soundfile

from headway.core.errors import UserError
from headway.processing.audio import audio_files as reading
from headway.processing.audio.audio_files import facts_of, library, name_of, read_recording, write_wav
from tests.processing.audio import tones
from tests.processing.audio.tones import tone

KINDS = [("wav", "PCM_16", 1e-4), ("wav", "FLOAT", 1e-7), ("flac", "PCM_16", 1e-4), ("flac", "PCM_24", 1e-6)]


@pytest.mark.parametrize(("suffix", "subtype", "close"), KINDS)
def test_formats(tmp_path, suffix, subtype, close):
    path, samples = tmp_path / f"a.{suffix}", tone(440, 0.2)
    soundfile.write(path, samples, 8000, subtype=subtype)
    for given in (path, str(path)):
        np.testing.assert_allclose(read_recording(given, 8000), samples, atol=close)
    assert facts_of(path) == (8000, 1, pytest.approx(0.2))


def test_channels_are_averaged(tmp_path):
    left, right = tone(440, 0.1), tone(900, 0.1)
    soundfile.write(tmp_path / "a.wav", np.stack([left, right], 1), 8000, subtype="FLOAT")
    np.testing.assert_allclose(read_recording(tmp_path / "a.wav", 8000), (left + right) / 2, atol=1e-7)
    assert facts_of(tmp_path / "a.wav").channels == 2


@pytest.mark.parametrize("rate", [8000, 22050, 44100])
def test_rates_are_brought_to_one(tmp_path, rate):
    soundfile.write(tmp_path / "a.wav", tone(500, 1.0, rate), rate, subtype="FLOAT")
    samples, wanted = read_recording(tmp_path / "a.wav", 16000), tone(500, 1.0, 16000)
    assert samples.dtype == np.float32
    assert abs(len(samples) - len(wanted)) <= 1
    middle = slice(2000, 14000)  # the ends are where a filter begins
    np.testing.assert_allclose(samples[middle], wanted[middle], atol=2e-3)


def test_arrays_are_recordings(tmp_path):
    samples = tone(500, 0.3)
    np.testing.assert_array_equal(read_recording(samples, 8000), samples)
    np.testing.assert_array_equal(read_recording(samples.astype(np.float64), 8000), samples)
    np.testing.assert_allclose(read_recording((samples * 32768).astype(np.int16), 8000), samples, atol=1e-4)
    np.testing.assert_allclose(read_recording((samples * 128 + 128).astype(np.uint8), 8000), samples, atol=1e-2)
    np.testing.assert_allclose(read_recording(np.stack([samples, -samples], 1), 8000), 0)
    assert len(read_recording((samples, 8000), 16000)) == 2 * len(samples)
    assert len(read_recording(samples[:0], 8000)) == 0
    assert name_of(samples) == name_of((samples, 8000)) == "samples (2400,)"


def test_what_cannot_be_read_is_named(tmp_path):
    (tmp_path / "empty.wav").touch()
    (tmp_path / "text.flac").write_text("these are no samples")
    soundfile.write(tmp_path / "whole.flac", tone(440, 1.0), 8000)
    (tmp_path / "cut.flac").write_bytes((tmp_path / "whole.flac").read_bytes()[:40])
    for name, message in {
        "missing.wav": "there is no such recording", "empty.wav": "this recording cannot be read",
        "text.flac": "this recording cannot be read", "cut.flac": "this recording cannot be read",
    }.items():  # fmt: skip
        with pytest.raises(UserError, match=f"{name}: {message}"):
            read_recording(tmp_path / name, 8000)
        with pytest.raises(UserError, match=f"{name}: {message}"):
            facts_of(tmp_path / name)
    with pytest.raises(UserError, match="no numbers"):
        read_recording(np.array([0.1, np.nan]), 8000)
    with pytest.raises(UserError, match=r"samples far beyond -1 and 1; received [19]"):
        read_recording(np.array([0.1, -1e31]), 8000)


def test_a_wav_file_that_ends_early_is_named(tmp_path):
    path, pipe = tmp_path / "cut.wav", tmp_path / "pipe.wav"
    write_wav(path, tone(440, 1.0), 8000)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    for read in (facts_of, lambda path: read_recording(path, 8000)):
        with pytest.raises(UserError, match=r"cut\.wav: this recording is cut off: 8,022 bytes are missing"):
            read(path)
    pipe.write_bytes(whole[:40] + b"\xff" * 4 + whole[44:])  # a length that was not known when the header was written
    np.testing.assert_allclose(read_recording(pipe, 8000), tone(440, 1.0), atol=1e-4)
    odd = whole[:36] + b"LIST\x03\0\0\0abc\0" + whole[36:]  # other chunks stand before the samples, padded
    path.write_bytes(odd)
    assert len(read_recording(path, 8000)) == 8000


def streamed(flac: bytes, samples: int) -> bytes:
    """A FLAC file whose header speaks of another number of samples: 36 bits of its STREAMINFO."""
    start = 8 + 10 + 3
    kept = flac[start] & 0xF0
    return flac[:start] + bytes([kept | samples >> 32]) + (samples & 0xFFFFFFFF).to_bytes(4, "big") + flac[start + 5 :]


def test_a_wav_file_with_two_chunks_of_samples_is_named(tmp_path):
    path = tones.write(tmp_path / "two.wav", tones.say("low"))
    assert len(read_recording(path, tones.RATE))
    with path.open("ab") as file:
        file.write(b"data\x00\x00\x00\x00")
    for read in (facts_of, lambda path: read_recording(path, tones.RATE)):
        with pytest.raises(UserError, match=r"two\.wav: this recording has more than one chunk of samples"):
            read(path)


@pytest.mark.parametrize("rate", [1, 999, 10**6 + 1, 2**31 - 1])
def test_a_rate_that_no_recording_has_is_named(tmp_path, rate):
    path = tones.write(tmp_path / "odd.wav", tones.say("low"), rate)
    for read in (facts_of, lambda path: read_recording(path, tones.RATE)):
        with pytest.raises(UserError, match=r"odd\.wav: no recording has this sample rate"):
            read(path)
    with pytest.raises(UserError, match="no recording has this sample rate"):
        read_recording((tones.say("low"), rate), tones.RATE)


def test_a_flac_header_is_not_believed(tmp_path):
    path, samples = tmp_path / "a.flac", tone(440, 1.0)
    soundfile.write(path, samples, 8000)
    whole = path.read_bytes()
    assert streamed(whole, 8000) == whole
    path.write_bytes(streamed(whole, 2**36 - 1))
    with pytest.raises(UserError, match=r"a\.flac: the header of this recording speaks of 68,719,476,735 samples"):
        facts_of(path)
    for claimed in (2**36 - 1, 8001):
        path.write_bytes(streamed(whole, claimed))
        with pytest.raises(UserError, match=f"damaged or cut off: it has no {claimed:,} samples"):
            read_recording(path, 8000)


def test_a_recording_without_an_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "MOST_SAMPLES", 1000)
    monkeypatch.setattr(reading, "SAMPLES_A_BYTE", 0)
    write_wav(tmp_path / "a.wav", tone(440, 1.0), 8000)
    with pytest.raises(UserError, match="more than 1,000 samples"):
        read_recording(tmp_path / "a.wav", 8000)


def test_blocks_make_no_difference(tmp_path, monkeypatch):
    noise = np.random.default_rng(1).uniform(-1, 1, (3000, 3)).astype(np.float32)
    soundfile.write(tmp_path / "a.wav", noise, 8000, subtype="FLOAT")
    whole = read_recording(tmp_path / "a.wav", 16000)
    monkeypatch.setattr(reading, "BLOCK", 700)
    np.testing.assert_array_equal(read_recording(tmp_path / "a.wav", 16000), whole)
    np.testing.assert_array_equal(read_recording((noise, 8000), 16000), whole)


def test_the_extra_is_named_where_it_is_missing(monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(reading.importlib, "import_module", missing)
    with pytest.raises(UserError, match=r"speech needs soxr.* pip install 'headway\[speech\]'"):
        library("soxr")


def test_what_is_written_is_read(tmp_path):
    write_wav(tmp_path / "a.wav", tone(440, 0.1), 8000)
    np.testing.assert_allclose(read_recording(tmp_path / "a.wav", 8000), tone(440, 0.1), atol=1e-4)
