"""The pairs of a corpus that were read and dropped, and why: counted exactly while the corpus streams by."""

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
    """One side of the pairs that were kept.

    Attributes:
        tokens: tokens of the vocabulary, without the end of sentence.
        unknown: how many of them are the unknown token.
        lengths: quantiles of the tokens a line, named as in `QUANTILES`: the least length that at least this share of
            the lines does not exceed. Empty without any pairs.
    """

    tokens: int
    unknown: int
    lengths: Mapping[str, int]


@dataclass(frozen=True)
class CorpusReport:
    """The account of a corpus.

    Attributes:
        name: the corpus, such as `data.train`.
        pairs_read: lines or rows read.
        pairs_kept: what is left of them.
        source: the source side of what is left.
        target: its target side.
        dropped: how many pairs were dropped, by reason; a pair counts under the first of `REASONS` that applies.
        first_dropped: the line numbers of the first few of them.
        labels: what was counted while the tokens of what is left were labelled, by the labels' name.
        truncated: how many of the sources that are left are longer than what is read of them.
        truncated_to: what that is, such as `100 pieces`; empty where all of every source is read.
        rows: those that could not be read, or were changed.
        origins: where the corpus is several, their names, and the last line of each one, counted through all of them.
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
        """Source tokens kept, without the end of sentence."""
        return self.source.tokens

    @property
    def target_tokens(self) -> int:
        """Target tokens kept, without the end of sentence."""
        return self.target.tokens

    def to_json(self) -> dict[str, Any]:
        """The report as values that JSON can hold."""
        content = asdict(self)
        if not self.origins:
            del content["origins"]
        return content

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "CorpusReport":
        """The report that `to_json` gave. Raises TypeError or KeyError for anything else."""
        sides = {name: SideReport(**content[name]) for name in ("source", "target")}
        return cls(**(content | sides | {"rows": RowReport(**content["rows"])}))

    def location_of(self, line: int) -> str:
        """The number in its origin of a line counted through all of them, after its name if there are several."""
        first = 0
        for name, last in self.origins:
            if line <= last:
                return f"{name}:{line - first}"
            first = last
        return str(line)

    def text(self) -> str:
        """The report in a few lines, to be read."""
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
            lines.append(f"  {'':6}{'tokens':>12}{'unknown':>10}  length{names}")  # as wide as a terminal
            for name, side in (("source", self.source), ("target", self.target)):
                lengths = "".join(f" {length:>4}" for length in side.lengths.values())
                lines.append(f"  {name}{side.tokens:>12,}{side.unknown:>10,}         {lengths}")
        for name, counts in self.labels.items():
            lines.append(f"  {name}: " + ", ".join(f"{count:,} {what}" for what, count in counts.items() if count))
        return "\n".join(lines)


@dataclass
class _SideCount:
    """Counts one side chunk by chunk, in memory that depends only on the longest line."""

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
    """A report in the making."""

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
        """The counts of which `asdict` gave this."""
        return cls(**(content | {name: _SideCount(**content[name]) for name in ("source", "target")}))

    def label(self, name: str, counted: Sequence[str], counts: NDArray[np.int64]) -> None:
        """Add what was counted (N, C) of the lines that are kept."""
        known = self.labels.setdefault(name, dict.fromkeys(counted, 0))
        for what, count in zip(counted, counts.sum(0), strict=True):
            known[what] += int(count)

    def drop(self, reason: str, lines: NDArray[np.integer] | list[int]) -> None:
        """Count the pairs of these line numbers as dropped."""
        shown = self.first_dropped.setdefault(reason, [])
        shown += map(int, lines[: LINES_SHOWN - len(shown)])
        self.dropped[reason] = self.dropped.get(reason, 0) + len(lines)

    def report(
        self, name: str, origins: Sequence[tuple[str, int]] = (), rows: RowReport = NOTHING_AMISS
    ) -> CorpusReport:
        """The finished report; `origins` and `rows` as `CorpusReport` has them."""
        dropped = {reason: self.dropped[reason] for reason in REASONS if self.dropped.get(reason)}
        first_dropped = {reason: self.first_dropped[reason] for reason in dropped}
        sides = self.source.report(), self.target.report()
        return CorpusReport(
            name, self.pairs_read, self.pairs_kept, *sides, dropped, first_dropped, self.labels, self.truncated,
            self.truncated_to, origins, rows,
        )  # fmt: skip
