"""Log-mel filterbanks, as in Kaldi, their normalisation, and SpecAugment masks for training.

Shapes: N samples, F frames, M bins.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, model_validator

from headway.core.config import Count, Section, Whole
from headway.core.errors import UserError
from headway.processing.audio.audio_files import LEAST_RATE, MOST_RATE, Samples, library
from headway.tensors.batch import Frames

# Park et al. (2019), table 1: the policies for LibriSpeech (B, D) and Switchboard (M, S), without time warping.
POLICIES: dict[str, dict[str, Any]] = {
    "LB": {"frequency_masks": 1, "frequency_width": 27, "time_masks": 1, "time_width": 100, "time_share": 1.0},
    "LD": {"frequency_masks": 2, "frequency_width": 27, "time_masks": 2, "time_width": 100, "time_share": 1.0},
    "SM": {"frequency_masks": 2, "frequency_width": 15, "time_masks": 2, "time_width": 70, "time_share": 0.2},
    "SS": {"frequency_masks": 2, "frequency_width": 27, "time_masks": 2, "time_width": 70, "time_share": 0.2},
}


def expand_policy(value: Any) -> Any:
    """Replace the name of a SpecAugment policy with its settings. Raises ValueError for an unknown name."""
    if isinstance(value, str) and value not in POLICIES:
        raise ValueError(f"unknown policy {value!r}; allowed: {', '.join(POLICIES)}, or the numbers of one")
    return POLICIES[value] if isinstance(value, str) else value


class SpecAugmentConfig(Section):
    """SpecAugment (Park et al. 2019, section 2): masks over bins and over frames, without time warping.

    `frequency_masks`, `time_masks`: the number of masks. `frequency_width`, `time_width`: the largest number of
    neighbouring bins or frames that a mask hides. `time_share`: the largest share of an utterance that a mask hides.
    """

    frequency_masks: Annotated[int, Field(ge=0, le=1000)] = 2
    frequency_width: Whole = 27
    time_masks: Annotated[int, Field(ge=0, le=1000)] = 2
    time_width: Whole = 100
    time_share: Annotated[float, Field(gt=0, le=1)] = 1.0


def spec_augment(frames: Frames, config: SpecAugmentConfig, generator: torch.Generator | None = None) -> Frames:
    """A copy of normalised frames (F, M) with masks of 0, the mean (section 2).

    A mask over bins hides f bins from f0 on, with f uniform in 0 .. min(F_max, M) and f0 uniform in 0 .. M - f. A mask
    over frames is drawn likewise, and is at most the share p of the F frames wide. All numbers are drawn from
    `generator`, by default torch's global one.
    """
    count, bins = frames.shape
    masked = frames.copy()
    for _ in range(config.frequency_masks):
        first, width = _span(bins, config.frequency_width, generator)
        masked[:, first : first + width] = 0
    for _ in range(config.time_masks):
        first, width = _span(count, min(config.time_width, int(config.time_share * count)), generator)
        masked[first : first + width] = 0
    return np.ascontiguousarray(masked)


def _span(length: int, widest: int, generator: torch.Generator | None) -> tuple[int, int]:
    """Draw the start and the width of a mask."""
    width = int(torch.randint(min(widest, length) + 1, (), generator=generator))
    return int(torch.randint(length - width + 1, (), generator=generator)), width


Milliseconds = Annotated[float, Field(gt=0, le=10_000)]

INT16 = 1 << 15  # Kaldi's samples are 16-bit integers
ROUNDING = 1e-6  # samples: tolerance for rounding errors in seconds * rate
LEAST_VARIANCE = 1e-8  # of an almost constant bin: dividing by less would amplify rounding errors


class AudioConfig(Section):
    """Log-mel filterbanks, as in Kaldi (without dither), of recordings resampled to `sample_rate`.

    `sample_rate`: samples a second. `bins`: the energies of a frame. `frame_length`, `frame_shift`: in milliseconds.
    `normalise`: mean 0 and variance 1 in each bin over the `utterance`, with statistics of the training corpus
    (`global`), or `none`. `broken`: unreadable and too short recordings are an `error`, or are counted and left out
    with `skip`. `min_frames`: shorter recordings are broken. `max_frames`: longer recordings are dropped in training.
    `cache`: whether to compute the frames of a corpus once and cache them, with 4 bytes per bin, instead of in every
    epoch. `spec_augment`: in training only; the name of a policy (LB, LD, SM, SS) or its numbers.
    """

    sample_rate: Annotated[int, Field(ge=LEAST_RATE, le=MOST_RATE)] = 16000
    bins: Annotated[int, Field(ge=3, le=1000)] = 80
    frame_length: Milliseconds = 25.0
    frame_shift: Milliseconds = 10.0
    normalise: Literal["utterance", "global", "none"] = "utterance"
    min_frames: Count = 5
    max_frames: Count = 3000
    broken: Literal["error", "skip"] = "error"
    cache: bool = True
    spec_augment: Annotated[SpecAugmentConfig | None, BeforeValidator(expand_policy)] = None

    @model_validator(mode="after")
    def _coherent(self) -> AudioConfig:
        if self.min_frames > self.max_frames:
            raise ValueError(f"min_frames ({self.min_frames}) is above max_frames ({self.max_frames})")
        for name, least in (("frame_length", 2), ("frame_shift", 1)):
            if int(self.sample_rate * getattr(self, name) / 1000) < least:
                raise ValueError(f"{name} is shorter than {least} of {self.sample_rate:,} samples a second")
        if self.spec_augment is not None and self.normalise == "none":
            raise ValueError("spec_augment puts the mean, which normalise sets to 0, in place of frames and bins")
        return self


def filterbanks(samples: Samples, config: AudioConfig) -> Frames:
    """The log-mel energies (F, M) of samples (N,) in [-1, 1]. Every frame lies completely within the recording.

    Kaldi's `compute-fbank-feats` without dither (povey window, pre-emphasis 0.97, DC offset removed, power spectrum, 20
    Hz to half the sample rate), computed by kaldi-native-fbank.
    """
    kaldi = library("kaldi_native_fbank")
    options = kaldi.FbankOptions()
    options.frame_opts.samp_freq = config.sample_rate
    options.frame_opts.frame_length_ms = config.frame_length
    options.frame_opts.frame_shift_ms = config.frame_shift
    options.frame_opts.dither = 0
    options.mel_opts.num_bins = config.bins
    online = kaldi.OnlineFbank(options)
    online.accept_waveform(config.sample_rate, samples * INT16)
    online.input_finished()
    frames = [online.get_frame(index) for index in range(online.num_frames_ready)]
    return np.stack(frames) if frames else np.zeros((0, config.bins), dtype=np.float32)


def check_bins(config: AudioConfig) -> None:
    """Raise UserError if the spectrum of a frame is too short for the number of bins."""
    try:
        filterbanks(np.zeros(0, dtype=np.float32), config)
    except ValueError as error:
        what = f"a frame of {config.frame_length:g} ms at {config.sample_rate:,} Hz has no room for so many bins"
        raise UserError(
            what, where="data.audio.bins", received=config.bins, allowed="fewer, or longer frames"
        ) from error


def frame_settings(config: AudioConfig) -> dict[str, Any]:
    """The settings that determine the frames of a recording before normalisation."""
    return config.model_dump(include={"sample_rate", "bins", "frame_length", "frame_shift"})


def count_frames(seconds: float, config: AudioConfig) -> int:
    """The number of frames F of a recording of `seconds` seconds."""
    samples = math.floor(seconds * config.sample_rate + 0.5 + ROUNDING)  # halves are rounded up, as in resampling
    length, shift = (
        int(config.sample_rate * milliseconds / 1000) for milliseconds in (config.frame_length, config.frame_shift)
    )
    return 0 if samples < length else 1 + (samples - length) // shift


@dataclass(frozen=True)
class Statistics:
    """The mean and variance (M,) of each bin over many frames."""

    mean: NDArray[np.float64]
    variance: NDArray[np.float64]

    def normalise(self, frames: Frames) -> Frames:
        """Scale frames (F, M) to mean 0 and variance 1."""
        normalised = (frames - self.mean) / np.sqrt(np.maximum(self.variance, LEAST_VARIANCE))
        return normalised.astype(np.float32)

    @classmethod
    def of(cls, frames: Frames) -> Self:
        """The statistics of one utterance's frames (F, M)."""
        exact = frames.astype(np.float64)
        return cls(exact.mean(axis=0), exact.var(axis=0))


class RunningStatistics:
    """Accumulates the statistics of frames batch by batch, as float64 counts, sums and sums of squares.

    Args:
        bins: M.
    """

    def __init__(self, bins: int) -> None:
        self.count, self.total, self.squares = 0, np.zeros(bins), np.zeros(bins)

    def add(self, frames: Frames) -> None:
        """Add frames (F, M)."""
        exact = frames.astype(np.float64)
        self.count += len(frames)
        self.total += exact.sum(axis=0)
        self.squares += (exact**2).sum(axis=0)

    def statistics(self) -> Statistics:
        mean = self.total / max(1, self.count)
        return Statistics(mean, np.maximum(self.squares / max(1, self.count) - mean**2, 0))
