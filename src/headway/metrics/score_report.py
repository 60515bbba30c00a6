"""Scores of one or more systems' output files, with their intervals and whether they differ."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from headway.config import validated_options
from headway.errors import UserError
from headway.formats.lines import kept_pipes, read_lines
from headway.log import counted
from headway.metrics.groups import GroupScore, scores_by_group
from headway.metrics.metric import Metric, Score, Statistics, check_alike, check_words
from headway.metrics.score_options import ScoreOptions, Significance
from headway.metrics.significance import (
    Interval,
    PairedDifference,
    approximate_randomisation,
    bootstrap_interval,
    paired_bootstrap,
)
from headway.tables import Cell, Column, Spread, Table

TESTS: dict[Significance, Callable[[Metric, Statistics, Statistics, int, int], PairedDifference]] = {
    "bootstrap": paired_bootstrap,
    "randomisation": approximate_randomisation,
}
INTERVAL_SAMPLES = 1000
FEW_SEGMENTS = 20  # below, a nominal p of 0.05 of the bootstrap is 0.1 and more
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
    comparison: PairedDifference | None
    by_reference: tuple[float, ...] = ()
    groups: tuple[GroupScore, ...] = ()
    notes: tuple[str, ...] = ()

    def with_references(self, steps: str) -> "SystemScore":
        """The same by references that these steps, separated by commas, have normalised: see `Signature`."""
        return replace(self, score=replace(self.score, signature=self.score.signature.with_references(steps)))


@dataclass(frozen=True)
class ScoreReport:
    """All systems by all metrics: `scores[m][s]` is metric m, system s, in the order in which they were given."""

    scores: tuple[tuple[SystemScore, ...], ...]
    segments: int
    references: tuple[str, ...]
    interval_samples: int
    seed: int

    def table(self) -> Table:
        """A row a system, and a column a metric, with p where systems are compared."""
        columns = [Column("system")]
        cells: list[list[Cell]] = [[row.system for row in self.scores[0]]]
        for scores in self.scores:
            columns.append(Column(scores[0].score.metric, format=".2f"))
            cells.append([_with_interval(row.score.value, row.interval, row.score.segments) for row in scores])
            if any(row.comparison for row in scores):
                columns.append(Column("p", format=".4f"))
                cells.append([row.comparison.p_value if row.comparison else None for row in scores])
        return Table(columns, list(zip(*cells, strict=True)), notes=self._notes())

    def group_tables(self) -> list[Table]:
        """For each metric a table with a row a group and a column a system, where there are groups."""
        tables = []
        for scores in self.scores:
            if scores[0].groups:
                systems = [Column(row.system, format=".2f") for row in scores]
                rows: list[list[Cell]] = []
                for one, *others in zip(*(row.groups for row in scores), strict=True):
                    each = (_with_interval(score.value, score.interval, score.segments) for score in (one, *others))
                    rows.append([one.group, one.segments, *each])
                tables.append(Table([Column(f"{scores[0].score.metric} by group"), Column("segments"), *systems], rows))
        return tables

    def text(self) -> str:
        """The table, then groups, signatures, and how intervals and p came about."""
        table = self.table()
        tables = [Table(table.columns, table.rows), *self.group_tables()]
        return "\n".join(["\n\n".join(part.text() for part in tables), "", *table.notes])

    def _notes(self) -> list[str]:
        sets = len(self.references)
        notes = [f"{column[0].score.metric}: {column[0].score.signature}" for column in self.scores]
        for column in self.scores:
            for row in column:
                alone = ", ".join(f"{value:.2f}" for value in row.by_reference)
                if alone:
                    notes.append(f"{row.score.metric} of {row.system} by each reference alone: {alone}")
                notes += [f"{row.score.metric} of {row.system}: {note}" for note in row.notes]
        notes.append(f"{counted(self.segments, 'segment')}, {counted(sets, 'reference set')}")
        notes.append(f"±: half of the 95% interval of {self.interval_samples} bootstrap samples, seed {self.seed}")
        if self.segments < FEW_SEGMENTS:
            notes.append("segments are few: intervals of the bootstrap are too narrow, and its p is too small")
        compared = self.scores[0][-1].comparison
        if compared:
            method = f"{compared.method}, {compared.samples} samples, seed {compared.seed}"
            notes.append(f"p: against {self.scores[0][0].system} ({method})")
        return notes

    def to_json(self) -> str:
        """The whole report as JSON text."""
        values = asdict(self)
        for rows, scores in zip(values["scores"], self.scores, strict=True):
            for row, score in zip(rows, scores, strict=True):
                row["score"]["signature"] = str(score.score.signature)
        return json.dumps(values, ensure_ascii=False, indent=1)


def _with_interval(value: float, interval: Interval, segments: int) -> Cell:
    """A score with half of its interval, which means nothing where all resamples are the same one segment."""
    return Spread(value, (interval.high - interval.low) / 2) if segments > 1 else value


@kept_pipes()
def score_files(
    metrics: Sequence[Metric],
    hypotheses: Sequence[Path],
    references: Sequence[Path],
    options: ScoreOptions | None = None,
    *,
    baselines: Mapping[str, Sequence[str]] = MappingProxyType({}),
    **keywords: Any,
) -> ScoreReport:
    """Score files of hypotheses against one or more reference files, one segment a line unless a metric says otherwise.

    An empty line is an empty segment. Files are strict UTF-8, plain or compressed (see `read_lines`), or pipes. A
    metric may read formats of its own.

    Args:
        metrics: what to score by.
        hypotheses: a file a system; the others are compared with the first.
        references: reference sets.
        options: resampling and groups; or as keywords.
        baselines: by name, outputs that are no file, such as the beginnings of the sources; they come after the
            hypotheses.

    Raises:
        UserError: files as `read_segments` says; a test with nothing to compare;
            options that are not allowed; metrics that find different numbers of segments.
    """
    options = validated_options(ScoreOptions, keywords) if options is None else options
    systems = len(hypotheses) + len(baselines)
    if options.significance and systems < 2:
        raise UserError("a test compares two or more systems", where="hypotheses", received=systems)
    groups = None if options.by is None else list(read_lines(options.by))
    scores = []
    for metric in metrics:
        grouped = {} if groups is None else {str(options.by): groups}
        targets, outputs = read_segments(metric, references, hypotheses, {**baselines, **grouped})
        names = [*map(str, hypotheses), *baselines]
        outputs += map(list, baselines.values())
        scores.append(_score_systems(metric, names, outputs, targets, options, groups))
    segments, sets = _common_segments([rows[0].score for rows in scores]), tuple(map(str, references))
    return ScoreReport(tuple(scores), segments, sets, INTERVAL_SAMPLES, options.seed)


def score_texts(
    metrics: Sequence[Metric],
    systems: Mapping[str, Sequence[str]],
    references: Sequence[Sequence[str]],
    options: ScoreOptions | None = None,
    **keywords: Any,
) -> ScoreReport:
    """Score outputs as `score_files` does.

    Args:
        metrics: what to score by.
        systems: by name, the output for each segment.
        references: reference sets, a text a segment.
        options: resampling; or as keywords.

    Raises:
        UserError: different numbers of segments, or options that are not allowed.
    """
    options = validated_options(ScoreOptions, keywords) if options is None else options
    sets = {f"references {number}": list(lines) for number, lines in enumerate(references, start=1)}
    outputs = list(map(list, systems.values()))
    _check_counts([*sets, *systems], [*sets.values(), *outputs])
    scores = [_score_systems(one, list(systems), outputs, list(sets.values()), options, None) for one in metrics]
    segments = _common_segments([rows[0].score for rows in scores])
    return ScoreReport(tuple(scores), segments, tuple(sets), INTERVAL_SAMPLES, options.seed)


def _common_segments(scores: Sequence[Score]) -> int:
    """The number of segments that all metrics find: to some a segment is a line, to others a sentence or a tree."""
    first = scores[0]
    for score in scores[1:]:
        if score.segments != first.segments:
            found = counted(score.segments, "segment")
            raise UserError(
                f"{score.metric} finds {found} in these files, and {first.metric} {first.segments:,}",
                where="metrics", allowed="metrics that read one format; score the others by themselves",
            )  # fmt: skip
    return first.segments


def _score_systems(
    metric: Metric,
    names: list[str],
    outputs: list[list[str]],
    references: list[list[str]],
    options: ScoreOptions,
    groups: list[str] | None,
) -> tuple[SystemScore, ...]:
    shown = references if metric.each_reference and len(references) > 1 else []
    # Before those whose signature is shown.
    alone = [tuple(metric.score(output, [lines]).value for lines in shown) for output in outputs]
    statistics = [metric.counted(output, references) for output in outputs]
    rows: list[SystemScore] = []
    for name, segments, by_reference in zip(names, statistics, alone, strict=True):
        comparison = None
        if options.significance and rows:
            samples = options.samples or DEFAULT_SAMPLES[options.significance]
            comparison = TESTS[options.significance](metric, statistics[0], segments, samples, options.seed)
        totals = segments.sum(axis=0)
        score = metric.scored(segments)
        interval = bootstrap_interval(metric, segments, INTERVAL_SAMPLES, options.seed)
        by_group = scores_by_group(metric, segments, groups, INTERVAL_SAMPLES, options.seed) if groups else ()
        rows.append(SystemScore(name, score, interval, comparison, by_reference, by_group, tuple(metric.notes(totals))))
    return tuple(rows)


def read_segments(
    metric: Metric, references: Sequence[Path], hypotheses: Sequence[Path], others: Mapping[str, Sequence[str]]
) -> tuple[list[list[str]], list[list[str]]]:
    """The segments of references and of hypotheses; `others` are lines by their name, of which there are as many.

    Raises:
        UserError: a file that is missing, empty or no UTF-8; different numbers of segments; other words.
    """
    targets, outputs = ([metric.read(path) for path in paths] for paths in (references, hypotheses))
    names = [*map(str, references), *map(str, hypotheses)]
    for name, segments in zip(names, [*targets, *outputs], strict=True):
        if not segments:
            raise UserError("this file is empty", where=name)
    check_alike(metric, dict(zip(names, [*targets, *outputs], strict=True)))
    _check_counts([*names, *others], [*targets, *outputs, *others.values()])
    check_words(metric, [*references, *hypotheses])
    return targets, outputs


def _check_counts(names: Sequence[str], files: Sequence[Sequence[str]]) -> None:
    for name, lines in zip(names, files, strict=True):
        if len(lines) != len(files[0]):
            found, first = counted(len(lines), "segment"), f"{names[0]} has {len(files[0]):,}"
            what = f"{found}, but {first}; segment i of each file is the same segment"
            raise UserError(what, where=name)
