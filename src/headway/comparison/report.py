"""The report of a comparison: a page, Markdown, LaTeX, CSV, JSON and figures, with all that differs.

Sentences are pieces of data in the page, and so is the attention of each variant in them, read when it is shown.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from headway.comparison.cells import CellResult
from headway.comparison.comparison import ComparedPair, Comparison
from headway.comparison.differences import (
    BandedCurves,
    Bucketing,
    BucketScore,
    NgramDifference,
    SentenceScores,
    banded_curves,
    bucketings,
    length_bucketings,
    most_different,
    ngram_differences,
    ngram_table,
    sentence_scores,
)
from headway.comparison.options import CompareOptions
from headway.comparison.words import word_counts
from headway.errors import UserError, option
from headway.files import write_json, write_text
from headway.formats.lines import read_lines
from headway.log import progress, warn
from headway.metrics.alignment_error import AlignmentErrorRate
from headway.registry import foreign_code
from headway.runs.inspect.capture import ReadOptions, read
from headway.runs.inspect.charts import Panel, panel_chart
from headway.runs.inspect.html_page import write_page
from headway.runs.inspect.inspection import maps_of
from headway.runs.inspect.inspection_page import packed_maps
from headway.runs.load import load
from headway.runs.run_folder import RunFolder
from headway.tables import Table
from headway.tasks import build_task
from headway.tasks.task import RawExample

SENTENCES = 8  # of each pair, in which one is better, and as many in which it is worse
NAME = "compare"
STYLES = ("palette.css", "report.css", "heatmap.css", "compare.css")
SCRIPTS = (
    "elements.js", "charts.js", "save.js", "weights.js", "heatmap.js", "forest.js", "bucket_chart.js", "differences.js",
    "compare.js",
)  # fmt: skip
BITS = 8
MOST_CAPTURED = 40  # sentences with attention, of a test set

Attentions = Mapping[tuple[str, int, int], Mapping[str, Any]]


@dataclass(frozen=True)
class Report:
    """A comparison with all that differs.

    Args:
        comparison: of all variants.
        curves: dev scores in training, by metric.
        buckets: scores of parts of the test sets.
        ngrams: won and lost, by the names of a pair and the index of a test set, where segments are texts.
        sentences: by the index of a test set, the own scores of every segment.
        shown: by the names of a pair and the index of a test set, the segments that differ most.
    """

    comparison: Comparison
    curves: list[BandedCurves]
    buckets: list[Bucketing]
    ngrams: dict[tuple[str, str, int], list[NgramDifference]] = field(default_factory=dict)
    sentences: list[list[SentenceScores]] = field(default_factory=list)
    shown: dict[tuple[str, str, int], list[int]] = field(default_factory=dict)

    def tables(self) -> Iterator[Table]:
        """All tables, the main ones first."""
        yield self.comparison.table()
        yield self.comparison.pair_table()
        yield from (curves.table() for curves in self.curves)
        yield from (bucketing.table() for bucketing in self.buckets)
        yield from (ngram_table(found, a, b) for (a, b, _), found in self.ngrams.items() if found)


def report_of(comparison: Comparison, training: Mapping[str, int] | None = None) -> Report:
    """Everything that differs between the variants of a comparison.

    Args:
        comparison: of all variants.
        training: how often each word occurs in the target texts of training; None where that is not known.
    """
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


def training_words(comparison: Comparison, path: Path | None, *, allow_code: bool = False) -> dict[str, int] | None:
    """How often words occur in the target texts of training: of a file, else of the first run; None without either.

    Raises:
        UserError: the file cannot be read. Data of a run that cannot be read any more are a warning.
    """
    if path is not None:
        with progress("counting words", unit="lines") as bar:
            return dict(word_counts(bar.over(read_lines(path))))
    runs = [cell.path for cells in comparison.cells.values() for cell in cells if cell.path and cell.path.is_dir()]
    if not runs or not any(measure.metric.of_text for measure in comparison.measures):
        return None
    with foreign_code(allow_code):
        recipe = RunFolder(runs[0]).read_recipe()
        try:
            corpus = build_task(recipe.task).named_corpus(recipe, recipe.data.train, "data.train")
            with progress("counting words", corpus.size, "examples") as bar:
                texts = (example.references[0] for example in corpus.examples if example.references)
                return dict(word_counts(bar.over(texts)))
        except UserError as error:
            left_out = "scores of words by how often training has them are left out"
            warn(f"{left_out}: its data cannot be read ({error}); {option('training')} names its target texts")
            return None


def write_tables(report: Report, folder: Path) -> list[Path]:
    """Write the report as `compare.md`, `.tex`, `.csv` and `.json`, and the differences as `differences.csv`."""
    comparison = report.comparison
    main = [comparison.table(), comparison.pair_table()]
    conclusions = "".join(f"- {line}\n" for line in comparison.conclusions())
    files = {
        f"{NAME}.md": "\n".join([f"# Comparison\n\n{conclusions}", *(table.markdown() for table in report.tables())]),
        f"{NAME}.tex": "\n".join(table.latex() for table in main),
        f"{NAME}.csv": main[0].csv(),
        "differences.csv": main[1].csv(),
    }
    for name, text in files.items():
        write_text(folder / name, text)
    write_json(folder / f"{NAME}.json", comparison.to_json())
    return [*(folder / name for name in files), folder / f"{NAME}.json"]


def write_report(comparison: Comparison, folder: Path, options: CompareOptions, *, own: bool = False) -> list[Path]:
    """Write all forms of the report: `compare.html`, `.md`, `.tex`, `.csv`, `.json`.

    Args:
        comparison: of all variants.
        folder: where the report goes; it is made where it is missing.
        options: of the data and of the runs, which are loaded once more for their attention.
        own: whether the runs are of one's own recipes, so that what these name may be imported.

    Raises:
        UserError: data or runs that are not there any more.
    """
    allow_code = own or options.allow_code
    report = report_of(comparison, training_words(comparison, options.training, allow_code=allow_code))
    attentions = captured_attention(report, device=options.device, allow_code=allow_code)
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / f"{NAME}.html"
    names = " · ".join(variant.name for variant in comparison.variants)
    write_comparison_page(page, report, attentions, title=f"{names} compared")
    return [page, *write_tables(report, folder)]


def write_comparison_page(path: Path, report: Report, attentions: Attentions, *, title: str) -> None:
    """Write the page whole.

    Args:
        path: the page.
        report: of the comparison.
        attentions: packed maps by variant, test set and segment.
        title: of the page.
    """
    data = {"payload": payload(report, attentions, title=title)}
    for (variant, test, segment), maps in attentions.items():
        index = [one.name for one in report.comparison.variants].index(variant)
        data[f"attention-{index}-{test}-{segment}"] = dict(maps)
    assets = resources.files(__package__).joinpath("page")
    write_page(
        path, "compare.html", title=title, styles=STYLES, scripts=SCRIPTS, data=data, assets=assets
    )  # fmt: skip


def captured_attention(
    report: Report, *, device: str = "auto", allow_code: bool = False
) -> dict[tuple[str, int, int], dict[str, Any]]:
    """The attention of the first seed of each variant that is a run, in the sentences that are shown.

    Raises:
        UserError: a run that cannot be loaded any more.
    """
    found = {}
    runs = {
        name: cells[0] for name, cells in report.comparison.cells.items() if cells[0].path and cells[0].path.is_dir()
    }
    with progress("looking inside", len(runs), "runs") as bar:
        for count, (variant, cell) in enumerate(runs.items(), start=1):
            for test, segment, maps in _maps_of_run(report, variant, cell, device, allow_code):
                found[variant, test, segment] = maps
            bar.update(count)
    return found


def _maps_of_run(
    report: Report, variant: str, cell: CellResult, device: str, allow_code: bool
) -> Iterator[tuple[int, int, dict[str, Any]]]:
    assert cell.path is not None
    predictor = load(cell.path, device=device, allow_code=allow_code)
    for test, output in enumerate(cell.outputs):
        segments = _segments(report, variant, test)
        measures = [measure.metric for measure in report.comparison.measures if measure.test == test]
        if not output.test.sources or any(isinstance(metric, AlignmentErrorRate) for metric in measures):
            continue  # links are nothing that a model writes
        examples = [RawExample(output.test.sources[index], output.hypotheses[index]) for index in segments]
        captured = read(predictor, examples, ReadOptions(hypotheses=False))
        for index, one in zip(segments, captured, strict=True):
            if maps := maps_of(one):
                yield test, index, packed_maps(maps, BITS)


def _segments(report: Report, variant: str, test: int) -> list[int]:
    """The segments in which a variant is shown with its attention, those that differ most first."""
    rows = [row for (a, b, of), row in report.shown.items() if of == test and variant in (a, b)]
    ranks = max(map(len, rows), default=0)
    chosen = [row[rank] for rank in range(ranks) for row in rows if rank < len(row)]
    return sorted(dict.fromkeys(chosen[:MOST_CAPTURED]))


def payload(report: Report, attentions: Attentions, *, title: str) -> dict[str, Any]:
    """The content of the page as values that JSON can hold."""
    comparison = report.comparison
    return {
        "title": title,
        "facts": _facts(comparison),
        "conclusions": comparison.conclusions(),
        "variants": [variant.name for variant in comparison.variants],
        "seeds": list(comparison.variants[0].seeds),
        "tests": [test.name for test in comparison.tests],
        "measures": [
            {"key": measure.key, "label": measure.label, "test": measure.test,
             "margin": comparison.margin_of(measure) or 0.0, "higher": measure.metric.higher_is_better}
            for measure in comparison.measures
        ],
        "pairs": [_pair(pair) for pair in comparison.pairs],
        "tables": [_table(table) for table in (comparison.table(), comparison.pair_table())],
        "curves": [_curves(curves) for curves in report.curves],
        "buckets": [_buckets(bucketing) for bucketing in report.buckets],
        "ngrams": [
            {"a": a, "b": b, "test": test, "rows": [[one.ngram, one.a, one.b, one.references] for one in found]}
            for (a, b, test), found in report.ngrams.items()
        ],
        "sentences": [_sentences(report, attentions, test) for test in range(len(comparison.tests))],
        "shown": [{"a": a, "b": b, "test": test, "segments": row} for (a, b, test), row in report.shown.items()],
        "time": "CPU seconds" if _knows_cpu_seconds(comparison) else "seconds",
        "bits": BITS,
    }  # fmt: skip


def _knows_cpu_seconds(comparison: Comparison) -> bool:
    cells = [cell for row in comparison.cells.values() for cell in row if cell.curve]
    return all(cell.costs.cpu_seconds is not None and cell.costs.gpu_seconds is None for cell in cells)


def _facts(comparison: Comparison) -> list[str]:
    facts = [f"{len(comparison.variants)} variants"]
    facts.append(f"{comparison.seeds} seeds" if comparison.seeds > 1 else "one seed")
    facts += [f"{test.name}: {len(test):,} segments" for test in comparison.tests]
    return facts if comparison.baseline is None else [*facts, f"baseline {comparison.baseline}"]


def _pair(pair: ComparedPair) -> dict[str, Any]:
    low, high = pair.estimate.interval()
    return {
        "a": pair.a, "b": pair.b, "metric": pair.metric, "difference": pair.difference, "low": low, "high": high,
        "p": pair.adjusted_p_value, "verdict": pair.verdict, "words": pair.words,
    }  # fmt: skip


def _table(table: Any) -> dict[str, Any]:
    return {
        "title": table.title, "notes": list(table.notes), "columns": table.headings(), "rows": table.cells(),
        "sides": table.aligns(),
    }  # fmt: skip


def _curves(curves: BandedCurves) -> dict[str, Any]:
    lines = [
        {
            "variant": variant,
            "points": [[one.update, one.seconds, one.mean, one.low, one.high] for one in points],
        }
        for variant, points in curves.lines.items()
    ]
    return {"metric": curves.metric, "lines": lines, "table": _table(curves.table())}


def _buckets(bucketing: Bucketing) -> dict[str, Any]:
    return {
        "title": bucketing.title, "axis": bucketing.axis, "labels": list(bucketing.labels),
        "counts": list(bucketing.counts), "counted": bucketing.counted,
        "scores": {name: _values(scores) for name, scores in bucketing.scores.items()},
        "differences": [{"a": a, "b": b, "values": _values(row)} for (a, b), row in bucketing.differences.items()],
        "table": _table(bucketing.table()),
    }  # fmt: skip


def _values(scores: Sequence[BucketScore]) -> list[list[float | None]]:
    return [[score.value, score.low, score.high] for score in scores]


def _sentences(report: Report, attentions: Attentions, test: int) -> list[dict[str, Any]]:
    """The sentences that any pair shows, with the outputs of all variants and seeds."""
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
            "means": report.sentences[test][index].scores,
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
    """Draw the figures that the options name."""
    if options.figure is not None:
        draw_scores(comparison, options.figure)
    if options.by_length is not None:
        draw_by_length(comparison, options.by_length)


def draw_scores(comparison: Comparison, path: Path) -> None:
    """Draw the mean score of every variant by every measure, a panel a measure, as PNG, SVG or PDF by the suffix.

    Bars reach one standard deviation between seeds to each side. A level line is the baseline or, without one, the
    first variant.

    Raises:
        UserError: a suffix that is no format of figures.
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


