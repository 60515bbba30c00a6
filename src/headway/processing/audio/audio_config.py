"""The `data.audio` section: how recordings become frames."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveInt, model_validator

from headway.config import Section

Milliseconds = Annotated[float, Field(gt=0)]

# Park et al. (2019), table 1: the policies for LibriSpeech (B, D) and Switchboard (M, S), without time warping.
POLICIES: dict[str, dict[str, Any]] = {
    "LB": {"frequency_masks": 1, "frequency_width": 27, "time_masks": 1, "time_width": 100, "time_share": 1.0},
    "LD": {"frequency_masks": 2, "frequency_width": 27, "time_masks": 2, "time_width": 100, "time_share": 1.0},
    "SM": {"frequency_masks": 2, "frequency_width": 15, "time_masks": 2, "time_width": 70, "time_share": 0.2},
    "SS": {"frequency_masks": 2, "frequency_width": 27, "time_masks": 2, "time_width": 70, "time_share": 0.2},
}


def _expand(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if value not in POLICIES:
        raise ValueError(f"unknown policy {value!r}; allowed: {', '.join(POLICIES)}, or the numbers of one")
    return POLICIES[value]


class SpecAugmentConfig(Section):
    """SpecAugment (Park et al. 2019, section 2): masks over bins and over frames, without time warping.

    Each of `frequency_masks` hides 0 to `frequency_width` neighbouring bins, each of `time_masks` 0 to `time_width`
    neighbouring frames, and never more than `time_share` of an utterance.
    """

    frequency_masks: NonNegativeInt = 2
    frequency_width: NonNegativeInt = 27
    time_masks: NonNegativeInt = 2
    time_width: NonNegativeInt = 100
    time_share: Annotated[float, Field(gt=0, le=1)] = 1.0


class AudioConfig(Section):
    """Log-mel filterbanks, as Kaldi computes them (without dither), of recordings brought to one `sample_rate`.

    `frame_length` and `frame_shift` are milliseconds. `normalise`: mean 0 and variance 1 in each bin over the
    `utterance`, by statistics of the training corpus (`global`), or `none`. A recording of fewer than `min_frames` is
    too short; like one that cannot be read it is an error, or with `broken: skip` it is counted and left out. In
    training, recordings of more than `max_frames` are dropped. `cache`: compute the frames of a corpus once and keep
    them, 4 bytes a bin, or compute them anew in every epoch. `spec_augment`: in training only; a policy's name (LB,
    LD, SM, SS) or its numbers.
    """

    sample_rate: PositiveInt = 16000
    bins: PositiveInt = 80
    frame_length: Milliseconds = 25.0
    frame_shift: Milliseconds = 10.0
    normalise: Literal["utterance", "global", "none"] = "utterance"
    min_frames: PositiveInt = 5
    max_frames: PositiveInt = 3000
    broken: Literal["error", "skip"] = "error"
    cache: bool = True
    spec_augment: Annotated[SpecAugmentConfig | None, BeforeValidator(_expand)] = None

    @model_validator(mode="after")
    def _coherent(self) -> AudioConfig:
        if self.min_frames > self.max_frames:
            raise ValueError(f"min_frames ({self.min_frames}) is above max_frames ({self.max_frames})")
        if self.spec_augment is not None and self.normalise == "none":
            raise ValueError("spec_augment puts the mean in the place of what it hides, which normalise sets to 0")
        return self
