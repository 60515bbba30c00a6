"""Sums over all processes of a training, in what all of them compute."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, distributed

_alone = False


@contextmanager
def alone() -> Iterator[None]:
    """Let nothing within this context be exchanged with other processes, which wait for this one meanwhile."""
    global _alone
    before, _alone = _alone, True
    try:
        yield
    finally:
        _alone = before


def summed(values: Tensor) -> Tensor:
    """The sums of each of the `values` over all processes, in their place."""
    if distributed.is_initialized() and not _alone:
        distributed.all_reduce(values)
    return values