def draw_by_length(comparison: Comparison, path: Path) -> None:
    """Draw the mean score of every variant in each part of a test set by length, with its 95 % interval, as in figure 2
    of Bahdanau et al. (2015) and figure 3 of Kazemnejad et al. (2023). There is a panel a measure.

    Raises:
        UserError: a suffix that is no format of figures, or no test set with lengths.
    """
    what = "mean over seeds" if comparison.seeds > 1 else "score"
    panels = [
        Panel(
            title=bucketing.title, x=bucketing.axis, y=f"{what}, 95 % intervals",
            lines={name: _points(bucketing.lengths, scores) for name, scores in bucketing.scores.items()},
            bars={name: list(map(_ends, scores)) for name, scores in bucketing.scores.items()},
            counts=list(zip(bucketing.lengths, bucketing.counts, strict=True)),
        )
        for bucketing in length_bucketings(comparison)
    ]  # fmt: skip
    if not panels:
        allowed = "groups whose names are numbers, sources, or references of text"
        raise UserError("no test set has lengths", where=option("by_length"), allowed=allowed)
    panel_chart(panels, path)


def _points(lengths: Sequence[float], scores: Sequence[BucketScore]) -> list[tuple[float, float]]:
    return [(length, score.value) for length, score in zip(lengths, scores, strict=True)]


def _ends(score: BucketScore) -> tuple[float, float]:
    """The interval; the score itself where it has none, with one segment."""
    return (score.value, score.value) if score.low is None or score.high is None else (score.low, score.high)
