"""Speech corpora for training: cached frames of recordings with encoded transcripts, their batches, and their report.

Frames are computed once and memory-mapped from the cache, or recomputed whenever they are needed. The frames of U
recordings are a folder of .npy files: `frames.npy` with the concatenated values of all frames (empty if frames are not
cached), `lengths.npy` (U,) with the number of frames of each recording, and `facts.json` with their headers and errors.
The folder's name is a hash of the content of all recordings and of the settings.

Shapes: F frames, M bins, N utterances, B batch.
"""

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headway.core.documents import read_json
from headway.core.errors import UserError
from headway.core.files import write_json
from headway.core.processes import batched, cores, in_processes
from headway.core.storage import GrowingArray, cache_folder, hashes_of, kept_folder, read_array
from headway.corpora.corpus_report import EMPTY, LINES_SHOWN, TOO_LONG
from headway.corpora.plan import plan_epoch
from headway.formats.corpus_format import NOTHING_AMISS, RowReport
from headway.formats.recordings import Utterance, hash_of_audio
from headway.processing.audio.audio_files import facts_of, library, read_recording
from headway.processing.audio.audio_processor import AudioProcessor
from headway.processing.audio.features import (
    AudioConfig,
    RunningStatistics,
    SpecAugmentConfig,
    Statistics,
    count_frames,
    filterbanks,
    frame_settings,
    spec_augment,
)
from headway.processing.text.text_processor import TextProcessor
from headway.tensors.batch import UNKNOWN, Batch, Frames, Ids, Indices, collate

FORMAT = 1
CHUNK = 64  # recordings: enough to outweigh the cost of passing them to a process, but small in memory
PATIENCE = 2.0  # seconds of work in one process before others are started

Progress = Callable[[int], object]


@dataclass(frozen=True)
class Facts:
    """The header of a recording, and the error in reading it, or None."""

    sample_rate: int
    channels: int
    seconds: float
    problem: str | None


