"""Functions beside each other: they take turns, so that what else the machine does meets them alike."""

import statistics
import time
from collections.abc import Callable, Mapping


def compare(title: str, functions: Mapping[str, Callable[[], object]], turns: int = 15) -> None:
    """Print the median time of each function and how many times as long as the first it takes."""
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for turn in range(turns + 2):
        for name, function in functions.items():
            began = time.perf_counter()
            function()
            if turn >= 2:  # the first turns warm up
                seconds[name].append(time.perf_counter() - began)
    first = next(iter(seconds.values()))
    print(title)
    for name, values in seconds.items():
        ratio = statistics.median(mine / other for mine, other in zip(values, first, strict=True))
        print(f"  {name:44} {statistics.median(values) * 1e3:9.3f} ms {ratio:7.2f}")
