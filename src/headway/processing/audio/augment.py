"""SpecAugment (Park et al. 2019): whole bins and whole frames are hidden in training.

Shapes: F frames, M bins.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field

from headway.config import Section, Whole
from headway.tensors.batch import Frames

# Park et al. (2019), table 1: the policies for LibriSpeech (B, D) and Switchboard (M, S), without time warping.
POLICIES: dict[str, dict[str, Any]] = {
    "LB": {"frequency_masks": 1, "frequency_width": 27, "time_masks": 1, "time_width": 100, "time_share": 1.0},
    "LD": {"frequency_masks": 2, "frequency_width": 27, "time_masks": 2, "time_width": 100, "time_share": 1.0},
    "SM": {"frequency_masks": 2, "frequency_width": 15, "time_masks": 2, "time_width": 70, "time_share": 0.2},
    "SS": {"frequency_masks": 2, "frequency_width": 27, "time_masks": 2, "time_width": 70, "time_share": 0.2},
}


def expand_policy(value: Any) -> Any:
    """The numbers of a policy that is given by name. Raises ValueError where there is none."""
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

    frequency_masks: Annotated[int, Field(ge=0, le=1000)] = 2
    frequency_width: Whole = 27
    time_masks: Annotated[int, Field(ge=0, le=1000)] = 2
    time_width: Whole = 100
    time_share: Annotated[float, Field(gt=0, le=1)] = 1.0


def spec_augment(frames: Frames, config: SpecAugmentConfig, generator: torch.Generator | None = None) -> Frames:
    """A copy of normalised frames (F, M) with masks of 0, the mean (section 2).

    A mask over bins hides f of them from f0 on, f uniform in 0 .. min(F_max, M) and f0 in 0 .. M - f; a mask over
    frames likewise, t being at most the share p of the F frames. All numbers are drawn from `generator`, by default
    torch's own.
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
    """Where a mask begins, and its width."""
    width = int(torch.randint(min(widest, length) + 1, (), generator=generator))
    return int(torch.randint(length - width + 1, (), generator=generator)), width
