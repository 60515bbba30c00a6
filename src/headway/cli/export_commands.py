"""`headway export`: a run in the format of another engine or library."""

from pathlib import Path
from typing import Annotated, Any

import typer

from headway.cli.arguments import AllowCode
from headway.cli.options import Given
from headway.cli.standard_streams import write
from headway.export.export_options import FORMAT_OPTIONS, ExportOptions


def export(
    format: Annotated[
        str | None, typer.Argument(metavar="[FORMAT]", help="The format; `headway list exporters` has all.")
    ] = None,
    run: Annotated[Path | None, typer.Argument(metavar="[RUN]", help="The run folder.")] = None,
    *,
    options: Annotated[dict[str, Any], Given((ExportOptions, *FORMAT_OPTIONS))],
    list_run: Annotated[
        Path | None, typer.Option("--list", metavar="RUN", help="Say which formats can express this run, and why not.")
    ] = None,
    allow_code: AllowCode = False,
) -> None:
    """Write a run in a format of other engines, with its card, and show that it answers as the run does."""
    from headway.config import validated_options
    from headway.errors import UserError
    from headway.export.exporting import export_run, formats_of

    if list_run is not None:
        write(formats_of(list_run, allow_code=allow_code).text())
        return
    if format is None or run is None:
        what, allowed = "an export needs a format and a run", "headway export FORMAT RUN --output DIR"
        raise UserError(what, where="headway export", allowed=allowed)
    ours = {name: value for name, value in options.items() if name in ExportOptions.model_fields}
    theirs = {name: value for name, value in options.items() if name not in ours}
    report = export_run(format, run, validated_options(ExportOptions, ours), theirs, allow_code=allow_code)
    write(report.text())
    raise typer.Exit(0 if report.passed else 1)
