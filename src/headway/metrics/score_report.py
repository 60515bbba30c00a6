"""Scores of one or more systems' output files, with their intervals and whether they differ."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from headway.errors import UserError
from headway.formats.lines import read_lines
from headway.metrics.groups import GroupScore, scores_by_group
from headway.metrics.metric import Metric, Score, Statistics
from headway.metrics.significance import (
    Comparison,
    Interval,
    approximate_randomisation,
    bootstrap_interval,
    paired_bootstrap,
)

Significance = Literal["bootstrap", "randomisation"]
TESTS: dict[Significance, Callable[[Metric, Statistics, Statistics, int, int], Comparison]] = {
    "bootstrap": paired_bootstrap,
    "randomisation": approximate_randomisation,
}
INTERVAL_SAMPLES = 1000
DEFAULT_SAMPLES: dict[Significance, int] = {"bootstrap": 1000, "randomisation": 10000}


@dataclass(frozen=True)
class SystemScore:
    """One system by one metric: its score, the 95% bootstrap interval, and its comparison with the first system.

    `by_reference` are the scores by each reference set alone, where there are several and the metric shows them;
    `groups` are the scores of groups of segments, where these were asked for; `notes` is what else the metric says.
    """

    system: str
    score: Score
    interval: Interval
    comparison: Comparison | None
    by_reference: tuple[float, ...] = ()
    groups: tuple[GroupScore, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ScoreReport:
    """All systems by all metrics: `scores[m][s]` is metric m, system s, in the order in which they were given."""

    scores: tuple[tuple[SystemScore, ...], ...]
    segments: int
    references: tuple[str, ...]
    interval_samples: int
    seed: int

    def text(self) -> str:
        """A table (a row a system, a column a metric), then groups, signatures, and how intervals and p came about."""
        table = [["system"], *([row.system] for row in self.scores[0])]
        for column in self.scores:
            table[0].append(column[0].score.metric)
            for line, row in zip(table[1:], column, strict=True):
                line.append(_with_interval(row.score.value, row.interval))
            if any(row.comparison for row in column):
                table[0].append("p")
                for line, row in zip(table[1:], column, strict=True):
                    line.append(f"{row.comparison.p_value:.4f}" if row.comparison else "")
        groups = [line for column in self.scores if column[0].groups for line in ("", *_aligned(_by_group(column)))]
        return "\n".join([*_aligned(table), *groups, "", *self._notes()])

    def _notes(self) -> list[str]:
        sets = len(self.references)
        notes = [f"{column[0].score.metric}: {column[0].score.signature}" for column in self.scores]
        for column in self.scores:
            for row in column:
                alone = ", ".join(f"{value:.2f}" for value in row.by_reference)
                if alone:
                    notes.append(f"{row.score.metric} of {row.system} by each reference alone: {alone}")
                notes += [f"{row.score.metric} of {row.system}: {note}" for note in row.notes]
        notes.append(f"{self.segments} segments, {sets} reference set{'s' if sets > 1 else ''}")
        notes.append(f"±: half of the 95% interval of {self.interval_samples} bootstrap samples, seed {self.seed}")
        compared = self.scores[0][-1].comparison
        if compared:
            method = f"{compared.method}, {compared.samples} samples, seed {compared.seed}"
            notes.append(f"p: against {self.scores[0][0].system} ({method})")
        return notes

    def to_json(self) -> str:
        """Everything in the report as JSON text."""
        return json.dumps(asdict(self), ensure_ascii=False, indent=1)


def _by_group(column: Sequence[SystemScore]) -> list[list[str]]:
    """A row a group, a column a system."""
    table = [[f"{column[0].score.metric} by group", "segments", *(row.system for row in column)]]
    for scores in zip(*(row.groups for row in column), strict=True):
        cells = [_with_interval(each.value, each.interval) for each in scores]
        table.append([scores[0].group, str(scores[0].segments), *cells])
    return table


def _with_interval(value: float, interval: Interval) -> str:
    return f"{value:.2f} ± {(interval.high - interval.low) / 2:.2f}"


def score_files(
    metrics: Sequence[Metric],
    hypotheses: Sequence[Path],
    references: Sequence[Path],
    *,
    significance: Significance | None = None,
    samples: int | None = None,
    seed: int = 12345,
    by: Path | None = None,
    baselines: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> ScoreReport:
    """Score files of hypotheses against one or more reference files, one segment a line unless a metric says otherwise.

    An empty line is an empty segment. Files are strict UTF-8, plain or compressed (see `read_lines`); a metric may read
    formats of its own.

    Args:
        metrics: what to score by.
        hypotheses: a file a system; the others are compared with the first.
        references: reference sets.
        significance: the test to compare by.
        samples: resamples or trials of the test; by default 1000 for the bootstrap, 10000 for randomisation.
        seed: of all resampling.
        by: a file with a name a line, of the group (such as a length) that the segment belongs to: each group is scored
            by itself, too.
        baselines: by name, outputs that are no file, such as the beginnings of the sources; they come after the
            hypotheses.

    Raises:
        UserError: no metrics, hypotheses or references; a file that is missing, empty or no UTF-8; files with different
            numbers of lines; a test with nothing to compare.
    """
    for given, where in ((metrics, "metrics"), (hypotheses, "hypotheses"), (references, "references")):
        if not given:
            raise UserError("scoring needs at least one", where=where)
    systems = len(hypotheses) + len(baselines)
    if significance and systems < 2:
        raise UserError("a test compares two or more systems", where="hypotheses", received=systems)
    if samples is None:
        samples = DEFAULT_SAMPLES[significance] if significance else INTERVAL_SAMPLES
    groups = [list(read_lines(by))] if by else []
    scores = []
    for metric in metrics:
        targets = [_read(metric, path) for path in references]
        outputs = [*(_read(metric, path) for path in hypotheses), *map(list, baselines.values())]
        names = [*map(str, hypotheses), *baselines]
        _check_counts([*map(str, references), *names, *([str(by)] if by else [])], [*targets, *outputs, *groups])
        scores.append(_score_systems(metric, names, outputs, targets, significance, samples, seed, groups))
    return ScoreReport(tuple(scores), scores[0][0].score.segments, tuple(map(str, references)), INTERVAL_SAMPLES, seed)


def _score_systems(
    metric: Metric,
    names: list[str],
    outputs: list[list[str]],
    references: list[list[str]],
    significance: Significance | None,
    samples: int,
    seed: int,
    groups: list[list[str]],
) -> tuple[SystemScore, ...]:
    alone: list[tuple[float, ...]] = [()] * len(outputs)
    if metric.each_reference and len(references) > 1:
        alone = [tuple(metric.score(output, [each]).value for each in references) for output in outputs]
    statistics = [metric.statistics(output, references) for output in outputs]
    rows: list[SystemScore] = []
    for name, each, by_reference in zip(names, statistics, alone, strict=True):
        comparison = None
        if significance and rows:
            comparison = TESTS[significance](metric, statistics[0], each, samples, seed)
        totals = each.sum(axis=0)
        score = Score(metric.label, metric.aggregate(totals), metric.signature(), len(each))
        interval = bootstrap_interval(metric, each, INTERVAL_SAMPLES, seed)
        by_group = scores_by_group(metric, each, groups[0], INTERVAL_SAMPLES, seed) if groups else ()
        notes = tuple(metric.notes(totals))
        rows.append(SystemScore(name, score, interval, comparison, by_reference, by_group, notes))
    return tuple(rows)


def _read(metric: Metric, path: Path) -> list[str]:
    lines = metric.read(path)
    if not lines:
        raise UserError("this file is empty", where=str(path))
    return lines


def _check_counts(names: Sequence[str], files: Sequence[Sequence[str]]) -> None:
    for name, lines in zip(names, files, strict=True):
        if len(lines) != len(files[0]):
            what = (
                f"{len(lines)} segments, but {names[0]} has {len(files[0])}; segment i of each file is the same segment"
            )
            raise UserError(what, where=name)


def _aligned(table: list[list[str]]) -> list[str]:
    """Lines with the first column to the left and numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    aligned = []
    for name, *cells in table:
        numbers = [cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)]
        aligned.append("  ".join([name.ljust(widths[0]), *numbers]).rstrip())
    return aligned
