"""Recordings: WAV files whose headers are drawn field by field, other formats, and both of them changed at random."""

from __future__ import annotations

import io
import math
import struct
import wave
from dataclasses import dataclass
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
from hypothesis.strategies import SearchStrategy
from numpy.typing import NDArray

from headway.core.errors import UserError
from headway.processing.audio.audio_files import AudioFacts, facts_of, read_recording
from tools.campaigns.campaign import Campaign
from tools.campaigns.mutations import Change, changed, changes, expanded

PCM, FLOAT, ALAW, EXTENSIBLE = 1, 3, 6, 0xFFFE
OTHERS = ("FLAC", "OGG", "AIFF", "AU", "W64", "CAF", "RF64")
TOKENS = (
    b"RIFF", b"WAVE", b"fmt ", b"data", b"LIST", b"fact", b"fLaC", b"OggS", b"FORM", b"\xff\xff\xff\xff", b"\x00" * 4,
    b"\x7f\xff\xff\xff", b"\xff\xff\xff\x7f", b"\x01\x00", b"\x00\x00\x80\x7f", b"\x00\x00\xc0\x7f", b"ID3\x04",
)  # fmt: skip
RATE = 8000
UNKNOWN_LENGTH = 0x7FFFF000  # bytes: headers of files that were written to a pipe say so much or more


@dataclass(frozen=True)
class Wav:
    """A WAV file.

    Attributes:
        tag: of its format.
        channels, rate, bits: as its header says; the samples are written so.
        count: of samples a channel.
        said: what the chunk of samples says of its length, more than there is.
        before, after: further chunks, by name and length.
        blocks: what the header says of a sample's bytes, beyond what is right.
    """

    tag: int = PCM
    channels: int = 1
    rate: int = RATE
    bits: int = 16
    count: int = 800
    said: int = 0
    before: tuple[tuple[bytes, int], ...] = ()
    after: tuple[tuple[bytes, int], ...] = ()
    blocks: int = 0


@dataclass(frozen=True)
class AudioCase:
    """A recording, changed or not, and what is done with it.

    Attributes:
        sound: a WAV file, or the name of another format.
        damage: changes to the file.
        corpus: whether `headway data check` reads it, beside a sound one.
        train: whether training does.
    """

    sound: Wav | str
    damage: tuple[Change, ...] = ()
    corpus: bool = False
    train: bool = False


def waveform(count: int, channels: int) -> NDArray[np.float64]:
    """Samples (N, C) of a tone, louder in the first channel."""
    tone = 0.4 * np.sin(2 * np.pi * 440 / RATE * np.arange(count))
    return tone[:, None] / np.arange(1, channels + 1)


def encoded(samples: NDArray[np.float64], tag: int, bits: int) -> bytes:
    """Samples (N, C) as a WAV file holds them; bits that no format has are written as 16."""
    if tag == FLOAT:
        return samples.astype("<f8" if bits == 64 else "<f4").tobytes()
    if bits == 8:
        return (np.round(samples * 127) + 128).astype("u1").tobytes()
    if bits in (24, 32):
        whole = np.round(samples * (2**31 - 1)).astype("<i4")
        return whole.tobytes() if bits == 32 else whole[..., None].view("u1")[..., 1:].tobytes()
    return np.round(samples * (2**15 - 1)).astype("<i2").tobytes()


