"""`headway pack` and `headway unpack`: a run in one file that travels."""

from pathlib import Path
from typing import Annotated

import typer

from headway.cli.arguments import RunArgument
from headway.cli.options import command
from headway.cli.standard_streams import write

Pack = Annotated[Path, typer.Argument(metavar="FILE.zip", help="The pack.")]


def add_pack_commands(app: typer.Typer, group: str) -> None:
    """Add both commands to `app`, in a group of its help."""
    command(app, "pack", group)(pack)
    command(app, "unpack", group)(unpack)


def pack(run: RunArgument, output: Pack) -> None:
    """Put all that predicting with a run needs into one file."""
    from headway.runs.packing import pack_run

    names = pack_run(run, output)
    write(f"{output}: {len(names)} files, {output.stat().st_size / 1e6:.1f} MB")


def unpack(
    file: Pack, folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The run folder to make.")]
) -> None:
    """Make a run folder of a pack."""
    from headway.runs.packing import unpack_run

    unpack_run(file, folder)
    write(str(folder))
