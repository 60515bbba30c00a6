"""`headway compare`: a grid of runs to be made, or runs and outputs that exist already; `headway reproduce`: claims."""

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.prompt import Confirm

from headway.cli.console import console
from headway.cli.shell import argument, flag_of
from headway.cli.standard_streams import write
from headway.comparison.options import CompareOptions, ExistingOptions, GridOptions, ReproduceOptions, is_grid
from headway.errors import UserError, check_companions, option
from headway.log import say
from headway.tables import Table

if TYPE_CHECKING:
    from headway.comparison.comparison import Comparison


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
    grid: GridOptions,
) -> int:
    """Compare systems over seeds and test sets: scores, costs, verdicts, and what differs."""
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
    return code


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


def reproduce(
    claim: Annotated[
        str | None, argument("PAPER/TABLE/CELL", "A document, a table, a variant; without, all are listed.")
    ] = None,
    /,
    *overrides: Annotated[str, argument("KEY.PATH=VALUE", "Changes to the grids, or to all recipes of them.")],
    options: ReproduceOptions,
) -> int:
    """Decide the claims of a document: prepare data, train and compare variants, print the paper's numbers and ours."""
    from headway.comparison.claims import ClaimPath, claims_folder
    from headway.comparison.reproduce import listed_claims
    from headway.comparison.reproduce import reproduce as decide_claims

    if claim is None:
        write(listed_claims(claims_folder(options.claims)).text())
        return 0
    # The record's command is the one that makes all runs, also where this one compares what is finished.
    left_out = (flag_of("only_finished"), flag_of("yes"))
    line = shlex.join(["headway", *(word for word in sys.argv[1:] if word not in left_out)])
    tables, code = decide_claims(ClaimPath.parse(claim), options, overrides, line, _confirmed)
    if tables:
        write("\n\n".join(table.text() for table in tables))
    return code


def _confirmed(commands: Table) -> bool:
    """Whether someone at a terminal says yes to commands, which are shown."""
    say(commands.text())
    asked = sys.stdin is not None and sys.stdin.isatty()
    return asked and Confirm.ask("Run these commands?", console=console, default=False)
