"""`headway compare`: a grid of runs to be made, or runs and outputs that exist already."""

from pathlib import Path
from typing import Annotated

import typer

from headway.cli.standard_streams import write
from headway.comparison.options import CompareOptions, GridOptions, is_grid
from headway.errors import UserError, check_companions, option


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
) -> None:
    """Compare systems over seeds and test sets: scores, costs, verdicts, and what differs."""
    from headway.comparison.compare import Existing, compare_existing, compare_file, plan_of_file
    from headway.comparison.report import draw_figures, printed, write_report

    check_companions(options.model_fields_set, {"training": ("output",), "length_bins": ("by_length",)})
    given, code = arguments or [], 0
    if given and is_grid(given[0]):
        if options.dry_run:
            write(plan_of_file(Path(given[0]), options, given[1:]).text())
            return
        made = compare_file(Path(given[0]), options, given[1:])
        comparison, code = made.comparison, made.code
        options = options.model_copy(update={"allow_code": True})  # a grid's runs are of one's own recipes
    else:
        for name in sorted(options.model_fields_set & GridOptions.model_fields.keys()):
            what = "this is about a grid of runs to be made"
            raise UserError(what, where=option(name), allowed="GRID.yaml first")
        comparison = compare_existing([Existing.parse(run, option("runs")) for run in given], options)
    if comparison is not None:
        if options.output is not None:
            write_report(comparison, options.output, options)
        write(printed(comparison, options))
        draw_figures(comparison, options)
    raise typer.Exit(code)
