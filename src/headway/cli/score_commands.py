"""`headway score`: score output files against references, or targets by a model."""

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from headway.cli.prediction_options import SCORE_OPTIONS, draw_alignments
from headway.cli.shell import Device, Given, argument, verb
from headway.cli.standard_streams import write
from headway.comparison.options import CompareOptions, ScoreOptions
from headway.core.config import WRITES_FOLDER, Section, validated_options
from headway.core.errors import UserError, check_companions, option

FINAL: dict[str, Any] = {"group": "Final evaluations, as Mozilla keeps them"}


class FinalOptions(Section):
    """The place of an evaluation among the final evaluations of translators."""

    final_evals: Annotated[Path | None, WRITES_FOLDER] = Field(
        None, description="Write translations and scores of one system into this folder.", json_schema_extra=FINAL
    )
    pair: str | None = Field(None, description="The languages, such as en-ast.", json_schema_extra=FINAL)
    dataset: str = Field("test", description="The name of the test set.", json_schema_extra=FINAL)
    translator: str = Field("headway", description="The name of the translator.", json_schema_extra=FINAL)


@verb(loads_runs=True)
def score(
    run: Annotated[Path | None, argument("RUN", "A run, for the probabilities of targets under its model.")] = None,
    /,
    *,
    options: Annotated[dict[str, Any], Given((ScoreOptions, FinalOptions, *SCORE_OPTIONS))],
    device: Device = "auto",
) -> None:
    final = {name: options.pop(name) for name in FinalOptions.model_fields if name in options}
    if final:
        if run is not None:
            raise UserError("final evaluations are of files", where=option(next(iter(final))), allowed="no RUN")
        score_finally(validated_options(ScoreOptions, options), validated_options(FinalOptions, final))
    elif run is None:
        score_files(validated_options(ScoreOptions, options))
    else:
        score_targets(run, options, device)


def score_files(options: ScoreOptions) -> None:
    """Score files of hypotheses against references, and compare the systems with the output of `compare`."""
    from headway.comparison.report import draw_figures, printed
    from headway.grids.compare import compare_existing

    check_companions(options.model_fields_set, {"length_bins": ("by_length",)})
    asked = CompareOptions.model_construct(**options.model_dump(exclude_unset=True))
    comparison = compare_existing([], asked, least=1)
    write(printed(comparison, asked))
    draw_figures(comparison, asked)


def score_finally(options: ScoreOptions, final: FinalOptions) -> None:
    """Write the final evaluation of one system's outputs, and print its scores."""
    from headway.formats.lines import read_lines
    from headway.grids.compare import name_files
    from headway.metrics import as_metrics
    from headway.metrics.final_evals import Evaluated, write_final_evals

    check_companions(final.model_fields_set, dict.fromkeys(("pair", "dataset", "translator"), ("final_evals",)))
    for name in ("hypotheses", "references"):
        if len(files := getattr(options, name)) != 1:
            raise UserError("a final evaluation is of one file", where=option(name), received=len(files))
    if final.final_evals is None or final.pair is None or options.source is None:
        missing = "pair" if final.pair is None else "source"
        raise UserError("a final evaluation needs the languages and the sources", where=option(missing))
    (system,), language = name_files(options.hypotheses), final.pair.rpartition("-")[2]
    assert system.path is not None
    lines = [list(read_lines(file)) for file in (options.source, system.path, options.references[0])]
    metrics = as_metrics(options.metric, language)
    if others := [metric.name for metric in metrics if metric.name != "comet"]:
        allowed = "comet with its model; the others are measured always"
        raise UserError("a final evaluation has metrics of its own", where=option("metric"), received=others[0],
                        allowed=allowed)  # fmt: skip
    test = Evaluated(final.pair, final.dataset, final.translator, system.variant, *lines)
    comet = next(iter(metrics), None)
    write(write_final_evals(final.final_evals, test, comet).text())


def score_targets(run: Path, options: dict[str, Any], device: str) -> None:
    """Write the log probabilities of targets under a run's model, and draw their alignments."""
    from headway.cli.streams import run_score

    shown = run_score(run, options, device=device)
    draw_alignments(shown, options.get("alignment_figure"))
