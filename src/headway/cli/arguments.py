"""Arguments and options that several commands have."""

from pathlib import Path
from typing import Annotated

import typer

MOST = 10**9  # of what is counted
LARGEST_SEED = 2**63 - 1

MODEL = "Model"  # the group of options that say how a model is loaded

AllowCode = Annotated[
    bool,
    typer.Option(
        "--allow-code",
        help="Import what the run names by import path; it is not a part of headway.",
        rich_help_panel=MODEL,
    ),
]
RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="The run folder.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, ...", rich_help_panel=MODEL)]
Average = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=MOST,
        help="Use the mean of the run's last N checkpoints.",
        show_default="the run's weights",
        rich_help_panel=MODEL,
    ),
]
EngineName = Annotated[
    str | None,
    typer.Option(
        help="ctranslate2 or onnx: decode with an export, kept in the cache.",
        show_default="torch",
        rich_help_panel=MODEL,
    ),
]
Precision = Annotated[
    str,
    typer.Option(
        help="Of products with weights: float32, bf16, int8, or auto for the fastest on this machine.",
        rich_help_panel=MODEL,
    ),
]
