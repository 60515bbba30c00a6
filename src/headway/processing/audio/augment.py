"""SpecAugment (Park et al. 2019): whole bins and whole frames are hidden in training.

Shapes: F frames, M bins.
"""

import numpy as np
import torch

from headway.processing.audio.audio_config import SpecAugmentConfig
from headway.processing.audio.features import Frames


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
