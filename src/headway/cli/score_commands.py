"""`headway score`: files of outputs against references, given targets under a model."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.cli.standard_streams import write
from headway.comparison.options import CompareOptions, ScoreOptions

if TYPE_CHECKING:
    from headway.predictors.word_alignment import WordAlignment


def score_files(options: ScoreOptions) -> None:
    """Score files of hypotheses against references, and compare the systems: what `compare` says of the same files."""
    from headway.comparison.report import draw_figures, printed
    from headway.core.errors import check_companions
    from headway.grids.compare import compare_existing

    check_companions(options.model_fields_set, {"length_bins": ("by_length",)})
    asked = CompareOptions.model_construct(**options.model_dump(exclude_unset=True))
    comparison = compare_existing([], asked, least=1)
    write(printed(comparison, asked))
    draw_figures(comparison, asked)


def score_targets(run: Path, options: dict[str, Any], device: str) -> None:
    """Score given targets with a run's model: the log probability of each, and how the model aligns them."""
    from headway.cli.streams import run_score

    shown = run_score(run, options, device=device)
    draw_alignments(shown, options.get("alignment_figure"))


def draw_alignments(shown: "Sequence[WordAlignment]", path: Path | None) -> None:
    """Draw alignments to a file, where one is given."""
    if path is not None:
        from headway.pages.charts import alignment_page

        alignment_page(shown, path)
