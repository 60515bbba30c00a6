"""Options of making a grid: Python's keywords and the command line's flags are made from them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from headway.config import Section
from headway.errors import UserError, option

Workers = Annotated[int, Field(gt=0, le=1024)]
GRID: dict[str, Any] = {"group": "A grid of runs"}
GRID_FILES = (".yaml", ".yml")


def is_grid(name: str) -> bool:
    """Whether what is to be compared is the file of a grid; a run folder may have any name."""
    return name.endswith(GRID_FILES) and not Path(name).is_dir()


class GridOptions(Section):
    """The workers of a grid."""

    workers: Workers | None = Field(
        None,
        description="Cells that are made at a time.",
        json_schema_extra={**GRID, "default_text": "as many as there is room for"},
    )
    threads: Workers = Field(1, description="Threads of each cell.", json_schema_extra=GRID)
    ray: str | None = Field(
        None,
        description="Send cells to the Ray cluster at this address; local starts one here.",
        json_schema_extra={**GRID, "metavar": "ADDRESS"},
    )
    dry_run: bool = Field(
        False, description="List the cells and their estimated time, and make none.", json_schema_extra=GRID
    )
    only_finished: bool = Field(
        False, description="Compare the cells that are finished, and make none.", json_schema_extra=GRID
    )

    @model_validator(mode="after")
    def _makes_or_compares(self) -> Self:
        if self.dry_run and self.only_finished:
            allowed = f"without {option('only_finished')}"
            raise UserError("no cells are to be made", where=option("dry_run"), allowed=allowed)
        if self.ray is not None and self.only_finished:
            allowed = f"without {option('only_finished')}"
            raise UserError(
                "no cells are to be made, there or here", where=option("ray"), received=self.ray, allowed=allowed
            )
        return self
