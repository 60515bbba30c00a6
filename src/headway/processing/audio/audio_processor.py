"""The source side of a model that reads speech: from recordings to frames.

Shapes: F frames, M bins.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from headway.errors import UserError
from headway.files import write_json
from headway.processing.audio.audio_config import AudioConfig
from headway.processing.audio.audio_files import Recording, name_of, read_recording
from headway.processing.audio.features import Frames, Statistics, filterbanks, frame_settings
from headway.processing.text.text_processor import Words
from headway.processing.text.truncation import Truncation

FILE = "audio.json"
FORMAT = 1


@dataclass(frozen=True)
class AudioSide:
    """Settings of the frames and, for global normalisation, the statistics of the training corpus."""

    config: AudioConfig
    statistics: Statistics | None = None
    vocabulary = None  # it has no pieces

    @property
    def size(self) -> int:
        """M."""
        return self.config.bins

    def encode(self, recording: Recording) -> Frames:
        """The normalised frames (F, M) of a recording.

        Raises:
            UserError: a recording that cannot be read or is too short, with its name.
        """
        return self.normalise(self.raw_frames(recording))

    def read(self, recording: Recording, truncation: Truncation | None) -> tuple[Frames, bool]:
        """`encode`, and False: recordings are not truncated by pieces or words."""
        assert truncation is None
        return self.encode(recording), False

    def raw_frames(self, recording: Recording) -> Frames:
        """The frames (F, M) of a recording before normalisation. Raises UserError as `encode` does."""
        frames = filterbanks(read_recording(recording, self.config.sample_rate), self.config)
        if len(frames) < self.config.min_frames:
            raise UserError(
                "this recording is too short", where=name_of(recording), received=f"{len(frames)} frames",
                allowed=f"at least {self.config.min_frames} (data.audio.min_frames)",
            )  # fmt: skip
        return frames

    def normalise(self, frames: Frames) -> Frames:
        """Frames (F, M) as `normalise` of the settings says."""
        if self.config.normalise == "none":
            return frames
        if self.config.normalise == "utterance":
            return Statistics.of(frames).normalise(frames)
        assert self.statistics is not None
        return self.statistics.normalise(frames)

    def name(self, recording: Recording) -> str:
        """The path of a recording, or how many samples it has."""
        return name_of(recording)

    def tokens(self, frames: Any) -> list[str]:
        """Frames have no pieces that could be written."""
        return []

    def words(self, frames: Any) -> Words:
        """Nor words."""
        return Words((), ())

    def seconds(self, frames: NDArray[np.integer]) -> list[str]:
        """The seconds at which the frames with these numbers begin."""
        return [f"{number * self.config.frame_shift / 1000:.2f}" for number in frames.tolist()]

    def same(self, other: Any) -> bool:
        """Whether the other side makes the same frames of every recording."""
        return isinstance(other, AudioSide) and _what_decides(self) == _what_decides(other)

    def save(self, folder: Path) -> None:
        """Write the settings into `folder`, which is made where it does not exist."""
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / FILE, {"format": FORMAT} | _content(self))

    @classmethod
    def load(cls, folder: Path) -> AudioSide:
        """Read what `save` wrote. Raises UserError where it is missing, damaged or of another format."""
        try:
            content = json.loads((folder / FILE).read_text(encoding="utf-8"))
            if content["format"] != FORMAT:
                raise ValueError(f"format {content['format']}")
            known = content["statistics"]
            statistics = known and Statistics(*(np.array(known[name]) for name in ("mean", "variance")))
            return cls(AudioConfig.model_validate(content["config"]), statistics)
        except (OSError, ValueError, KeyError, TypeError, ValidationError) as error:
            raise UserError(f"the settings of the audio are damaged ({error})", where=str(folder / FILE)) from error


def _what_decides(side: AudioSide) -> tuple[Any, ...]:
    content = _content(side)
    return content["statistics"], side.config.normalise, *frame_settings(side.config).values()


def _content(side: AudioSide) -> dict[str, Any]:
    statistics = side.statistics and {name: each.tolist() for name, each in vars(side.statistics).items()}
    return {"config": side.config.model_dump(mode="json"), "statistics": statistics}
