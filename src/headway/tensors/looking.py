"""Whether numbers may be looked at: not where that waits for a device, nor in what is recorded to be repeated."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

_recorded = False


@contextmanager
def recorded() -> Iterator[None]:
    """Let what runs within this context not depend on numbers, so that a device can repeat it without the program."""
    global _recorded
    before, _recorded = _recorded, True
    try:
        yield
    finally:
        _recorded = before


def is_recorded() -> bool:
    """Whether this runs within `recorded`."""
    return _recorded


def may_look(x: Tensor) -> bool:
    """Whether the program may depend on the numbers of `x`, and reading them costs little."""
    return x.device.type == "cpu" and not (_recorded or torch.compiler.is_compiling())
