"""`headway reproduce`: the claims of documents."""

import shlex
import sys
from typing import Annotated

import typer

from headway.cli.options import flag_of
from headway.cli.standard_streams import write
from headway.comparison.options import ReproduceOptions
from headway.log import say
from headway.tables import Table


def reproduce(
    claim: Annotated[
        str | None,
        typer.Argument(
            metavar="[PAPER[/TABLE[/CELL]]]", help="A document, a table, a variant; without, all are listed."
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY.PATH=VALUE ...]", help="Changes to the grids, or to all recipes of them."),
    ] = None,
    *,
    options: ReproduceOptions,
) -> None:
    """Decide the claims of a document: prepare data, train and compare variants, print the paper's numbers and ours."""
    from headway.comparison.claims import ClaimPath, claims_folder
    from headway.comparison.reproduce import listed_claims
    from headway.comparison.reproduce import reproduce as decide_claims

    if claim is None:
        write(listed_claims(claims_folder(options.claims)).text())
        return
    # The record's command is the one that makes all runs, also where this one compares what is finished.
    left_out = (flag_of("only_finished"), flag_of("yes"))
    command = shlex.join(["headway", *(word for word in sys.argv[1:] if word not in left_out)])
    tables, code = decide_claims(ClaimPath.parse(claim), options, overrides or (), command, _confirmed)
    if tables:
        write("\n\n".join(table.text() for table in tables))
    raise typer.Exit(code)


def _confirmed(commands: Table) -> bool:
    """Whether someone at a terminal says yes to commands, which are shown."""
    say(commands.text())
    return sys.stdin is not None and sys.stdin.isatty() and typer.confirm("Run these commands?", err=True)
