"""`headway compare`: a grid of runs to be made, or runs and outputs that exist already."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.standard_streams import write
from headway.comparison.options import CompareOptions, ExistingOptions, GridOptions, is_grid
from headway.errors import UserError, check_companions, option

if TYPE_CHECKING:
    from headway.comparison.comparison import Comparison


def compare(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="GRID.yaml [KEY.PATH=VALUE ...] | [NAME[:SEED]=]RUN...",
            help="A grid of variants by seeds, and changes to it or to all of its recipes; or run folders, of which "
            "those of one recipe are the seeds of one variant.",
        ),
    ] = None,
    *,
    options: CompareOptions,
    grid: GridOptions,
) -> None:
    """Compare systems over seeds and test sets: scores, costs, verdicts, and what differs."""
    given = arguments or []
    of_grid = bool(given) and is_grid(given[0])
    of_others = grid.model_fields_set if not of_grid else options.model_fields_set & set(ExistingOptions.model_fields)
    for name in sorted(of_others):
        what = "a grid says this itself" if of_grid else "this is about a grid of runs to be made"
        raise UserError(what, where=option(name), allowed="a key of the grid" if of_grid else "GRID.yaml first")
    check_companions(options.model_fields_set, {"training": ("output",), "by": ("output", "by_length")})
    comparison, code = _of_grid(given, options, grid) if of_grid else (_of_existing(given, options), 0)
    if comparison is not None:
        from headway.comparison.report import draw_figures, write_report

        if options.output is not None:  # a grid's runs are of one's own recipes
            allowed = options.model_copy(update={"allow_code": options.allow_code or of_grid})
            write_report(comparison, options.output, allowed)
        as_json = json.dumps(comparison.to_json(), ensure_ascii=False, indent=1) if options.json_output else None
        write(as_json or comparison.text())
        draw_figures(comparison, options)
    raise typer.Exit(code)


def _of_existing(runs: Sequence[str], options: CompareOptions) -> "Comparison":
    from headway.comparison.existing_results import Existing, compare_existing

    return compare_existing([Existing.parse(run, option("runs")) for run in runs], options, options.output)


def _of_grid(
    arguments: Sequence[str], options: CompareOptions, workers: GridOptions
) -> tuple["Comparison | None", int]:
    """The comparison of a grid, with the exit code; none where nothing could be compared."""
    from headway.comparison.grid_file import load_grid
    from headway.comparison.systems import compare_grid, plan_of

    loaded = load_grid(Path(arguments[0]), arguments[1:])
    if options.output is None:
        raise UserError("the runs of a grid need a folder", where=option("output"))
    if workers.dry_run:
        write(plan_of(loaded, options.output, workers).text())
        return None, 0
    made = compare_grid(loaded, options.output, workers)
    return made.comparison, made.code