def wav_bytes(wav: Wav) -> bytes:
    """The file."""
    width = max(1, wav.bits // 8)
    body = encoded(waveform(wav.count, max(1, min(wav.channels, 8))), wav.tag, wav.bits)
    block = (width * wav.channels + wav.blocks) % 65536
    form = struct.pack(
        "<HHIIHH", wav.tag, wav.channels, wav.rate, (wav.rate * block) % 2**32, block, wav.bits
    )  # fmt: skip
    if wav.tag == EXTENSIBLE:
        form += struct.pack("<HHIH", 22, wav.bits, 0, PCM) + b"\x00\x00\x00\x00\x10\x00\x80\x00\x00\xaa\x00\x38\x9b\x71"
    chunks = [(b"fmt ", form), *_zeros(wav.before)]
    parts = b"".join(_chunk(name, content) for name, content in chunks)
    parts += b"data" + struct.pack("<I", (len(body) + wav.said) % 2**32) + body + b"\x00" * (len(body) % 2)
    parts += b"".join(_chunk(name, content) for name, content in _zeros(wav.after))
    return b"RIFF" + struct.pack("<I", 4 + len(parts)) + b"WAVE" + parts


def _zeros(chunks: tuple[tuple[bytes, int], ...]) -> list[tuple[bytes, bytes]]:
    return [(name, b"\x00" * length) for name, length in chunks]


def _chunk(name: bytes, content: bytes) -> bytes:
    return name + struct.pack("<I", len(content)) + content + b"\x00" * (len(content) % 2)


names = st.sampled_from((b"LIST", b"fact", b"JUNK", b"\x00\xff\n\x1b", b"data"))
chunks = st.lists(st.tuples(names, st.integers(0, 9)), max_size=2).map(tuple)
wavs = st.builds(
    Wav,
    st.sampled_from((PCM,) * 5 + (FLOAT, FLOAT, EXTENSIBLE, ALAW, 0, 0x55, 0x2, 0xFFFF)),
    st.sampled_from((1,) * 5 + (2, 2, 3, 6, 0, 255, 65535)),
    st.sampled_from((RATE,) * 5 + (16000, 44100, 11025, 4000, 1, 0, 100, 2**31 - 1, 2**32 - 1, 10**6, 655350)),
    st.sampled_from((16,) * 4 + (8, 24, 32, 64, 0, 1, 12, 20, 255, 65535)),
    st.sampled_from((800, 800, 2000, 0, 1, 2, 199, 200, 201, 100_000)),
    st.sampled_from((0,) * 8 + (1, 2, -1, -2, 100, -1600, 2**31, 2**32 - 1, 0x7FFFF000)),
    chunks,
    chunks,
    st.sampled_from((0,) * 6 + (1, -1, 2, 65535)),
)


class AudioCampaign(Campaign[AudioCase]):
    """Reads each file as prediction, the check of data and training do, and compares what was read with the file."""

    name = "audio"
    about = (
        "WAV headers by hand, FLAC, Ogg, AIFF, AU, W64, CAF and RF64, changed at random; readers, data check, training"
    )
    quick, together = 60, 20

    def prepare(self, folder: Path) -> None:
        import soundfile

        from tools.campaigns import audio_checks

        self.others = dict[str, bytes]()
        for name in OTHERS:
            file = io.BytesIO()
            soundfile.write(file, waveform(2000, 2), RATE, format=name)
            self.others[name] = file.getvalue()
        audio_checks.prepare(folder)

    def first(self) -> list[AudioCase]:
        return [AudioCase(Wav(said=100)), AudioCase(Wav(channels=3))]

    def cases(self) -> SearchStrategy[AudioCase]:
        damage = st.one_of(st.just(()), changes(TOKENS))
        sounds = st.one_of(wavs, wavs, st.sampled_from(OTHERS))
        seldom = st.sampled_from((False,) * 12 + (True,))
        return st.builds(AudioCase, sounds, damage, st.sampled_from((False,) * 4 + (True,)), seldom)

    def check(self, case: AudioCase, folder: Path) -> None:
        whole = self.others[case.sound] if isinstance(case.sound, str) else wav_bytes(case.sound)
        path = folder / ("sound.wav" if isinstance(case.sound, Wav) else f"sound.{case.sound.lower()}")
        path.write_bytes(expanded(changed(((whole, 1),), case.damage)) if case.damage else whole)
        if case.corpus or case.train:
            from tools.campaigns import audio_checks

            audio_checks.check_corpus(path, train=case.train)
        facts, samples = check_readers(path)
        if not case.damage and isinstance(case.sound, Wav):
            check_samples(case.sound, facts, samples)
        check_against_library(path, samples)


def check_readers(path: Path) -> tuple[AudioFacts, NDArray[np.float32]]:
    """What the header and the whole file say, which agree. Raises UserError where either refuses the file."""
    try:
        facts: AudioFacts | UserError = facts_of(path)
    except UserError as error:
        facts = error
    if isinstance(facts, UserError):
        try:
            read_recording(path, RATE)
        except UserError:
            raise facts from None
        raise AssertionError(f"the header is refused ({facts}), and the recording is read")
    samples = read_recording(path, facts.sample_rate)
    assert samples.ndim == 1
    assert samples.dtype == np.float32
    assert np.isfinite(samples).all()
    assert len(samples) == round(facts.seconds * facts.sample_rate), "the header says another length"
    assert np.array_equal(samples, read_recording(path, facts.sample_rate)), "a second reading differs"
    resampled = read_recording(path, RATE)
    assert abs(len(resampled) - len(samples) * RATE / facts.sample_rate) <= 2, "resampling changes the length"
    assert np.isfinite(resampled).all()
    return facts, samples


def check_samples(wav: Wav, facts: AudioFacts, samples: NDArray[np.float32]) -> None:
    """A file that was not damaged is read as it was written, and none that says it is longer than it is."""
    last = not wav.after  # the header of a chunk behind it may be taken for samples
    assert not (last and 2 <= wav.said < UNKNOWN_LENGTH - 10 * wav.count), "a recording that is cut off is read"
    ordinary = wav.blocks == 0 and wav.said == 0 and wav.channels in range(1, 7)
    ordinary = ordinary and b"data" not in [name for name, _ in (*wav.before, *wav.after)]
    fits = wav.bits in ((32, 64) if wav.tag == FLOAT else (8, 16, 24, 32))
    if not (ordinary and fits and wav.tag in (PCM, FLOAT)):
        return
    assert facts == (wav.rate, wav.channels, wav.count / wav.rate)
    expected = waveform(wav.count, wav.channels).mean(axis=1)
    assert len(samples) == wav.count
    assert np.abs(samples - expected).max(initial=0) < 0.02, "other samples"


def check_against_library(path: Path, samples: NDArray[np.float32]) -> None:
    """The module `wave` reads the same of a plain 16-bit file, if it reads it at all."""
    try:
        with wave.open(str(path)) as file:
            shape, content = (file.getnframes(), file.getnchannels()), file.readframes(file.getnframes())
            width = file.getsampwidth()
    except (wave.Error, EOFError, struct.error, ZeroDivisionError, RuntimeError):
        return
    if width != 2 or len(content) != 2 * math.prod(shape):
        return
    expected = np.frombuffer(content, "<i2").reshape(shape).mean(axis=1) / 2**15
    assert len(samples) == len(expected), "another number of samples than in the module wave"
    assert np.abs(samples - expected).max(initial=0) < 1e-4, "other samples than in the module wave"
