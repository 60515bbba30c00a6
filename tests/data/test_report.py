"""The counts of a report, against the plain definition."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.data.report import QUANTILES, Counts


@given(st.lists(st.lists(st.integers(0, 9), max_size=30), min_size=1, max_size=60), st.integers(1, 20))
def test_counts(lines: list[list[int]], chunk: int) -> None:
    counts = Counts()
    for start in range(0, len(lines), chunk):
        some = lines[start : start + chunk]
        ids = np.array([each for line in some for each in line], dtype=np.uint16)
        counts.source.add(ids, np.array([len(line) for line in some]))
    side = counts.report("data.train").source
    ranked = sorted(len(line) for line in lines)
    assert side.tokens == sum(ranked)
    assert side.unknown == sum(line.count(3) for line in lines)
    percent = {name: round(100 * share) for name, share in QUANTILES.items()}
    expected = {name: ranked[max(1, math.ceil(share * len(ranked) / 100)) - 1] for name, share in percent.items()}
    assert side.lengths == expected


@pytest.mark.parametrize("lines", [20, 100, 300])
def test_quantiles_where_rounding_errs(lines: int) -> None:
    counts = Counts()
    counts.target.add(np.zeros(0, dtype=np.uint16), np.arange(1, lines + 1))
    lengths = counts.report("data.dev").target.lengths
    assert (lengths["95%"], lengths["99%"]) == (95 * lines // 100, -(-99 * lines // 100))


def test_only_the_first_lines_are_named() -> None:
    counts = Counts(pairs_read=8)
    counts.drop("duplicate", [])
    for lines in ([1], [2, 3, 4], [5, 6, 7], [8]):
        counts.drop("empty side", lines)
    report = counts.report("data.dev")
    assert (report.dropped, report.first_dropped) == ({"empty side": 8}, {"empty side": [1, 2, 3, 4, 5]})
    assert report.text() == "data.dev: 8 pairs read, 0 kept\n  dropped 8: empty side (line 1, 2, 3, 4, 5, ...)"
