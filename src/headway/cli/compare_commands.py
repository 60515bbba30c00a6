"""`headway compare`: run a grid, or compare existing runs and outputs; `headway reproduce`: decide claims."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

from headway.cli.console import confirmed
from headway.cli.shell import argument, flag_of, verb
from headway.cli.standard_streams import write
from headway.comparison.options import CompareOptions, GridOptions, ReproduceOptions, is_grid
from headway.core.errors import UserError, check_companions, option


@verb()
def compare(
    *given: Annotated[
        str,
        argument(
            "GRID [KEY.PATH=VALUE] | [NAME[:SEED]=]RUN",
            "A grid of variants by seeds, and changes to it or to all of its recipes; or run folders, of which those "
            "of one recipe are the seeds of one variant.",
        ),
    ],
    options: CompareOptions,
) -> int:
    from headway.comparison.report import draw_figures, printed, write_report
    from headway.grids.compare import Existing, compare_existing, compare_grid, grid_of_file, plan_of

    needs = {"training": ("output",), "columns": ("output",), "length_bins": ("by_length",)}
    check_companions(options.model_fields_set, needs)
    code = 0
    if given and is_grid(given[0]):
        grid, output = grid_of_file(Path(given[0]), options, given[1:])
        if options.dry_run:
            write(plan_of(grid, output, options).text())
            return 0
        made = compare_grid(grid, output, options)
        comparison, code = made.comparison, made.code
        options = options.model_copy(update={"allow_code": True})  # a grid's runs are from the user's own recipes
    else:
        for name in sorted(options.model_fields_set & GridOptions.model_fields.keys()):
            what = "this is about a grid of runs to be made"
            raise UserError(what, where=option(name), allowed="GRID.yaml first")
        comparison = compare_existing([Existing.parse(run, "RUN") for run in given], options)
    if comparison is not None:
        if options.output is not None:
            write_report(comparison, options.output, options)
        write(printed(comparison, options))
        draw_figures(comparison, options)
    return code


@verb()
def reproduce(
    claim: Annotated[
        str | None,
        argument("PAPER/TABLE/CELL", "A document, a table, a variant, or a paper.zip; without, all are listed."),
    ] = None,
    /,
    *overrides: Annotated[str, argument("KEY.PATH=VALUE", "Changes to the grids, or to all recipes of them.")],
    options: ReproduceOptions,
) -> int:
    from headway.claims.claims import ClaimPath, claims_folder
    from headway.claims.reproduce import listed_claims
    from headway.claims.reproduce import reproduce as decide_claims

    if claim is not None and claim.endswith(".zip"):
        from headway.claims.paper import replay

        tables, code = replay(Path(claim), options, overrides, _command(), confirmed)
        write("\n\n".join(table.text() for table in tables))
        return code
    if claim is None:
        write(listed_claims(claims_folder(options.claims)).text())
        return 0
    tables, code = decide_claims(ClaimPath.parse(claim), options, overrides, _command(), confirmed)
    if tables:
        write("\n\n".join(table.text() for table in tables))
    return code


def _command() -> str:
    """The command that makes all runs, for the record, even if this one only compares finished runs."""
    left_out = (flag_of("only_finished"), flag_of("yes"))
    return shlex.join(["headway", *(word for word in sys.argv[1:] if word not in left_out)])