class FrameStore:
    """The frames of recordings, by index.

    Args:
        folder: a folder written by `build_frames`.
        paths: the recordings.
        config: the settings.

    Attributes:
        lengths: (U,) the number of frames of each recording; 0 if it is unreadable.
        facts: the header and error of each recording.
        content: a hash of all recordings and settings.

    Raises:
        OSError, ValueError, KeyError, TypeError, UserError: the folder does not contain a complete store.
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
    """Open the frames of recordings from the cache, or compute them on all cores and cache them.

    If `config.cache` is false, only the headers of the recordings are cached.

    Args:
        paths: the recordings.
        config: the settings.
        progress: called from time to time with the number of recordings read so far.
        cache: the cache folder, by default that of `cache_folder`.

    Raises:
        UserError: the extra [speech] is not installed.
        RunError: the cache cannot be written.
    """
    for name in ("soundfile", "soxr", "kaldi_native_fbank"):
        library(name)
    stores = (cache_folder() if cache is None else cache) / "frames"
    content = json.dumps([FORMAT, frame_settings(config), hashes_of(paths, hash_of_audio)], sort_keys=True)
    key = hashlib.sha256(content.encode()).hexdigest()
    folder = stores / f"{key}-{'frames' if config.cache else 'facts'}"
    read = partial(FrameStore, paths=paths, config=config)
    return kept_folder(folder, partial(_write, paths, config, progress or (lambda done: None)), read)


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
    """The result of reading a recording. `frames` is empty if frames are not cached."""

    facts: Facts
    length: int
    frames: Frames


def _read_all(paths: Sequence[Path], config: AudioConfig) -> Iterator[list[_Read]]:
    """Read all recordings in chunks, in order, on all cores once there is enough work to justify starting processes."""
    chunks, processes, began = batched(paths, CHUNK), cores(), time.monotonic()
    for chunk in chunks:
        yield [_read(path, config) for path in chunk]
        if processes > 1 and time.monotonic() - began > PATIENCE:
            yield from in_processes(chunks, _read_here, processes, _start, (config,), "reads recordings")


_config: AudioConfig  # the settings of a process of the pool


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


BROKEN, TOO_SHORT, MANY_FRAMES = "unreadable", "under audio.min_frames", "over audio.max_frames"
REASONS = (BROKEN, TOO_SHORT, EMPTY, MANY_FRAMES, TOO_LONG)
NEARLY = 16  # frames: lengths are rounded up to multiples, so that batches vary


@dataclass(frozen=True)
class SpeechReport:
    """The statistics of a corpus.

    Attributes:
        name: the name of the corpus, such as `data.train`.
        read: the number of recordings of the corpus.
        kept: the number of recordings kept.
        hours: the total duration of the kept recordings.
        longest: the duration of the longest kept recording, in seconds.
        sample_rates: the number of kept recordings by sample rate in Hz.
        channels: the number of kept recordings by number of channels.
        tokens: the number of tokens of their transcripts.
        unknown: the number of unknown tokens.
        dropped: the number of dropped recordings by reason; a recording counts under the first of `REASONS` that
            applies.
        first_dropped: the first dropped recordings, by reason.
        rows: the report of rows of manifests that were unreadable or changed.
    """

    name: str
    read: int
    kept: int
    hours: float
    longest: float
    sample_rates: Mapping[str, int]
    channels: Mapping[str, int]
    tokens: int
    unknown: int
    dropped: Mapping[str, int]
    first_dropped: Mapping[str, list[str]] = field(default_factory=dict)
    rows: RowReport = NOTHING_AMISS

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def text(self) -> str:
        mean = 3600 * self.hours / max(1, self.kept)
        lines = [
            f"{self.name}: {self.read:,} recordings, {self.kept:,} kept, {self.hours:.2f} hours"
            f" ({mean:.1f} s on average, {self.longest:.1f} s at most)"
        ]
        lines += self.rows.text()
        for reason, count in self.dropped.items():
            shown = self.first_dropped[reason]
            more = ", ..." if count > len(shown) else ""
            lines.append(f"  dropped {count:,}: {reason} ({', '.join(shown)}{more})")
        rates = ", ".join(f"{rate} Hz: {count:,}" for rate, count in self.sample_rates.items())
        channels = ", ".join(f"{number}: {count:,}" for number, count in self.channels.items())
        lines.append(f"  sample rates {rates}; channels {channels}")
        lines.append(f"  transcripts: {self.tokens:,} tokens, {self.unknown:,} unknown")
        return "\n".join(lines)


class SpeechCorpus:
    """The utterances that were kept, with their frames and encoded transcripts.

    Args:
        utterances: the utterances.
        numbers: (N,) their indices in `store`.
        store: the frames of recordings.
        side: the normalisation of frames.
        targets: the ids of the transcripts.
        augment: the SpecAugment settings for training.

    Attributes:
        utterances: the utterances.
        lines: (N,) the line of each utterance in its manifest.
        frames: (N,) the number of frames of each utterance.
        fingerprint: a hash of everything that determines the content.
        report: how many recordings were read, kept and dropped.
    """

    def __init__(
        self,
        utterances: Sequence[Utterance],
        numbers: Indices,
        store: FrameStore,
        side: AudioProcessor,
        targets: Sequence[Ids],
        report: SpeechReport,
        fingerprint: str,
        augment: SpecAugmentConfig | None = None,
    ) -> None:
        self.utterances, self.report, self.fingerprint = list(utterances), report, fingerprint
        self._numbers, self._store, self._side, self._augment = numbers, store, side, augment
        self._targets = list(targets)
        self.lines = np.array([utterance.line for utterance in utterances], dtype=np.int64)
        self.frames = store.lengths[numbers]
        self._tokens = np.array([len(ids) for ids in self._targets], dtype=np.int64)

    def __len__(self) -> int:
        return len(self._numbers)

    def widths(self) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
        """The numbers of frames, and of tokens with end-of-sentence tokens, of all utterances."""
        return self.frames, self._tokens + 1

    def plan(self, seed: int, epoch: int, **sizes: Any) -> list[Indices]:
        """Group the utterances of an epoch into batches by their frames (see `plan_epoch`, which takes the `sizes`).

        `batch_tokens` counts frames with padding. Lengths are rounded up slightly, so that batches differ between
        epochs.
        """
        if sizes.get("shapes"):
            return plan_epoch(*self.widths(), seed=seed, epoch=epoch, **sizes)
        widths = np.maximum(-(-self.frames // NEARLY) * NEARLY, self._tokens + 1)
        return plan_epoch(widths, widths, seed=seed, epoch=epoch, **sizes)

    def collate(self, indices: Indices, generator: torch.Generator | None = None, epoch: int | None = None) -> Batch:
        """The batch of the utterances at `indices` (B,), with SpecAugment masks if the corpus is for training.

        The masks are drawn from `generator`, by default torch's global one.

        Raises:
            UserError: a recording whose frames are not cached cannot be read.
        """
        chosen = [int(index) for index in indices]
        sources = [self._side.normalise(self._store[int(self._numbers[index])]) for index in chosen]
        if self._augment is not None:
            sources = [spec_augment(frames, self._augment, generator) for frames in sources]
        return collate(sources, [self._targets[index] for index in chosen], indices)

    def statistics(self) -> Statistics:
        """The mean and variance of each bin over all frames."""
        running = RunningStatistics(self._side.size)
        for number in self._numbers:
            running.add(self._store[int(number)])
        return running.statistics()


def build_speech(
    name: str,
    utterances: Sequence[Utterance],
    store: FrameStore,
    sides: tuple[AudioProcessor, TextProcessor],
    *,
    max_length: int | None,
    rows: RowReport = NOTHING_AMISS,
) -> SpeechCorpus:
    """Build the corpus of the usable utterances.

    Args:
        name: the name of the corpus in messages, such as `data.train`.
        utterances: all utterances.
        store: their frames.
        sides: the processors of recordings and of transcripts.
        max_length: for training: the maximum number of tokens of a transcript; recordings over `max_frames` are
            dropped, too, and SpecAugment is used if configured. None for dev, where every readable utterance is kept.
        rows: the report of rows of manifests that were unreadable or changed.

    Raises:
        UserError: recordings are unreadable or too short, and are not to be skipped; they are named.
    """
    side, text = sides
    targets = [np.array(ids, dtype=np.int64) for ids in text.encode_lines([utterance.text for utterance in utterances])]
    reasons = _reasons(store, [len(ids) for ids in targets], side.config, max_length)
    if side.config.broken == "error" and (bad := unusable_recordings(utterances, store, side.config)):
        more = f" and {len(bad) - LINES_SHOWN:,} more" if len(bad) > LINES_SHOWN else ""
        first = ", ".join(bad[:LINES_SHOWN])
        what = f"{len(bad):,} of {len(utterances):,} recordings cannot be used: {first}{more}"
        raise UserError(what, where=name, allowed="data.audio.broken: skip leaves them out")
    numbers = np.array([number for number, reason in enumerate(reasons) if reason is None], dtype=np.int64)
    kept, ids = [utterances[number] for number in numbers], [targets[number] for number in numbers]
    report = replace(_report(name, utterances, store, reasons, ids), rows=rows)
    augment = None if max_length is None else side.config.spec_augment
    content = hashlib.sha256(f"{store.content} {numbers.tolist()}".encode())
    for utterance, target in zip(kept, ids, strict=True):
        content.update(f"{utterance.text}\n{target.tolist()}\n".encode())
    return SpeechCorpus(kept, numbers, store, side, ids, report, content.hexdigest(), augment)


def _reasons(store: FrameStore, tokens: Sequence[int], config: AudioConfig, max_length: int | None) -> list[str | None]:
    """The reason for dropping each utterance: the first of `REASONS` that applies, or None."""
    reasons: list[str | None] = []
    for facts, frames, count in zip(store.facts, store.lengths.tolist(), tokens, strict=True):
        applies = {
            BROKEN: facts.problem is not None,
            TOO_SHORT: frames < config.min_frames,
            EMPTY: max_length is not None and count == 0,
            MANY_FRAMES: max_length is not None and frames > config.max_frames,
            TOO_LONG: max_length is not None and count > max_length,
        }
        reasons.append(next((reason for reason in REASONS if applies[reason]), None))
    return reasons


def unusable_recordings(utterances: Sequence[Utterance], store: FrameStore, config: AudioConfig) -> list[str]:
    found = zip(utterances, recording_problems(store, config), strict=True)
    return [f"{utterance.audio} ({problem})" for utterance, problem in found if problem is not None]


def recording_problems(store: FrameStore, config: AudioConfig) -> list[str | None]:
    """For each recording, why it is unreadable or too short, or None."""
    found = zip(store.facts, store.lengths.tolist(), strict=True)
    return [facts.problem or (TOO_SHORT if frames < config.min_frames else None) for facts, frames in found]


def _report(
    name: str, utterances: Sequence[Utterance], store: FrameStore, reasons: Sequence[str | None], targets: Sequence[Ids]
) -> SpeechReport:
    facts = [known for known, reason in zip(store.facts, reasons, strict=True) if reason is None]
    audio = {
        reason: [str(utterance.audio) for utterance, why in zip(utterances, reasons, strict=True) if why == reason]
        for reason in REASONS
    }
    dropped = {reason: len(paths) for reason, paths in audio.items() if paths}
    first = {reason: audio[reason][:LINES_SHOWN] for reason in dropped}
    seconds = [known.seconds for known in facts]
    rates, channels = (
        {str(value): count for value, count in sorted(Counter(values).items())}
        for values in ([known.sample_rate for known in facts], [known.channels for known in facts])
    )
    tokens = sum(len(ids) for ids in targets)
    unknown = sum(int((ids == UNKNOWN).sum()) for ids in targets)
    return SpeechReport(
        name, len(utterances), len(facts), sum(seconds) / 3600, max(seconds, default=0.0), rates, channels, tokens,
        unknown, dropped, first,
    )  # fmt: skip
