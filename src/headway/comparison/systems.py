"""`headway.compare`: one function for all that can be compared."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from headway.comparison.cell_results import CellResult
from headway.comparison.compare_options import CompareOptions, ExistingOptions
from headway.comparison.comparison import Comparison
from headway.comparison.comparison_page import write_report
from headway.comparison.existing_results import Existing, compare_existing
from headway.comparison.grid_comparison import compare_grid
from headway.comparison.grid_file import load_grid
from headway.comparison.grid_options import GridOptions, is_grid
from headway.comparison.score_figure import draw_figures
from headway.comparison.verdicts import compare_cells
from headway.config import validated_options
from headway.errors import RunError, UserError, nearest, option
from headway.files import check_output_folder
from headway.metrics import Metric, as_metrics

SEVERAL = ("hypotheses", "references", "test")  # options that take one or several

Path_ = str | Path
Systems = Path_ | CellResult | Sequence[Path_ | CellResult] | Mapping[str, Path_ | Sequence[Path_]]


def compare(
    systems: Systems = (),
    metrics: Metric | str | Sequence[Metric | str] | None = None,
    margin: Mapping[str, float] = MappingProxyType({}),
    baseline: str | None = None,
    *,
    output: Path_ | None = None,
    **options: Any,
) -> Comparison:
    """Compare systems over seeds and test sets.

        headway.compare("grid.yaml", output="comparison")
        headway.compare({"attention": ["runs/a1", "runs/a2"], "ngram": ["runs/n1", "runs/n2"]}, ["bleu"])
        headway.compare(hypotheses=["ours=ours.txt", "theirs=theirs.txt"], references=["references.txt"])

    Args:
        systems: run folders, of which those of one recipe are the seeds of one variant, or run folders by the name of
            their variant; a grid file; or cells.
        metrics: metrics or their names, one or several; by default those of the runs, else BLEU and chrF. A grid has
            its own.
        margin: by the name of a metric, the difference up to which systems are even.
        baseline: the system that all others are compared with; by default every pair is compared.
        output: a folder for the report; a grid needs it for its runs.
        options: others of `headway compare`, such as `hypotheses`, `references`, `source`, `test` and `training`; for a
            grid `workers`, `threads` and `ray`.

    Returns:
        The comparison. It shows itself in notebooks, `plot()` draws it, and `to_pandas()` gives its tables.

    Raises:
        UserError: what cannot be compared, or an option that there is not.
        RunError: a grid of which no cells can be compared.
    """
    folder = _folder(output)
    given = [systems] if isinstance(systems, str | Path | CellResult) else systems
    if not isinstance(given, Sequence | Mapping):
        allowed = "a grid file, run folders, alone or by the name of their variant, or cells"
        raise UserError("these are no systems", where="systems", received=given, allowed=allowed)
    if isinstance(given, Sequence) and len(given) == 1 and is_grid(str(given[0])):
        told = {"metrics": metrics, "margin": margin, "baseline": baseline}
        return _of_grid(Path(str(given[0])), folder, options, [name for name, value in told.items() if value])
    chosen = _options(CompareOptions if folder else ExistingOptions, options | {"baseline": baseline})
    built = None if metrics is None else as_metrics(metrics)
    cells = [one for one in given if isinstance(one, CellResult)]
    if cells:
        if len(cells) < len(given) or built is None:
            raise UserError("cells are compared with cells, by metrics", where="systems", allowed="cells and metrics")
        comparison = compare_cells(cells, built, margin, baseline, any_tokenization=chosen.any_tokenization)
    else:
        comparison = compare_existing(list(_runs(given)), chosen, folder, metrics=built, margin=margin)
    if folder is not None and isinstance(chosen, CompareOptions):
        write_report(comparison, folder, chosen)
        draw_figures(comparison, chosen)
    return comparison


def _folder(output: Path_ | None) -> Path | None:
    """The folder for the report. Raises UserError where there can be none."""
    try:
        return check_output_folder(None if output is None else Path(output))
    except ValueError as error:
        raise UserError(str(error), where=option("output"), received=str(output)) from error


def _runs(systems: Any) -> Iterator[Existing]:
    """Runs, with the names of their variants where these were given."""
    if not isinstance(systems, Mapping):
        yield from (Existing.parse(str(run), "systems") for run in systems)
        return
    for name, runs in systems.items():
        for run in [runs] if isinstance(runs, str | Path) else runs:
            yield Existing(Existing.parse(str(run), f"systems[{name!r}]").path, name)


def _options(section: type[ExistingOptions], given: Mapping[str, Any]) -> ExistingOptions:
    """Validated options. Raises UserError for one that there is not."""
    for name in given:
        if name not in section.model_fields:
            hint = nearest(name, section.model_fields)
            raise UserError(f"unknown option{hint}", where=name, allowed=section.model_fields)
    known = {name: value for name, value in given.items() if value is not None}
    alone = {name: (known[name],) for name in SEVERAL if isinstance(known.get(name), str | Path)}
    return validated_options(section, known | alone)


def _of_grid(path: Path, folder: Path | None, options: Mapping[str, Any], told: Sequence[str]) -> Comparison:
    """The comparison of a grid; `told` are the arguments that it says itself."""
    if told:
        raise UserError("a grid says this itself", where=told[0], allowed="a key of the grid")
    grid = load_grid(path)
    if folder is None:
        raise UserError("the runs of a grid need a folder", where=option("output"))
    workers = validated_options(GridOptions, options)
    if workers.dry_run:
        raise UserError(
            "only the command line lists the cells", where=option("dry_run"), allowed="headway compare GRID"
        )
    made = compare_grid(grid, folder, workers)
    if made.comparison is None:
        raise RunError(f"{path}: no two variants could be compared")
    write_report(made.comparison, folder, CompareOptions(), own=True)
    return made.comparison
