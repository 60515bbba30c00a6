"""The states of the runs of a grid, and what came out of them."""

from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Literal

from headway.comparison.cell_process import CellJob
from headway.comparison.cell_results import CellResult
from headway.comparison.grid import PlannedRun, Variant
from headway.comparison.workers import Worker

Status = Literal["waiting", "running", "finished", "failed"]


@dataclass
class CellState:
    """A run of the grid and how it stands.

    Attributes:
        planned: what it is.
        job: what makes it.
        status: how it stands.
        worker: what is at work on it.
        result: of a finished run.
        code: the exit code of one that failed.
        signal: the number of the signal that ended one that failed, before or after it saved; 0 where none did.
    """

    planned: PlannedRun
    job: CellJob
    status: Status = "waiting"
    worker: Worker | None = None
    result: CellResult | None = None
    code: int = 0

    @property
    def signal(self) -> int:
        return max(0, -self.code, self.code - 128)


@dataclass
class VariantState:
    """A variant: its short runs, and its cells once the value of the tuned key is chosen."""

    variant: Variant
    tuning: list[CellState]
    cells: list[CellState] = field(default_factory=list)
    value: Any = None
    chosen: bool = False
    failed: str = ""

    @property
    def by_value(self) -> list[list[CellState]]:
        """Its short runs, those of each value of the tuned key together."""
        return [list(runs) for _, runs in groupby(self.tuning, key=lambda run: run.planned.value)]

    @property
    def runs(self) -> list[CellState]:
        """Its runs that are known: short ones and cells."""
        return [*self.tuning, *self.cells]


@dataclass(frozen=True)
class GridResult:
    """All that came out of a grid.

    Attributes:
        cells: the results of the finished ones.
        failed: the others, in words.
        tuned: the value of the tuned key by variant.
        by_chance: the variants whose short runs do not tell the values of the key apart; none where a signal came.
        stopped: the number of the signal that ended the work; 0 where none did.
        unfinished: the cells that neither finished nor failed, in words.
    """

    cells: tuple[CellResult, ...]
    failed: tuple[str, ...]
    tuned: dict[str, Any]
    by_chance: tuple[str, ...] = ()
    stopped: int = 0
    unfinished: tuple[str, ...] = ()
