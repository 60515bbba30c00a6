"""Statistics of the pairs of a corpus that were read, kept and dropped. They are exact, and computed in one pass."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.formats.corpus_format import NOTHING_AMISS, RowReport
from headway.tensors.batch import UNKNOWN

QUANTILES = {"least": 0, "1%": 1, "25%": 25, "50%": 50, "75%": 75, "95%": 95, "99%": 99, "most": 100}  # in percent
LINES_SHOWN = 5
EMPTY, DUPLICATE, TOO_LONG, UNBALANCED = REASONS = ("empty side", "duplicate", "over max_length", "over max_ratio")


@dataclass(frozen=True)
class SideReport:
    """Statistics of one side of the pairs that were kept.

    Attributes:
        tokens: the number of tokens, without end-of-sentence tokens.
        unknown: the number of unknown tokens.
        lengths: quantiles of the tokens per line, named as in `QUANTILES`: the smallest length that at least this share
            of the lines does not exceed. Empty if there are no pairs.
    """

    tokens: int
    unknown: int
    lengths: Mapping[str, int]


@dataclass(frozen=True)
class CorpusReport:
    """The statistics of a corpus.

    Attributes:
        name: the name of the corpus, such as `data.train`.
        pairs_read: the number of lines or rows read.
        pairs_kept: the number of pairs kept.
        source: statistics of the kept sources.
        target: statistics of the kept targets.
        dropped: the number of dropped pairs by reason; a pair counts under the first of `REASONS` that applies.
        first_dropped: the line numbers of the first dropped pairs.
        labels: the counts of labellers over the kept pairs, by the labels' name.
        truncated: the number of kept sources that were truncated.
        truncated_to: the maximum length of sources, such as `100 pieces`; empty if there is none.
        rows: the report of rows that were unreadable or changed.
        origins: for several corpora: their names, and the number of the last line of each, counted across all of them.
    """

    name: str
    pairs_read: int
    pairs_kept: int
    source: SideReport
    target: SideReport
    dropped: Mapping[str, int]
    first_dropped: Mapping[str, list[int]]
    labels: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    truncated: int = 0
    truncated_to: str = ""
    origins: Sequence[tuple[str, int]] = ()
    rows: RowReport = NOTHING_AMISS

    @property
    def source_tokens(self) -> int:
        return self.source.tokens

    @property
    def target_tokens(self) -> int:
        return self.target.tokens

    def to_json(self) -> dict[str, Any]:
        content = asdict(self)
        if not self.origins:
            del content["origins"]
        return content

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "CorpusReport":
        """The report from the result of `to_json`. Raises TypeError or KeyError for other values."""
        sides = {name: SideReport(**content[name]) for name in ("source", "target")}
        return cls(**(content | sides | {"rows": RowReport(**content["rows"])}))

    def location_of(self, line: int) -> str:
        """The number within its origin of a line counted across all origins, with the origin if there are several."""
        first = 0
        for name, last in self.origins:
            if line <= last:
                return f"{name}:{line - first}"
            first = last
        return str(line)

    def text(self) -> str:
        lines = [f"{self.name}: {self.pairs_read:,} pairs read, {self.pairs_kept:,} kept"]
        lines += self.rows.text(self.location_of)
        for reason, count in self.dropped.items():
            shown = self.first_dropped[reason]
            more = ", ..." if count > len(shown) else ""
            lines.append(f"  dropped {count:,}: {reason} (line {', '.join(map(self.location_of, shown))}{more})")
        if self.truncated_to:
            share = f"{self.truncated:,} ({self.truncated / max(1, self.pairs_kept):.1%})"
            lines.append(f"  truncated {share}: of each source the first {self.truncated_to} are read")
        if self.pairs_kept:
            names = "".join(f" {name:>4}" for name in QUANTILES)
            lines.append(f"  {'':6}{'tokens':>12}{'unknown':>10}  length{names}")  # fits the width of a terminal
            for name, side in (("source", self.source), ("target", self.target)):
                lengths = "".join(f" {length:>4}" for length in side.lengths.values())
                lines.append(f"  {name}{side.tokens:>12,}{side.unknown:>10,}         {lengths}")
        for name, counts in self.labels.items():
            lines.append(f"  {name}: " + ", ".join(f"{count:,} {what}" for what, count in counts.items() if count))
        return "\n".join(lines)


@dataclass
class _SideCount:
    """Accumulates the statistics of one side, in memory proportional to the longest line."""

    unknown: int = 0
    histogram: list[int] = field(default_factory=lambda: [0])

    def add(self, ids: NDArray[np.integer], lengths: NDArray[np.integer]) -> None:
        self.unknown += int(np.count_nonzero(ids == UNKNOWN))
        counts = np.bincount(lengths, minlength=len(self.histogram))
        counts[: len(self.histogram)] += self.histogram
        self.histogram = counts.tolist()

    def report(self) -> SideReport:
        up_to = np.cumsum(self.histogram)
        lines = int(up_to[-1])
        tokens = sum(length * count for length, count in enumerate(self.histogram))
        ranks = {name: max(1, -(-percent * lines // 100)) for name, percent in QUANTILES.items()}  # counted from 1
        lengths = {name: int(np.searchsorted(up_to, rank)) for name, rank in ranks.items()} if lines else {}
        return SideReport(tokens, self.unknown, lengths)


@dataclass
class Counts:
    """Accumulates the statistics of a `CorpusReport`."""

    pairs_read: int = 0
    pairs_kept: int = 0
    source: _SideCount = field(default_factory=_SideCount)
    target: _SideCount = field(default_factory=_SideCount)
    dropped: dict[str, int] = field(default_factory=dict)
    first_dropped: dict[str, list[int]] = field(default_factory=dict)
    labels: dict[str, dict[str, int]] = field(default_factory=dict)
    truncated: int = 0
    truncated_to: str = ""

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "Counts":
        return cls(**(content | {name: _SideCount(**content[name]) for name in ("source", "target")}))

    def label(self, name: str, counted: Sequence[str], counts: NDArray[np.int64]) -> None:
        """Add a labeller's counts (N, C) of the kept lines."""
        known = self.labels.setdefault(name, dict.fromkeys(counted, 0))
        for what, count in zip(counted, counts.sum(0), strict=True):
            known[what] += int(count)

    def drop(self, reason: str, lines: NDArray[np.integer] | list[int]) -> None:
        """Count the pairs with these line numbers as dropped."""
        shown = self.first_dropped.setdefault(reason, [])
        shown += map(int, lines[: LINES_SHOWN - len(shown)])
        self.dropped[reason] = self.dropped.get(reason, 0) + len(lines)

    def report(
        self, name: str, origins: Sequence[tuple[str, int]] = (), rows: RowReport = NOTHING_AMISS
    ) -> CorpusReport:
        """Create the report; `origins` and `rows` are as in `CorpusReport`."""
        dropped = {reason: self.dropped[reason] for reason in REASONS if self.dropped.get(reason)}
        first_dropped = {reason: self.first_dropped[reason] for reason in dropped}
        sides = self.source.report(), self.target.report()
        return CorpusReport(
            name, self.pairs_read, self.pairs_kept, *sides, dropped, first_dropped, self.labels, self.truncated,
            self.truncated_to, origins, rows,
        )  # fmt: skip
