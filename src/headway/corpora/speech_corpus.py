"""Recordings with transcripts as training reads them: which are kept, their batches, and their report.

Shapes: N utterances, B batch.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import torch

from headway.corpora.corpus_report import EMPTY, LINES_SHOWN, TOO_LONG
from headway.corpora.frames import FrameStore
from headway.corpora.plan import plan_epoch
from headway.errors import UserError
from headway.formats.corpus_format import NOTHING_AMISS, RowReport
from headway.formats.recordings import Utterance
from headway.processing.audio.audio_processor import AudioProcessor
from headway.processing.audio.augment import SpecAugmentConfig, spec_augment
from headway.processing.audio.features import AudioConfig, RunningStatistics, Statistics
from headway.processing.text.text_processor import TextProcessor
from headway.tensors.batch import UNKNOWN, Batch, Ids, Indices, collate

BROKEN, TOO_SHORT, MANY_FRAMES = "unreadable", "under audio.min_frames", "over audio.max_frames"
REASONS = (BROKEN, TOO_SHORT, EMPTY, MANY_FRAMES, TOO_LONG)
NEARLY = 16  # frames: utterances whose lengths differ by less may share a batch in any order


@dataclass(frozen=True)
class SpeechReport:
    """The account of a corpus.

    Attributes:
        name: the corpus, such as `data.train`.
        read: recordings that the corpus names.
        kept: what is left of them.
        hours: the length of what is left.
        longest: seconds of the longest that is left.
        sample_rates: how many of those that are left have each rate, in Hz.
        channels: how many of them have each number of channels.
        tokens: those of their transcripts.
        unknown: how many of these are the unknown token.
        dropped: how many were left out, by reason; a recording counts under the first of `REASONS` that applies.
        first_dropped: the first few of them.
        rows: those of manifests that could not be read, or were changed.
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
        """The report as values that JSON can hold."""
        return asdict(self)

    def text(self) -> str:
        """The report in a few lines, to be read."""
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
    """Utterances that are kept, their frames and their transcripts in ids.

    Args:
        utterances: those that are kept.
        numbers: (N,) their numbers in `store`.
        store: frames of recordings.
        side: the normalisation of frames.
        targets: the transcripts in ids.
        augment: what is hidden of each utterance, in training.

    Attributes:
        utterances: as given.
        lines: (N,) the line of each utterance in its manifest.
        frames: (N,) how many frames each utterance has.
        fingerprint: a hash of all that decides the content.
        report: what was read, kept and dropped.
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

    def plan(self, seed: int, epoch: int, *, batch_tokens: int, batch_sentences: int | None = None) -> list[Indices]:
        """The batches of an epoch (see `plan_epoch`), by frames; transcripts are shorter.

        `batch_tokens` counts frames with their padding; lengths are rounded up a little, so that not every epoch has
        the same batches.
        """
        widths = np.maximum(-(-self.frames // NEARLY) * NEARLY, self._tokens + 1)
        return plan_epoch(widths, widths, batch_tokens, seed, epoch, batch_sentences)

    def collate(self, indices: Indices, generator: torch.Generator | None = None, epoch: int | None = None) -> Batch:
        """The batch of the utterances at `indices` (B,), some of it hidden where the corpus is for training.

        What is hidden is drawn from `generator`, by default the generator of torch.

        Raises:
            UserError: a recording that is read only now cannot be read.
        """
        chosen = [int(index) for index in indices]
        sources = [self._side.normalise(self._store[int(self._numbers[index])]) for index in chosen]
        if self._augment is not None:
            sources = [spec_augment(frames, self._augment, generator) for frames in sources]
        return collate(sources, [self._targets[index] for index in chosen], indices)

    def statistics(self) -> Statistics:
        """Mean and variance of each bin over all frames."""
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
    """The corpus of what can be learned from, or compared with.

    Args:
        name: what messages call the corpus, such as `data.train`.
        utterances: all there are.
        store: their frames.
        sides: settings of the frames; text preparation of the transcripts.
        max_length: for training: the most tokens of a transcript; recordings over `max_frames` are dropped, too, and
            frames are hidden where the settings say so. None for dev, of which nothing that can be read is dropped.
        rows: the rows of manifests that could not be read, or were changed.

    Raises:
        UserError: recordings that cannot be read or are too short, unless they are to be skipped; they are named.
    """
    side, text = sides
    targets = [np.array(ids, dtype=np.int64) for ids in text.encode_lines([utterance.text for utterance in utterances])]
    reasons = _reasons(store, [len(ids) for ids in targets], side.config, max_length)
    if side.config.broken == "error":
        _refuse(name, utterances, store, side.config)
    numbers = np.array([number for number, reason in enumerate(reasons) if reason is None], dtype=np.int64)
    kept, ids = [utterances[number] for number in numbers], [targets[number] for number in numbers]
    report = replace(_report(name, utterances, store, reasons, ids), rows=rows)
    augment = None if max_length is None else side.config.spec_augment
    fingerprint = _fingerprint(store, kept, numbers, ids)
    return SpeechCorpus(kept, numbers, store, side, ids, report, fingerprint, augment)


def _reasons(store: FrameStore, tokens: Sequence[int], config: AudioConfig, max_length: int | None) -> list[str | None]:
    """Why each utterance is left out: the first of `REASONS` that applies, or None."""
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
    """The recordings that cannot be read or are too short, each with what is wrong with it."""
    found = zip(utterances, recording_problems(store, config), strict=True)
    return [f"{utterance.audio} ({problem})" for utterance, problem in found if problem is not None]


def recording_problems(store: FrameStore, config: AudioConfig) -> list[str | None]:
    """The fault of each recording that cannot be read or is too short; None for the others."""
    found = zip(store.facts, store.lengths.tolist(), strict=True)
    return [facts.problem or (TOO_SHORT if frames < config.min_frames else None) for facts, frames in found]


def _refuse(name: str, utterances: Sequence[Utterance], store: FrameStore, config: AudioConfig) -> None:
    """Raise UserError where recordings are at fault, naming the first few and how many there are."""
    if bad := unusable_recordings(utterances, store, config):
        more = f" and {len(bad) - LINES_SHOWN:,} more" if len(bad) > LINES_SHOWN else ""
        raise UserError(
            f"{len(bad):,} of {len(utterances):,} recordings cannot be used: {', '.join(bad[:LINES_SHOWN])}{more}",
            where=name, allowed="data.audio.broken: skip leaves them out",
        )  # fmt: skip


def _report(
    name: str,
    utterances: Sequence[Utterance],
    store: FrameStore,
    reasons: Sequence[str | None],
    targets: Sequence[Ids],
) -> SpeechReport:
    facts = [known for known, reason in zip(store.facts, reasons, strict=True) if reason is None]
    counts = Counter(reason for reason in reasons if reason is not None)
    dropped = {reason: counts[reason] for reason in REASONS if counts[reason]}
    first = {
        reason: [str(utterance.audio) for utterance, why in zip(utterances, reasons, strict=True) if why == reason][
            :LINES_SHOWN
        ]
        for reason in dropped
    }
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


def _fingerprint(store: FrameStore, utterances: Sequence[Utterance], numbers: Indices, targets: Sequence[Ids]) -> str:
    content = hashlib.sha256(f"{store.content} {numbers.tolist()}".encode())
    for utterance, ids in zip(utterances, targets, strict=True):
        content.update(f"{utterance.text}\n{ids.tolist()}\n".encode())
    return content.hexdigest()
