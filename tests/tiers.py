"""The two tiers of tests: the fast one has some of many alike, and the slow one has the others."""

from collections.abc import Iterable
from typing import Any

import pytest


def thinned(values: Iterable[Any], every: int, first: int = 0) -> list[Any]:
    """One of `every` so many values is for the fast tier, from the `first` on; the others are slow."""
    return [
        pytest.param(value, marks=[pytest.mark.slow] * (place % every != first)) for place, value in enumerate(values)
    ]
