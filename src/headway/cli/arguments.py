"""Arguments and options that several commands have."""

from pathlib import Path
from typing import Annotated, Any

import typer

Alignments = Annotated[
    Path | None,
    typer.Option(help="Write word alignments there: Pharaoh i-j links, or weights if the name ends in .jsonl."),
]
AlignmentLayer = Annotated[
    int | None,
    typer.Option(min=0, help="The decoder layer to align by.", show_default="the last but one, or the only one"),
]
AlignmentHeads = Annotated[str | None, typer.Option(help="The heads to align by, as in 0,3.", show_default="all")]
AlignmentGold = Annotated[
    Path | None, typer.Option(help="Gold alignments of the run's dev set: align by the layer with the least AER there.")
]
AlignmentFigure = Annotated[
    Path | None, typer.Option(help="Draw the alignments of the first sentences there (.png, .svg, .pdf).")
]
RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="The run folder.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, ...")]

AllowCode = Annotated[
    bool, typer.Option("--allow-code", help="Import what the run names by import path; it is not a part of headway.")
]


def given_options(context: typer.Context, *but: str) -> dict[str, Any]:
    """The options that stand on the command line, apart from those named."""
    source = context.get_parameter_source
    given = {name for name in context.params if getattr(source(name), "name", "") == "COMMANDLINE"}
    return {name: value for name, value in context.params.items() if name in given and name not in but}
