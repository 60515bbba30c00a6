"""Tolerances that follow from the precision of the numbers, not from one machine's last bits."""

import torch


def rounding(dtype: torch.dtype = torch.float32, steps: int = 100) -> float:
    """The most that results of two orders of summation, or of two kernels, are apart, relative to their size.

    Each of so many roundings one after the other adds half a unit in the last place, on either side of the comparison.
    """
    return steps * torch.finfo(dtype).eps
