"""The report of a comparison: an HTML page, Markdown, LaTeX, CSV, JSON and figures.

The page stores sentences and attention maps as separate pieces of data, which it reads when they are shown.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from itertools import zip_longest
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from headway.comparison.comparison import Comparison
from headway.comparison.differences import (
    BandedCurves,
    Bucketing,
    NgramDifference,
    banded_curves,
    bucketings,
    group_bucketings,
    length_bucketings,
    most_different,
    ngram_differences,
    ngram_table,
    sentence_scores,
    word_counts,
)
from headway.comparison.executors import ProcessesOfTheirOwn
from headway.comparison.options import CompareOptions
from headway.comparison.ranking import ranking, write_ranking
from headway.core.errors import UserError, nearest, option
from headway.core.figures import STYLE, pick_fonts, save_figure
from headway.core.files import write_json, write_text
from headway.core.log import progress, warn
from headway.core.registry import foreign_code
from headway.core.tables import Table
from headway.formats.lines import read_lines
from headway.metrics import written
from headway.metrics.intervals import Interval
from headway.pages.charts import Panel, panel_chart
from headway.pages.page import write_page
from headway.predictors.output import Example
from headway.runs.run import open_run

SENTENCES = 8  # per pair, with the largest gains, and as many with the largest losses
NAME = "compare"
STYLES = ("palette.css", "report.css", "heatmap.css", "compare.css")
SCRIPTS = (
    "elements.js", "charts.js", "save.js", "weights.js", "heatmap.js", "forest.js", "bucket_chart.js", "differences.js",
    "compare.js",
)  # fmt: skip
BITS = 8
MOST_CAPTURED = 40  # sentences with attention per test set

Attentions = Mapping[tuple[str, int, int], Mapping[str, Any]]


@dataclass(frozen=True)
class Report:
    """A comparison with learning curves, scores of parts of the test sets, n-grams and sentences.

    Args:
        comparison: of all variants.
        curves: scores on the development set during training, by metric.
        buckets: scores of parts of the test sets.
        ngrams: by the names of a pair and the index of a test set, the n-grams won and lost, if segments are texts.
        sentences: by the index of a test set, the scores of every segment.
        shown: by the names of a pair and the index of a test set, the segments that differ most.
    """

    comparison: Comparison
    curves: list[BandedCurves]
    buckets: list[Bucketing]
    ngrams: dict[tuple[str, str, int], list[NgramDifference]] = field(default_factory=dict)
    sentences: list[list[dict[str, float]]] = field(default_factory=list)
    shown: dict[tuple[str, str, int], list[int]] = field(default_factory=dict)

    def tables(self) -> Iterator[Table]:
        """All tables, the main tables first."""
        yield self.comparison.table()
        yield self.comparison.pair_table()
        yield from (curves.table() for curves in self.curves)
        yield from (bucketing.table() for bucketing in self.buckets)
        yield from (ngram_table(found, a, b) for (a, b, _), found in self.ngrams.items() if found)


def report_of(comparison: Comparison, training: Mapping[str, int] | None = None) -> Report:
    """The report of a comparison. `training` are the counts of words in the training data, if they are known."""
    pairs = list(dict.fromkeys((pair.a, pair.b) for pair in comparison.pairs))
    report = Report(comparison, banded_curves(comparison), bucketings(comparison, training))
    for test in range(len(comparison.tests)):
        measures = [measure for measure in comparison.measures if measure.test == test]
        scores = sentence_scores(comparison, measures[0])
        report.sentences.append(scores)
        for a, b in pairs:
            report.shown[a, b, test] = most_different(scores, a, b, SENTENCES)
            if any(measure.metric.of_text for measure in measures):
                report.ngrams[a, b, test] = ngram_differences(comparison, a, b, test)
    return report


def training_words(comparison: Comparison, path: Path | None) -> dict[str, int] | None:
    """The counts of words in the target texts of training: of a file, else of the first run. None without either.

    Raises:
        UserError: the file cannot be read. If a run's data cannot be read, a warning is logged instead.
    """
    if path is not None:
        with progress("counting words", unit="lines") as bar:
            return dict(word_counts(bar.over(read_lines(path))))
    runs = [cell.path for cells in comparison.cells.values() for cell in cells if cell.path and cell.path.is_dir()]
    if not runs or not any(measure.metric.of_text for measure in comparison.measures):
        return None
    run = open_run(runs[0])
    with run.trusted():
        recipe = run.recipe
        try:
            corpus = run.task.test_set(recipe, recipe.data.train, "data.train")
            with progress("counting words", corpus.size, "examples") as bar:
                texts = (example.references[0] for example in corpus.examples if example.references)
                return dict(word_counts(bar.over(texts)))
        except UserError as error:
            left_out = "scores of words by how often training has them are left out"
            warn(f"{left_out}: its data cannot be read ({error}); {option('training')} names its target texts")
            return None


def write_tables(report: Report, folder: Path, columns: Sequence[str] = ()) -> None:
    """Write the report as `compare.md`, `.tex`, `.csv` and `.json`, and the differences as `differences.csv`.

    `columns`: of the variants' LaTeX table, all by default. Raises UserError if there is no such column.
    """
    comparison = report.comparison
    main = [comparison.table(), comparison.pair_table()]
    conclusions = "".join(f"- {line}\n" for line in comparison.conclusions())
    files = {
        f"{NAME}.md": "\n".join([f"# Comparison\n\n{conclusions}", *(table.markdown() for table in report.tables())]),
        f"{NAME}.tex": "\n".join(table.latex() for table in (_with_columns(main[0], columns), main[1])),
        f"{NAME}.csv": main[0].csv(),
        "differences.csv": main[1].csv(),
    }
    for name, text in files.items():
        write_text(folder / name, text)
    write_json(folder / f"{NAME}.json", comparison.to_json())


def _with_columns(table: Table, names: Sequence[str]) -> Table:
    known = [column.name for column in table.columns]
    if unknown := [name for name in names if name not in known]:
        what = f"the table has no such column{nearest(unknown[0], known)}"
        raise UserError(what, where=option("columns"), received=unknown[0], allowed=known[1:])
    kept = [0, *map(known.index, names)] if names else range(len(known))
    return Table([table.columns[index] for index in kept], [[row[index] for index in kept] for row in table.rows])


def write_report(comparison: Comparison, folder: Path, options: CompareOptions) -> None:
    """Write all forms of the report into a folder: `compare.html`, `.md`, `.tex`, `.csv`, `.json`.

    Runs are loaded again to compute their attention. Raises UserError if data or runs are missing.
    """
    with foreign_code(options.allow_code or None):
        report = report_of(comparison, training_words(comparison, options.training))
        attentions = captured_attention(report, options)
    folder.mkdir(parents=True, exist_ok=True)
    names = " · ".join(variant.name for variant in comparison.variants)
    write_comparison_page(folder / f"{NAME}.html", report, attentions, title=f"{names} compared")
    write_tables(report, folder, options.columns)


def write_comparison_page(path: Path, report: Report, attentions: Attentions, *, title: str) -> None:
    """Write the HTML page atomically, with packed attention maps by variant, test set and segment."""
    data = {"payload": payload(report, attentions)}
    for (variant, test, segment), maps in attentions.items():
        index = [one.name for one in report.comparison.variants].index(variant)
        data[f"attention-{index}-{test}-{segment}"] = dict(maps)
    assets = resources.files(__package__).joinpath("page")
    write_page(path, "compare.html", title=title, styles=STYLES, scripts=SCRIPTS, data=data, assets=assets)


def captured_attention(report: Report, options: CompareOptions) -> dict[tuple[str, int, int], dict[str, Any]]:
    """The attention maps of the first seed of each variant that is a run, for the sentences that are shown."""
    from headway.inspect.inspection import packed_attention

    found, comparison = dict[tuple[str, int, int], dict[str, Any]](), report.comparison
    runs = {name: cells[0].path for name, cells in comparison.cells.items()}
    runs = {name: path for name, path in runs.items() if path is not None and path.is_dir()}
    executor = ProcessesOfTheirOwn(1, 1)
    with progress("looking inside", len(runs), "runs") as bar, executor:
        for variant, path in bar.over(runs.items()):
            examples = dict[tuple[int, int], Example]()
            for test, output in enumerate(comparison.cells[variant][0].outputs):
                metrics = [measure.metric for measure in comparison.measures if measure.test == test]
                if not output.test.sources or any("links" in metric.kinds for metric in metrics):
                    continue  # alignment links are not text that a model writes
                rows = [row for (a, b, of), row in report.shown.items() if of == test and variant in (a, b)]
                by_rank = [index for ranked in zip_longest(*rows) for index in ranked if index is not None]
                for index in sorted(dict.fromkeys(by_rank[:MOST_CAPTURED])):  # the segments that differ most
                    examples[test, index] = Example(output.test.sources[index], output.hypotheses[index])
            if examples:
                asked = (path, examples, options.device, BITS)
                for (test, index), maps in executor.submit(packed_attention, *asked).result().items():
                    found[variant, test, index] = maps
    return found


def payload(report: Report, attentions: Attentions) -> dict[str, Any]:
    """The content of the page as a JSON object."""
    comparison = report.comparison
    facts = [f"{len(comparison.variants)} variants"]
    facts.append(f"{comparison.seeds} seeds" if comparison.seeds > 1 else "one seed")
    facts += [f"{test.name}: {len(test):,} segments" for test in comparison.tests]
    facts += [] if comparison.baseline is None else [f"baseline {comparison.baseline}"]
    pairs = [
        values | {"p": pair.adjusted_p_value, "words": pair.words}
        for values, pair in zip(comparison.to_json()["pairs"], comparison.pairs, strict=True)
    ]
    trained = [cell.costs for row in comparison.cells.values() for cell in row if cell.curve]
    in_cpu_seconds = all(costs.cpu_seconds is not None and costs.gpu_seconds is None for costs in trained)
    return {
        "facts": facts,
        "conclusions": comparison.conclusions(),
        "variants": [variant.name for variant in comparison.variants],
        "seeds": list(comparison.variants[0].seeds),
        "tests": [test.name for test in comparison.tests],
        "measures": [
            {"key": measure.key, "label": written(measure.label), "test": measure.test,
             "margin": comparison.margin_of(measure) or 0.0, "higher": measure.metric.higher_is_better}
            for measure in comparison.measures
        ],
        "pairs": pairs,
        "tables": [_table(table) for table in (comparison.table(), comparison.pair_table())],
        "curves": [
            {"metric": written(curves.metric), "table": _table(curves.table()), "lines": [
                {"variant": variant, "points": [[one.update, one.seconds, one.mean, one.low, one.high] for one in line]}
                for variant, line in curves.lines.items()
            ]}
            for curves in report.curves
        ],
        "buckets": [
            {"title": each.title, "axis": each.axis, "labels": list(each.labels), "counts": list(each.counts),
             "counted": each.counted, "table": _table(each.table()),
             "scores": {name: _values(scores) for name, scores in each.scores.items()},
             "differences": [{"a": a, "b": b, "values": _values(row)} for (a, b), row in each.differences.items()]}
            for each in report.buckets
        ],
        "ngrams": [
            {"a": a, "b": b, "test": test, "rows": [[one.ngram, one.a, one.b, one.references] for one in found]}
            for (a, b, test), found in report.ngrams.items()
        ],
        "sentences": [_sentences(report, attentions, test) for test in range(len(comparison.tests))],
        "shown": [{"a": a, "b": b, "test": test, "segments": row} for (a, b, test), row in report.shown.items()],
        "time": "CPU seconds" if in_cpu_seconds else "seconds",
        "bits": BITS,
    }  # fmt: skip


def _table(table: Table) -> dict[str, Any]:
    return {
        "title": table.title, "notes": list(table.notes), "columns": table.headings(), "rows": table.cells(),
        "sides": table.aligns(),
    }  # fmt: skip


def _values(scores: Sequence[Interval]) -> list[list[float | None]]:
    return [list(score[:3]) for score in scores]  # value, low and high


def _sentences(report: Report, attentions: Attentions, test: int) -> list[dict[str, Any]]:
    """The sentences shown for any pair, with the outputs of all variants and seeds."""
    comparison = report.comparison
    given = comparison.tests[test]
    segments = sorted({index for (_, _, of), row in report.shown.items() if of == test for index in row})
    measure = next(measure for measure in comparison.measures if measure.test == test)
    own = {
        name: [measure.metric.segment_scores(rows) for rows in comparison.statistics[measure.key, name]]
        for name in comparison.cells
    }
    return [
        {
            "segment": index,
            "source": given.sources[index] if given.sources else None,
            "references": [lines[index] for lines in given.references],
            "means": report.sentences[test][index],
            "outputs": {
                name: [
                    [cell.seed, cell.outputs[test].hypotheses[index], float(scores[index])]
                    for cell, scores in zip(cells, own[name], strict=True)
                ]
                for name, cells in comparison.cells.items()
            },
            "attention": [name for name in comparison.cells if (name, test, index) in attentions],
        }
        for index in segments
    ]


def draw_figures(comparison: Comparison, options: CompareOptions) -> None:
    """Draw the figures that the options ask for, and write the page of ranks."""
    if options.html is not None:
        write_ranking(comparison, options.html)
    if options.figure is not None:
        ordered = all(variant.name.replace(".", "", 1).isdecimal() for variant in comparison.variants)
        (draw_scores if ordered else draw_differences)(comparison, options.figure)
    if options.by_length is not None:
        draw_by_length(by_length(comparison, options), options.by_length)


def by_length(comparison: Comparison, options: CompareOptions) -> list[Bucketing]:
    """Scores by length, in the bins of the options. Raises UserError if no test set has lengths."""
    found = length_bucketings(comparison, [int(end) for end in (options.length_bins or "").split(",") if end])
    if not found:
        allowed = "groups whose names are numbers, sources, or references of text"
        raise UserError("no test set has lengths", where=option("by_length"), allowed=allowed)
    return found


def printed(comparison: Comparison, options: CompareOptions) -> str:
    """The text of a comparison for standard output: JSON, or the tables, including those by group and by length."""
    if options.html is not None and not options.json_output:
        return "\n\n".join(ranking(comparison, measure).text() for measure in comparison.measures)
    parts = group_bucketings(comparison)
    if options.json_output:
        groups = [table.to_json() for table in (part.table() for part in parts)]
        values = comparison.to_json() | ({"groups": groups} if groups else {})
        return json.dumps(values, ensure_ascii=False, indent=1)
    parts += [] if options.by_length is None or parts else by_length(comparison, options)
    return "\n\n".join([comparison.text(), *(part.table().text() for part in parts)])


def draw_differences(comparison: Comparison, path: Path) -> None:
    """Draw the differences with their intervals and verdicts, with a panel per measure."""
    families, _ = pick_fonts("".join(variant.name for variant in comparison.variants))
    with rc_context(STYLE | {"font.family": families, "text.parse_math": True}):
        rows, count = len(comparison.pairs) // len(comparison.measures), len(comparison.measures)
        figure = Figure(figsize=(7, count * (1.2 + 0.35 * rows)), layout="constrained")
        for axes, measure in zip(figure.subplots(count, squeeze=False).flat, comparison.measures, strict=True):
            comparison.plot(measure.key, axes)
        save_figure(figure, path)


def draw_scores(comparison: Comparison, path: Path) -> None:
    """Draw the mean scores of variants whose names are numbers, with a panel per measure, as PNG, SVG or PDF by the
    suffix.

    Error bars are one standard deviation between seeds. A horizontal line marks the baseline (by default the first
    variant).
    """
    names = [variant.name for variant in comparison.variants]
    level = comparison.baseline or names[0]
    what = "mean over seeds" if comparison.seeds > 1 else "score"
    line = level if level != what else f"{level} (baseline)"
    panels = []
    for measure in comparison.measures:
        scores = {variant.name: variant.scores[measure.key] for variant in comparison.variants}
        points = [(float(index), scores[name].mean) for index, name in enumerate(names)]
        lines = {what: points, line: [(x, scores[level].mean) for x, _ in points]}
        spans = [(scores[name].mean, scores[name].sd or 0.0) for name in names]
        bars = {what: [(mean - sd, mean + sd) for mean, sd in spans]}
        panels.append(Panel(title="", x="", y=measure.label, lines=lines, bars=bars, names=names, baseline=line))
    panel_chart(panels, path)


def draw_by_length(bucketings: Sequence[Bucketing], path: Path) -> None:
    """Draw the mean score of every variant by length, with its 95 % interval, as in figure 2 of Bahdanau et al. (2015)
    and figure 3 of Kazemnejad et al. (2023). There is a panel per measure.
    """
    panels = [
        Panel(
            title=bucketing.title, x=bucketing.axis, y="score, 95 % intervals",
            lines={
                name: [(length, score.value) for length, score in zip(bucketing.lengths, scores, strict=True)]
                for name, scores in bucketing.scores.items()
            },
            bars={name: [score.ends for score in scores] for name, scores in bucketing.scores.items()},
            counts=list(zip(bucketing.lengths, bucketing.counts, strict=True)),
        )
        for bucketing in bucketings
    ]  # fmt: skip
    panel_chart(panels, path)
