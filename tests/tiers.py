"""The two tiers of tests: the fast one has some of many alike, and the slow one has the others."""

from collections.abc import Iterable
from typing import Any

import pytest


def thinned(values: Iterable[Any], every: int, first: int = 0) -> list[Any]:
    """One of `every` so many values is for the fast tier, from the `first` on; the others are slow.

    A tuple has the values of several arguments. Of a product, `every` has no divisor in common with its sides.
    """
    rows = [value if isinstance(value, tuple) else (value,) for value in values]
    return [tiered(*row, slow=place % every != first) for place, row in enumerate(rows)]


def tiered(*row: Any, slow: bool) -> Any:
    """The values of a test's arguments, for the fast tier or the slow one."""
    return pytest.param(*row, marks=[pytest.mark.slow] * slow)
