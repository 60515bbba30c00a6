"""Reading of recordings: WAV, FLAC and any other format of libsndfile, with any sample rate and number of channels.

Shapes: N samples, C channels.
"""

import importlib
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from headway.core.errors import UserError, not_installed

Samples: TypeAlias = NDArray[np.float32]
# A file; or samples (N,) or (N, C), floats in [-1, 1] or integers, at the expected rate; or samples and their rate.
Recording: TypeAlias = str | Path | NDArray[Any] | tuple[NDArray[Any], int]


BLOCK = 1 << 20  # samples read at a time, over all channels
# A header may claim any length, and a small compressed file may decode to more samples than fit into memory. Recordings
# may exceed MOST_SAMPLES only if the file is large, too: even strongly compressed speech has fewer samples per byte.
MOST_SAMPLES, SAMPLES_A_BYTE = 1 << 26, 128
# Hz. Resampling from a rate outside of these limits would take too much time or memory.
LEAST_RATE, MOST_RATE = 1000, 10**6
LOUDEST = 1e6  # the maximum of float samples, which should lie in [-1, 1]
UNKNOWN_FRAMES = 1 << 40  # length in the header of a stream that was never finished
UNKNOWN_LENGTH = 0x7FFFF000  # bytes: the minimum length in WAV files that were written to a pipe


class AudioFacts(NamedTuple):
    """The sample rate, channels and duration in the header of a file."""

    sample_rate: int
    channels: int
    seconds: float


def library(name: str) -> Any:
    """Import a module of the extra [speech]. Raises UserError, naming the extra, if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise not_installed("speech", [name], "speech", "task") from error


def read_recording(recording: Recording, sample_rate: int) -> Samples:
    """The samples (N,) of a recording in [-1, 1], averaged over channels and resampled to `sample_rate`.

    Raises:
        UserError: the file is missing or unreadable, or samples are invalid; with the name of the recording.
    """
    name = name_of(recording)
    if isinstance(recording, str | Path):
        samples, rate = _read_file(Path(recording))
    else:
        given, rate = recording if isinstance(recording, tuple) else (recording, sample_rate)
        _check_rate(rate, name)
        array: NDArray[Any] = np.asarray(given)
        if not np.issubdtype(array.dtype, np.floating):  # map the range of the integer type to [-1, 1]
            least, greatest = float(np.iinfo(array.dtype).min), float(np.iinfo(array.dtype).max)
            half = (greatest - least + 1) / 2
            array = (array - (half + least)) / half
        samples = array.astype(np.float32)
    mono = samples if samples.ndim == 1 else samples.mean(axis=1)
    if not np.isfinite(mono).all():
        raise UserError("this recording has samples that are no numbers", where=name)
    if (loudest := float(np.abs(mono).max(initial=0.0))) > LOUDEST:
        raise UserError("this recording has samples far beyond -1 and 1", where=name, received=loudest)
    if rate == sample_rate or not len(mono):
        return mono
    resampled: Samples = library("soxr").resample(mono, rate, sample_rate)
    return resampled


def _check_rate(rate: int, name: str) -> None:
    if not LEAST_RATE <= rate <= MOST_RATE:
        allowed = f"{LEAST_RATE:,} to {MOST_RATE:,} Hz"
        raise UserError("no recording has this sample rate", where=name, received=rate, allowed=allowed)


def name_of(recording: Recording) -> str:
    """The name of a recording in messages: its path, or the shape of its samples."""
    if isinstance(recording, str | Path):
        return str(recording)
    return f"samples {np.shape(recording[0] if isinstance(recording, tuple) else recording)}"


def _read_file(path: Path) -> tuple[Samples, int]:
    """The samples of a file, averaged over channels, and the sample rate."""
    parts, count = list[Samples](), 0
    with _opened(path) as file:
        most = _most_samples(path)
        wanted, rate, height = _declared_samples(file), int(file.samplerate), max(1, BLOCK // file.channels)
        try:
            while len(block := file.read(height, dtype="float32", always_2d=True)):
                count += len(block)
                if count > most:
                    raise UserError(f"this recording has more than {most:,} samples", where=str(path))
                parts.append(block[:, 0] if file.channels == 1 else block.mean(axis=1))
        except library("soundfile").SoundFileError:  # raised by libsndfile when the file ends too early
            if wanted is None:
                raise
    if wanted is not None and count < wanted:
        raise UserError(f"this recording is damaged or cut off: it has no {wanted:,} samples", where=str(path))
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.float32), rate


def facts_of(path: Path) -> AudioFacts:
    """Read the header of a file. The rest is read only if the header does not state the duration.

    Raises:
        UserError: as `read_recording`.
    """
    with _opened(path) as file:
        samples, rate, channels = _declared_samples(file), int(file.samplerate), int(file.channels)
    if samples is None:
        samples = len(_read_file(path)[0])
    elif samples > _most_samples(path):
        raise UserError(f"the header of this recording speaks of {samples:,} samples", where=str(path))
    return AudioFacts(rate, channels, samples / rate)


def _declared_samples(file: Any) -> int | None:
    """The number of samples per channel stated in the header, or None if it is not stated."""
    return int(file.frames) if 0 < file.frames < UNKNOWN_FRAMES else None


def _most_samples(path: Path) -> int:
    return max(MOST_SAMPLES, SAMPLES_A_BYTE * path.stat().st_size)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Open a file with libsndfile. Raises UserError if it cannot be read, also later in the context."""
    soundfile = library("soundfile")
    _check_file(path)
    try:
        with soundfile.SoundFile(path) as file:
            if file.channels < 1:
                raise ValueError("no channels")
            _check_rate(file.samplerate, str(path))
            yield file
    except (soundfile.SoundFileError, OSError, ValueError, RuntimeError, MemoryError) as error:
        reason = str(error).rpartition(": ")[2].strip(". ")  # libsndfile's message begins with the path
        raise UserError(f"this recording cannot be read ({reason})", where=str(path)) from error


def _check_file(path: Path) -> None:
    """Raise UserError if the file does not exist, or is a WAV file whose header does not match its samples."""
    try:
        if not path.is_file():
            raise UserError("there is no such recording", where=str(path))
        size = path.stat().st_size
        with path.open("rb") as file:
            problem = _problem_of_wav(file, size)
    except OSError as error:
        raise UserError(f"this recording cannot be read ({error.strerror})", where=str(path)) from error
    if problem is not None:
        raise UserError(problem, where=str(path))


def _problem_of_wav(file: BinaryIO, size: int) -> str | None:
    """Describe the first error in the chunks of a WAV file that libsndfile would silently accept, or return None.

    libsndfile reads a truncated file as a shorter recording, and only the last of several data chunks.
    """
    if file.read(4) != b"RIFF" or file.read(8)[4:] != b"WAVE":
        return None
    found = False
    while len(header := file.read(8)) == 8:
        (length,) = struct.unpack("<I", header[4:])
        if header[:4] == b"data":
            if found:
                return "this recording has more than one chunk of samples"
            if length >= UNKNOWN_LENGTH:
                return None
            if (missing := file.tell() + length - size) > 0:
                return f"this recording is cut off: {missing:,} bytes are missing"
            found = True
        file.seek(length + length % 2, 1)
    return None


def write_wav(path: Path, samples: Samples, sample_rate: int) -> None:
    """Write samples (N,) in [-1, 1] as 16-bit WAV."""
    library("soundfile").write(path, samples, sample_rate, subtype="PCM_16")
