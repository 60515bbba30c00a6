"""Quality by the length of the source, the figure that made attention known (Bahdanau et al. 2015, figure 2)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headway.formats.lines import kept_pipes, read_lines
from headway.languages import look_unspaced
from headway.metrics import GroupScore, Metric, scores_by_group
from headway.metrics.groups import length_bins
from headway.metrics.metric import Statistics
from headway.metrics.score_options import LengthUnit
from headway.metrics.score_report import read_segments
from headway.runs.inspect.charts import Panel, panel_chart
from headway.tables import Cell, Column, Table


@dataclass(frozen=True)
class LengthScores:
    """Scores by length."""

    metric: str  # its label
    unit: LengthUnit
    ranges: list[tuple[int, int]]  # the shortest and longest source of each bin
    counts: list[int]  # the segments of each bin
    centres: list[float]  # the mean length of each bin
    scores: dict[str, list[GroupScore]]  # of each system's bins, with 95 % bootstrap intervals

    def table(self) -> Table:
        """A row a system and a column a bin."""
        bins = [f"{low}-{high}" if low < high else f"{low}" for low, high in self.ranges]
        rows: list[list[Cell]] = [["segments", *self.counts]]
        for name, scores in self.scores.items():
            rows.append([name, *(bin.value for bin in scores)])
            rows += [
                ["  95 % from", *(bin.interval.low for bin in scores)], ["  to", *(bin.interval.high for bin in scores)]
            ]  # fmt: skip
        columns = [Column(f"source {self.unit}"), *(Column(name, format=".2f") for name in bins)]
        return Table(columns, rows, title=f"{self.metric} by length of the source")

    def text(self) -> str:
        """The table, to be read."""
        return self.table().text()

    def panel(self) -> Panel:
        """The chart: a line a system, with intervals, and how many segments each bin has."""
        return Panel(
            title=f"{self.metric} by length of the source",
            x=f"source length in {self.unit}",
            y=f"{self.metric}, 95 % intervals",
            lines={
                name: [(centre, bin.value) for centre, bin in zip(self.centres, bins, strict=True)]
                for name, bins in self.scores.items()
            },
            bars={name: [(bin.interval.low, bin.interval.high) for bin in bins] for name, bins in self.scores.items()},
            counts=list(zip(self.centres, self.counts, strict=True)),
        )

    def draw(self, path: Path) -> None:
        """Draw a line a system. Raises UserError where the suffix is no format of figures."""
        panel_chart([self.panel()], path)


class LengthStatistics:
    """Statistics of segments by the length of their sources in words, separated by white space, or in characters.

    Attributes:
        rows: by length, the statistics (k,) of each segment.
    """

    def __init__(self, metric: Metric, unit: LengthUnit = "words") -> None:
        self.metric, self.unit = metric, unit
        self.rows: dict[int, list[Statistics]] = {}

    def add(self, outputs: Sequence[str], references: Sequence[Sequence[str]], sources: Sequence[str]) -> None:
        """Count N segments; `references` are sets of N each. Sources without spaces have lengths in characters."""
        if self.unit == "words" and not self.rows and look_unspaced(sources):
            self.unit = "characters"
        for line, statistics in zip(sources, self.metric.counted(outputs, references), strict=True):
            length = len(line.split()) if self.unit == "words" else len(line)
            self.rows.setdefault(length, []).append(statistics)

    def edges(self) -> list[int]:
        """The longest lengths of bins with about equally many segments, but for the last bin."""
        bins = length_bins(length for length, rows in self.rows.items() for _ in rows)
        return [least - 1 for least in bins[1:]]

    def scores(self, members: Sequence[Sequence[int]]) -> list[GroupScore]:
        """The score and the interval of each bin of lengths."""
        rows = [[row for length in bin for row in self.rows[length]] for bin in members]
        names = [str(number) for number, bin in enumerate(rows) for _ in bin]
        return list(scores_by_group(self.metric, np.array([row for bin in rows for row in bin]), names))


def score_lengths_of(systems: Mapping[str, LengthStatistics], edges: Sequence[int] | None = None) -> LengthScores:
    """The scores of systems, by name, on the same sources.

    Each bin goes up to one of the lengths `edges`, the last bin beyond all of them. By default bins have about equally
    many segments.
    """
    first = next(iter(systems.values()))
    lengths = np.array(sorted(first.rows))
    bins = np.searchsorted(np.array(sorted(first.edges() if edges is None else edges)), lengths)
    members = [lengths[bins == bin].tolist() for bin in np.unique(bins)]
    counts = [sum(len(first.rows[length]) for length in bin) for bin in members]
    weighted = [sum(length * len(first.rows[length]) for length in bin) for bin in members]
    return LengthScores(
        first.metric.label,
        first.unit,
        [(bin[0], bin[-1]) for bin in members],
        counts,
        [total / count for total, count in zip(weighted, counts, strict=True)],
        {name: system.scores(members) for name, system in systems.items()},
    )


def score_by_length(
    metric: Metric,
    systems: Mapping[str, Sequence[str]],
    references: Sequence[Sequence[str]],
    sources: Sequence[str],
    *,
    unit: LengthUnit = "words",
    edges: Sequence[int] | None = None,
) -> LengthScores:
    """Score each system, by name, on the segments whose sources have about the same length.

    `references` are sets, and `sources` one a segment; `unit` and `edges` are those of `LengthStatistics` and
    `score_lengths_of`. Raises ValueError for another number of sources than of outputs.
    """
    statistics = {name: LengthStatistics(metric, unit) for name in systems}
    for name, outputs in systems.items():
        statistics[name].add(outputs, references, sources)
    return score_lengths_of(statistics, edges)


@kept_pipes()
def score_files_by_length(
    metric: Metric,
    hypotheses: Sequence[Path],
    references: Sequence[Path],
    source: Path,
    *,
    unit: LengthUnit = "words",
    edges: Sequence[int] | None = None,
) -> LengthScores:
    """`score_by_length` of files, each a system named by its file. Raises UserError as `read_segments`."""
    stems = [path.stem for path in hypotheses]
    names = stems if len(set(stems)) == len(stems) else list(map(str, hypotheses))
    sources = list(read_lines(source))
    targets, outputs = read_segments(metric, references, hypotheses, {str(source): sources})
    systems = dict(zip(names, outputs, strict=True))
    return score_by_length(metric, systems, targets, sources, unit=unit, edges=edges)
