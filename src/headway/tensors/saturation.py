"""Sums of two products of 8-bit integers in 16 bits, as processors with AVX2 and SSSE3 add them, which may saturate."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

SATURATED = 32767  # the largest 16-bit sum
SHIFT = 127  # which these processors add to activations, to make them unsigned bytes
EVERY = 3  # one of this many positions is checked


def unsaturated(rounded: NDArray[Any], values: NDArray[Any]) -> float:
    """The scale of activations (R, in) for which no sum of two products with `values` (out, in) saturates.

    Neighbours with different signs, and small ones, never saturate.
    """
    scale, pairs = 1.0, values.reshape(len(values), -1, 2).astype(np.float32)
    heavy = (np.abs(pairs.sum(2)) * 2 * SHIFT > SATURATED) & (pairs.prod(2) > 0)
    for place in np.flatnonzero(heavy.any(0)):
        weights = np.abs(pairs[heavy[:, place], place])  # (n, 2)
        moved = (rounded[:, 2 * place : 2 * place + 2] @ weights.T).max(0)
        fixed = (SHIFT + 0.5) * weights.sum(1)  # rounding adds up to a half
        full = fixed + moved > SATURATED
        scale = min(scale, ((SATURATED - fixed[full]) / moved[full]).min(initial=1.0))
    return float(scale)
