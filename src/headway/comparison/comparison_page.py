"""The page of a comparison: one file with verdicts, curves, parts of test sets, n-grams, sentences and attention.

Sentences are pieces of data in the page, and so is the attention of each variant in them, read when it is shown.
"""

from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from headway.comparison.buckets import Bucketing, BucketScore
from headway.comparison.cell_results import CellResult
from headway.comparison.compare_options import CompareOptions
from headway.comparison.comparison import ComparedPair, Comparison
from headway.comparison.comparison_report import NAME, Report, report_of, training_words, write_tables
from headway.comparison.learning_curves import BandedCurves
from headway.log import progress
from headway.metrics.word_metrics import AlignmentErrorRate
from headway.runs.inspect.capture import ReadOptions, read
from headway.runs.inspect.html_page import write_page
from headway.runs.inspect.inspection import maps_of
from headway.runs.inspect.inspection_page import packed_maps
from headway.runs.load import load
from headway.tasks.task import RawExample

STYLES = ("palette.css", "report.css", "heatmap.css", "compare.css")
SCRIPTS = (
    "elements.js", "charts.js", "save.js", "weights.js", "heatmap.js", "forest.js", "bucket_chart.js", "differences.js",
    "compare.js",
)  # fmt: skip
BITS = 8
MOST_CAPTURED = 40  # sentences with attention, of a test set

Attentions = Mapping[tuple[str, int, int], Mapping[str, Any]]


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
