"""Arguments and options that several commands have."""

from pathlib import Path
from typing import Annotated

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
