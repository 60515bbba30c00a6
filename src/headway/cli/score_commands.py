"""`headway score`: score output files against references, or targets by a model."""

from pathlib import Path
from typing import Annotated, Any

from headway.cli.prediction_options import SCORE_OPTIONS, draw_alignments
from headway.cli.shell import Device, Given, argument, verb
from headway.cli.standard_streams import write
from headway.comparison.options import CompareOptions, ScoreOptions
from headway.core.config import validated_options
from headway.core.errors import check_companions


@verb(loads_runs=True)
def score(
    run: Annotated[Path | None, argument("RUN", "A run, for the probabilities of targets under its model.")] = None,
    /,
    *,
    options: Annotated[dict[str, Any], Given((ScoreOptions, *SCORE_OPTIONS))],
    device: Device = "auto",
) -> None:
    if run is None:
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


def score_targets(run: Path, options: dict[str, Any], device: str) -> None:
    """Write the log probabilities of targets under a run's model, and draw their alignments."""
    from headway.cli.streams import run_score

    shown = run_score(run, options, device=device)
    draw_alignments(shown, options.get("alignment_figure"))
