"""`headway compare`: runs and outputs that exist already."""

import json
from typing import Annotated

import typer

from headway.cli.standard_streams import write
from headway.comparison.compare_options import CompareOptions


def compare(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME[:SEED]=]RUN...",
            help="Run folders; those of one recipe are the seeds of one variant.",
        ),
    ] = None,
    *,
    options: CompareOptions,
) -> None:
    """Compare systems over seeds and test sets: scores, costs, verdicts, and what differs."""
    from headway.comparison.existing_results import compare_existing

    if options.output is not None:
        options.output.mkdir(parents=True, exist_ok=True)
    comparison = compare_existing(arguments or [], options, options.output)
    if options.json_output:
        write(json.dumps(comparison.to_json(), ensure_ascii=False, indent=1))
    else:
        write(comparison.text())
