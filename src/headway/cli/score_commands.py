"""`headway score`: files of outputs against references, given targets under a model."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.cli.standard_streams import write
from headway.metrics.score_options import FileScoreOptions

if TYPE_CHECKING:
    from headway.predictors.word_alignment import WordAlignment
    from headway.runs.inspect.length_quality import LengthScores

# Options of `score files` that do nothing without others.
NEEDS = {
    **dict.fromkeys(("length_bins", "length_unit"), ("by_length",)),
    "samples": ("significance",),
    "source": ("lead", "by_length"),
}


def score_files(options: FileScoreOptions) -> None:
    """Score files of hypotheses against references: scores, intervals, and p where systems are compared."""
    from headway.errors import check_companions
    from headway.formats.lines import kept_pipes
    from headway.metrics import build_metrics, score_report

    check_companions(options.model_fields_set, NEEDS)
    metrics = build_metrics(options.metric, options.given())
    with kept_pipes():
        baselines = _leads(options)
        lengths = None if options.by_length is None else _by_length(options)
        report = score_report.score_files(metrics, options.hypotheses, options.references, options, baselines=baselines)
    write(report.to_json() if options.json_output else report.text())
    if lengths is not None and options.by_length is not None:
        lengths.draw(options.by_length)
        if not options.json_output:
            write(f"\n{lengths.text()}")


def score_targets(run: Path, options: dict[str, Any], device: str, allow_code: bool) -> None:
    """Score given targets with a run's model: the log probability of each, and how the model aligns them."""
    from headway.cli.streams import run_score
    from headway.files import check_apart

    read = [options[key] for key in ("source", "target", "alignment_gold") if options.get(key)]
    check_apart({key: options.get(key) for key in ("alignments", "alignment_figure")}, read)
    shown = run_score(run, options, device=device, allow_code=allow_code)
    draw_alignments(shown, options.get("alignment_figure"))


def draw_alignments(shown: "Sequence[WordAlignment]", path: Path | None) -> None:
    """Draw alignments to a file, where one is given."""
    if path is not None:
        from headway.runs.inspect.alignment_figures import alignment_page

        alignment_page(shown, path)


def _leads(options: FileScoreOptions) -> dict[str, list[str]]:
    """The beginnings of the sources, by the name of the lead."""
    if not options.lead:
        return {}
    from headway.corpora.lead import leads_of_file
    from headway.errors import UserError, option
    from headway.recipe import parse_lead

    if options.source is None:
        what, beside = "a lead is the beginning of a source", f"{option('source')} FILE beside it"
        raise UserError(what, where=option("lead"), allowed=beside)
    return leads_of_file(options.source, [parse_lead(lead) for lead in options.lead])


def _by_length(options: FileScoreOptions) -> "LengthScores":
    from headway.cli.prediction_options import numbers
    from headway.errors import UserError, option
    from headway.metrics import build_metrics
    from headway.runs.inspect.length_quality import score_files_by_length

    if options.source is None:
        what, beside = "quality by length needs the sources", f"{option('source')} FILE beside it"
        raise UserError(what, where=option("by_length"), allowed=beside)
    edges = numbers(options.length_bins, option("length_bins"))
    metric = build_metrics(options.metric, options.given())[0]
    files = (options.hypotheses, options.references, options.source)
    return score_files_by_length(metric, *files, unit=options.length_unit, edges=edges)
