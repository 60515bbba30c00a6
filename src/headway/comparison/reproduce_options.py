"""Options of `headway reproduce`: Python's keywords and the command line's flags are made from them."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

from pydantic import Field

from headway.comparison.grid_options import GRID, GridOptions

USUAL_BUDGET: Final = "small"  # where none is named


class ReproduceOptions(GridOptions):
    """The budget, data and output of claims, and the workers."""

    budget: Literal["small", "full"] = Field(
        USUAL_BUDGET, description="For two processor cores, or that of the document."
    )
    output: Path | None = Field(
        None, description="The folder of data and runs.", json_schema_extra={"metavar": "DIR", "default_text": ""}
    )
    data: Path | None = Field(
        None,
        description="The folder of the corpora that the claims name.",
        json_schema_extra={"metavar": "FOLDER", "default_text": "none; some claims make their data"},
    )
    dry_run: bool = Field(
        False,
        description="List the cells and their estimated time, or the commands that prepare their data; run nothing.",
        json_schema_extra=GRID,
    )
    yes: bool = Field(False, description="Run the commands of claim files that prepare data without being asked.")
    claims: Path | None = Field(
        None,
        description="The folder of the claim files.",
        json_schema_extra={"metavar": "FOLDER", "default_text": "claims, else those that come with headway"},
    )
