"""The frames of many recordings: computed once and memory-mapped ever after, or anew whenever they are asked for.

The frames of U recordings are a folder of .npy files: `frames.npy` with the numbers of all frames one after the other
(empty where they are not kept), `lengths.npy` (U,) with the frames of each, and `facts.json` with what their headers
say and what is wrong with them. Its name is a hash of all recordings' content and of the settings.

Shapes: F frames, M bins.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np

from headway.batched import batched
from headway.documents import read_json
from headway.errors import UserError
from headway.files import write_json
from headway.formats.recordings import hash_of_audio
from headway.processes import cores, in_processes
from headway.processing.audio.audio_files import facts_of, library, read_recording
from headway.processing.audio.features import AudioConfig, count_frames, filterbanks, frame_settings
from headway.storage import GrowingArray, cache_folder, hashes_of, kept_folder, read_array
from headway.tensors.batch import Frames

FORMAT = 1
CHUNK = 64  # recordings: large beside the cost of handing them to a process, small in memory
PATIENCE = 2.0  # seconds of work in one process before others join in

Progress = Callable[[int], object]


@dataclass(frozen=True)
class Facts:
    """The facts of a recording: its header, and what is wrong with it, None where nothing is."""

    sample_rate: int
    channels: int
    seconds: float
    problem: str | None


class FrameStore:
    """The frames of recordings, by number.

    Args:
        folder: what `build_frames` wrote.
        paths: the recordings.
        config: the settings.

    Attributes:
        lengths: (U,) frames of each recording; 0 where it cannot be read.
        facts: what is known of each recording.
        content: a hash of all recordings and settings.

    Raises:
        OSError, ValueError, KeyError, TypeError, UserError: the folder holds no whole store.
    """

    def __init__(self, folder: Path, paths: Sequence[Path], config: AudioConfig) -> None:
        self._paths, self._config, self.content = paths, config, folder.name.partition("-")[0]
        self.lengths = read_array(folder / "lengths.npy")
        self.facts = [Facts(**values) for values in read_json(folder / "facts.json", list, "facts")]
        self._frames = read_array(folder / "frames.npy").reshape(-1, config.bins) if config.cache else None
        self._ends = np.cumsum(self.lengths)
        if self._frames is not None and len(self._frames) != (self._ends[-1] if len(self._ends) else 0):
            raise ValueError("frames are missing")

    def __getitem__(self, number: int) -> Frames:
        """The frames (F, M) of a recording, before normalisation."""
        if self._frames is None:
            return filterbanks(read_recording(self._paths[number], self._config.sample_rate), self._config)
        end = self._ends[number]
        return self._frames[end - self.lengths[number] : end]


def build_frames(
    paths: Sequence[Path], config: AudioConfig, *, progress: Progress | None = None, cache: Path | None = None
) -> FrameStore:
    """The frames of these recordings: opened from the cache, or computed on all cores and put there.

    Where `config.cache` is false, only what the recordings' headers say is kept.

    Args:
        paths: the recordings.
        config: the settings.
        progress: called with the number of recordings read so far, now and then.
        cache: the cache folder, by default that of `cache_folder`.

    Raises:
        UserError: the extra [speech] is not installed.
        RunError: the cache cannot be written.
    """
    for name in ("soundfile", "soxr", "kaldi_native_fbank"):
        library(name)
    stores = (cache_folder() if cache is None else cache) / "frames"
    folder = stores / f"{_key(paths, config)}-{'frames' if config.cache else 'facts'}"
    read = partial(FrameStore, paths=paths, config=config)
    return kept_folder(folder, partial(_write, paths, config, progress or (lambda done: None)), read)


def _key(paths: Sequence[Path], config: AudioConfig) -> str:
    content = [FORMAT, frame_settings(config), hashes_of(paths, hash_of_audio)]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _write(paths: Sequence[Path], config: AudioConfig, progress: Progress, folder: Path) -> None:
    facts: list[Facts] = []
    with (
        GrowingArray(folder / "frames.npy", np.float32) as kept,
        GrowingArray(folder / "lengths.npy", np.int64) as lengths,
    ):
        for chunk in _read_all(paths, config):
            for recording in chunk:
                facts.append(recording.facts)
                lengths.append(np.array([recording.length], dtype=np.int64))
                kept.append(recording.frames.reshape(-1))
            progress(len(facts))
    write_json(folder / "facts.json", [asdict(known) for known in facts])


@dataclass(frozen=True)
class _Read:
    """The contents of one recording; `frames` are none where they are not kept."""

    facts: Facts
    length: int
    frames: Frames


def _read_all(paths: Sequence[Path], config: AudioConfig) -> Iterator[list[_Read]]:
    """All recordings in order, in chunks, on all cores once there is enough work for it to pay to start processes."""
    chunks, processes, began = batched(paths, CHUNK), cores(), time.monotonic()
    for chunk in chunks:
        yield [_read(path, config) for path in chunk]
        if processes > 1 and time.monotonic() - began > PATIENCE:
            yield from in_processes(chunks, _read_here, processes, _start, (config,), "reads recordings")


_config: AudioConfig  # of this process, where it is one of the pool's


def _start(config: AudioConfig) -> None:
    global _config
    _config = config


def _read_here(paths: list[Path]) -> list[_Read]:
    return [_read(path, _config) for path in paths]


def _read(path: Path, config: AudioConfig) -> _Read:
    none = np.zeros((0, config.bins), dtype=np.float32)
    try:
        header = facts_of(path)
        facts = Facts(*header, problem=None)
        if not config.cache:
            return _Read(facts, count_frames(header.seconds, config), none)
        frames = filterbanks(read_recording(path, config.sample_rate), config)
        return _Read(facts, len(frames), frames)
    except UserError as error:
        return _Read(Facts(0, 0, 0.0, error.what), 0, none)
