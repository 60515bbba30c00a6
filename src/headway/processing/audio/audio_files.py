"""Recordings as they come: WAV, FLAC and whatever else libsndfile reads, at any sample rate, of any channels.

Shapes: N samples, C channels.
"""

import importlib
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from headway.errors import UserError

Samples: TypeAlias = NDArray[np.float32]
# A file; or samples (N,) or (N, C), floats in [-1, 1] or integers, at the expected rate; or these with their own rate.
Recording: TypeAlias = str | Path | NDArray[Any] | tuple[NDArray[Any], int]


class AudioFacts(NamedTuple):
    """The facts in the header of a file."""

    sample_rate: int
    channels: int
    seconds: float


def library(name: str) -> Any:
    """A module of the extra [speech]. Raises UserError, naming the extra, where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UserError(
            f"speech needs {name}, which is not installed: pip install 'headway[speech]'", where="task"
        ) from error


def read_recording(recording: Recording, sample_rate: int) -> Samples:
    """The samples (N,) of a recording in [-1, 1], its channels averaged, resampled to `sample_rate`.

    Raises:
        UserError: no file, one that cannot be read, or no numbers; with the name of the recording.
    """
    name = name_of(recording)
    if isinstance(recording, str | Path):
        samples, rate = _read_file(Path(recording))
    else:
        given, rate = recording if isinstance(recording, tuple) else (recording, sample_rate)
        samples = _as_floats(np.asarray(given))
        if samples.ndim not in (1, 2):
            raise UserError("samples have one axis, or two with channels last", where=name, received=samples.shape)
    mono = samples if samples.ndim == 1 else samples.mean(axis=1)
    if not np.isfinite(mono).all():
        raise UserError("this recording has samples that are no numbers", where=name)
    if rate == sample_rate or not len(mono):
        return mono
    resampled: Samples = library("soxr").resample(mono, rate, sample_rate)
    return resampled


def _as_floats(samples: NDArray[Any]) -> Samples:
    """Samples in [-1, 1]; integers are taken to fill the range of their type."""
    if np.issubdtype(samples.dtype, np.signedinteger):
        return (samples / -float(np.iinfo(samples.dtype).min)).astype(np.float32)
    return samples.astype(np.float32)


def name_of(recording: Recording) -> str:
    """The name of a recording in messages: its path, or how many samples it has."""
    if isinstance(recording, str | Path):
        return str(recording)
    return f"samples {np.shape(recording[0] if isinstance(recording, tuple) else recording)}"


def _read_file(path: Path) -> tuple[Samples, int]:
    soundfile = library("soundfile")
    _check_file(path)
    try:
        samples, rate = soundfile.read(path, dtype="float32")
    except (soundfile.SoundFileError, OSError, ValueError) as error:
        raise UserError(f"this recording cannot be read ({_reason(error)})", where=str(path)) from error
    return samples, int(rate)


def facts_of(path: Path) -> AudioFacts:
    """The facts in a file's header, without reading the rest. Raises UserError as `read_recording`."""
    soundfile = library("soundfile")
    _check_file(path)
    try:
        info = soundfile.info(path)
    except (soundfile.SoundFileError, OSError, ValueError) as error:
        raise UserError(f"this recording cannot be read ({_reason(error)})", where=str(path)) from error
    return AudioFacts(int(info.samplerate), int(info.channels), info.frames / info.samplerate)


def _check_file(path: Path) -> None:
    if not path.is_file():
        raise UserError("there is no such recording", where=str(path))
    if not path.stat().st_size:
        raise UserError("this recording is empty", where=str(path))


def _reason(error: Exception) -> str:
    """The end of libsndfile's message, which begins with the path."""
    return str(error).rpartition(": ")[2].strip(". ")


def write_wav(path: Path, samples: Samples, sample_rate: int) -> None:
    """Write samples (N,) in [-1, 1] as 16-bit WAV."""
    library("soundfile").write(path, samples, sample_rate, subtype="PCM_16")
