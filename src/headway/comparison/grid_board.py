"""The board of a grid at work: how far its runs are, and how long the rest will take."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headway.comparison.estimates import RunProgress, expected, progress_of
from headway.comparison.grid import Grid
from headway.comparison.grid_state import CellState, VariantState
from headway.log import duration
from headway.tables import Cell, Column, Table


@dataclass(frozen=True)
class GridBoard:
    """The part of a grid at work that a user sees.

    Args:
        grid: what is compared.
        variants: how they stand, which changes as their runs begin and end.
    """

    grid: Grid
    variants: Sequence[VariantState]

    def shown(self, slots: int) -> tuple[str, list[str]]:
        """The state of the work: in a few words, and as the lines of a table of the runs that are at work.

        Args:
            slots: how many cells are made at a time.
        """
        runs = [run for state in self.variants for run in state.runs]
        at = [(run, progress_of(run.job.run, run.job.recipe)) for run in runs if run.status == "running"]
        known = self.known_seconds()
        waiting = [expected(state.variant.name, known) for state in self.variants for _ in self._waiting(state)]
        left = sum(progress.left or 0.0 for _, progress in at) + sum(seconds or 0.0 for seconds in waiting)
        failed, done = (sum(run.status in kinds for run in runs) for kinds in (("failed",), ("failed", "finished")))
        parts = [f"{done} of {self.grid.total} cells"] + ([f"{failed} failed"] if failed else [])
        parts += [f"{run.job.name}: update {progress.update:,}" for run, progress in at]
        parts += [f"{duration(left / slots)} left"] if left and None not in waiting else []
        return " · ".join(parts), _table(at).text().splitlines() if at else []

    def _waiting(self, state: VariantState) -> Iterator[CellState | None]:
        """The cells of a variant that are still to be trained, made or not."""
        if state.failed:
            return
        if not state.cells:
            yield from (None for _ in self.grid.config.seeds)
        yield from (cell for cell in state.cells if cell.status == "waiting" and not cell.job.is_trained())

    def known_seconds(self) -> dict[str, list[float]]:
        """The seconds of training of cells by variant, of those whose end is in sight."""
        known: dict[str, list[float]] = {}
        for state in self.variants:
            for cell in state.cells:
                total = progress_of(cell.job.run, cell.job.recipe).total if cell.status != "waiting" else None
                if total is not None:
                    known.setdefault(state.variant.name, []).append(total)
            if state.variant.name not in known:
                known |= self._known_by_tuning(state)
        return known

    def _known_by_tuning(self, state: VariantState) -> dict[str, list[float]]:
        """The seconds of a cell of a variant by the speed of its short runs, where its end is a number of updates."""
        tune, updates = self.grid.config.tune, state.variant.recipe.training.updates
        if tune is None or updates is None:
            return {}
        totals = [progress_of(run.job.run, run.job.recipe).total for run in state.tuning if run.status != "waiting"]
        known = [total * updates / tune.updates for total in totals if total is not None]
        return {state.variant.name: known} if known else {}


def _table(at: Sequence[tuple[CellState, RunProgress]]) -> Table:
    """A row a run that is at work."""
    rows: list[list[Cell]] = [
        [
            run.job.name,
            "decoding" if run.job.is_trained() else "training",
            progress.update,
            progress.loss,
            "" if progress.left is None else duration(progress.left),
        ]
        for run, progress in at
    ]
    named = [Column(name) for name in ("running", "work")]
    return Table([*named, Column("update", format=","), Column("loss", format=".3f"), Column("left")], rows)
