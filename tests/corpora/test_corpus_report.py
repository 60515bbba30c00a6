"""The counts of a report, against the plain definition."""

import math
from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headway.corpora.corpus_report import QUANTILES, Counts


@given(st.lists(st.lists(st.integers(0, 9), max_size=30), min_size=1, max_size=60), st.integers(1, 20))
def test_counts(lines: list[list[int]], chunk: int) -> None:
    counts = Counts()
    for start in range(0, len(lines), chunk):
        some = lines[start : start + chunk]
        ids = np.array([id for line in some for id in line], dtype=np.uint16)
        counts.source.add(ids, np.array([len(line) for line in some]))
    side = counts.report("data.train", ()).source
    ranked = sorted(len(line) for line in lines)
    assert side.tokens == sum(ranked)
    assert side.unknown == sum(line.count(3) for line in lines)
    shares = {name: Fraction(percent, 100) for name, percent in QUANTILES.items()}
    expected = {name: ranked[max(1, math.ceil(share * len(ranked))) - 1] for name, share in shares.items()}
    assert side.lengths == expected


def test_only_the_first_lines_are_named() -> None:
    counts = Counts(pairs_read=8)
    counts.drop("duplicate", [])
    for lines in ([1], [2, 3, 4], [5, 6, 7], [8]):
        counts.drop("empty side", lines)
    report = counts.report("data.dev", ())
    assert (report.dropped, report.first_dropped) == ({"empty side": 8}, {"empty side": [1, 2, 3, 4, 5]})
    assert report.text() == "data.dev: 8 pairs read, 0 kept\n  dropped 8: empty side (line 1, 2, 3, 4, 5, ...)"
