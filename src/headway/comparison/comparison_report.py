"""The report of a comparison: a page, Markdown, LaTeX, CSV and JSON, with all that differs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headway.comparison.buckets import Bucketing, bucketings
from headway.comparison.comparison import Comparison
from headway.comparison.learning_curves import BandedCurves, banded_curves
from headway.comparison.output_differences import (
    NgramDifference,
    SentenceScores,
    most_different,
    ngram_differences,
    ngram_table,
    sentence_scores,
)
from headway.comparison.words import word_counts
from headway.errors import UserError, option
from headway.files import write_json, write_text
from headway.formats.lines import read_lines
from headway.log import progress, warn
from headway.registry import foreign_code
from headway.runs.run_folder import RunFolder
from headway.tables import Table
from headway.tasks import build_task

SENTENCES = 8  # of each pair, in which one is better, and as many in which it is worse
NAME = "compare"


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
