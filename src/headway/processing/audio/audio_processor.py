"""The processor of speech, which turns recordings into frames.

Shapes: F frames, M bins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from headway.core.documents import read_json
from headway.core.errors import UserError
from headway.core.files import write_json
from headway.processing.audio.audio_files import Recording, facts_of, name_of, read_recording
from headway.processing.audio.features import AudioConfig, Statistics, count_frames, filterbanks, frame_settings
from headway.processing.processor import Encoded, Processor, Truncation
from headway.tensors.batch import Frames

FILE = "audio.json"
FORMAT = 1


@dataclass(frozen=True)
class AudioProcessor(Processor):
    """Turns recordings into frames. Global normalisation uses the statistics of the training corpus."""

    unit: ClassVar[str] = "frames"
    noun: ClassVar[str] = "recording"

    config: AudioConfig
    statistics: Statistics | None = None

    @property
    def size(self) -> int:
        """The number of bins M of a frame."""
        return self.config.bins

    def encode(self, raw: Recording, truncation: Truncation | None = None) -> Encoded:
        """The normalised frames (F, M) of a recording, never truncated; no frames if the path is empty.

        Raises:
            UserError: the recording cannot be read or is too short; with its name.
        """
        assert truncation is None
        if isinstance(raw, str) and not raw:
            return Encoded(np.zeros((0, self.size), dtype=np.float32))
        frames = self.raw_frames(raw)
        return Encoded(self.normalise(frames), silent=bool((frames == frames[:1, :1]).all()))

    def raw_frames(self, recording: Recording) -> Frames:
        """The frames (F, M) of a recording before normalisation. Raises UserError as `encode` does."""
        frames = filterbanks(read_recording(recording, self.config.sample_rate), self.config)
        self._check_length(len(frames), name_of(recording))
        return frames

    def check(self, path: str | Path) -> None:
        """Raise UserError as `encode` does, judging by the header of the file only. An empty path is accepted."""
        if path:
            self._check_length(count_frames(facts_of(Path(path)).seconds, self.config), str(path))

    def _check_length(self, frames: int, where: str) -> None:
        if frames < self.config.min_frames:
            allowed = f"at least {self.config.min_frames} (data.audio.min_frames)"
            raise UserError("this recording is too short", where=where, received=f"{frames} frames", allowed=allowed)

    def normalise(self, frames: Frames) -> Frames:
        """Normalise frames (F, M) as the setting `normalise` says."""
        if self.config.normalise == "none":
            return frames
        if self.config.normalise == "utterance":
            return Statistics.of(frames).normalise(frames)
        assert self.statistics is not None
        return self.statistics.normalise(frames)

    def name(self, raw: Recording) -> str:
        return name_of(raw)

    def length(self, encoded: Frames) -> int:
        return len(encoded)

    def labels(self, encoded: Frames, positions: Sequence[int]) -> list[str]:
        """The start times, in seconds, of the frames at `positions`."""
        return [f"{position * self.config.frame_shift / 1000:.2f}" for position in positions]

    def same(self, other: Processor) -> bool:
        return isinstance(other, AudioProcessor) and _what_decides(self) == _what_decides(other)

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / FILE, {"format": FORMAT} | _content(self))

    @classmethod
    def load(cls, folder: Path) -> AudioProcessor:
        content = read_json(folder / FILE)
        try:
            config, known = AudioConfig.model_validate(content["config"]), content["statistics"]
            statistics = known and Statistics(*(np.array(known[name], dtype=float) for name in ("mean", "variance")))
            if content["format"] != FORMAT or (
                statistics and any(values.shape != (config.bins,) for values in vars(statistics).values())
            ):
                raise ValueError("another format, or statistics of another number of bins")
            return cls(config, statistics)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise UserError(f"the settings of the audio are damaged ({error})", where=str(folder / FILE)) from error


def _what_decides(processor: AudioProcessor) -> tuple[Any, ...]:
    content = _content(processor)
    return content["statistics"], processor.config.normalise, *frame_settings(processor.config).values()


def _content(processor: AudioProcessor) -> dict[str, Any]:
    statistics = processor.statistics and {name: values.tolist() for name, values in vars(processor.statistics).items()}
    return {"config": processor.config.model_dump(mode="json"), "statistics": statistics}
