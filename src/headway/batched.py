"""Long streams, a list of items at a time."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")


def batched(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """The items in lists of `size`, of which the last may be shorter. Python has this from 3.12 on, with tuples."""
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch
