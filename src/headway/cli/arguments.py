"""Arguments and options that several commands have."""

from pathlib import Path
from typing import Annotated

import typer

MOST = 10**9  # of what is counted
LARGEST_SEED = 2**63 - 1

AllowCode = Annotated[
    bool, typer.Option("--allow-code", help="Import what the run names by import path; it is not a part of headway.")
]
RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="The run folder.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, ...")]
Precision = Annotated[
    str, typer.Option(help="Of products with weights: float32, bf16, int8, or auto for the fastest on this machine.")
]
