"""Making the cells of a grid: tuned, trained and decoded by workers, and continued where they were stopped."""

import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from pydantic import BaseModel, NonNegativeInt, TypeAdapter

from headway.comparison.cell_process import CellJob
from headway.comparison.cell_results import CellOutput
from headway.comparison.grid import Grid, PlannedRun, Variant
from headway.comparison.grid_board import GridBoard
from headway.comparison.grid_state import CellState, GridResult, VariantState
from headway.comparison.same_data import check_same_data
from headway.comparison.tuning import are_told_apart, best_score, tuning_score
from headway.comparison.workers import Workers
from headway.documents import read_json, shaped
from headway.errors import UserError, option
from headway.files import write_json
from headway.languages import has_no_spaces
from headway.log import Progress, progress, say, warn
from headway.registry import foreign_code, import_paths
from headway.runs.run_folder import RunFolder
from headway.runs.training.run_arithmetic import SharedPrecision, compared_with_run
from headway.runs.training.signals import noted_signals
from headway.storage import locked

CELLS, TUNING, LOGS = "cells", "tuning", "logs"
LOOK = 0.1  # seconds between two looks at the workers
REDRAW = 1.0  # seconds between two looks at the runs' progress


class KeptChoice(BaseModel):
    """The choice of a tuned key, as a file keeps it: what it was made of, and the number of the value."""

    stamp: Any
    chosen: NonNegativeInt


CHOICE = TypeAdapter(KeptChoice)


class GridRun:
    """The cells of a grid in a folder.

    Args:
        grid: what is compared.
        output: the folder: `cells/VARIANT-SEED` are run folders, `tuning/` has the short ones, `logs/` what they said.
        threads: of each process.

    Attributes:
        board: how far they are.

    Raises:
        UserError: a run that is there was made with another recipe.
    """

    def __init__(self, grid: Grid, output: Path, threads: int) -> None:
        self.grid, self.output, self.threads, self._looked = grid, output, threads, 0.0
        self.variants = [
            VariantState(variant, [self._state(run, TUNING) for run in grid.tuning_runs(variant)])
            for variant in grid.variants
        ]
        self.board = GridBoard(grid, self.variants)
        self.precision = SharedPrecision([(run.recipe, output / kind / run.name) for kind, run, _ in self.planned()])
        for state in self.variants:
            for run in state.tuning:
                self._check_same(run.job)
            self._recall(state)
            if not self._settle(state):
                self._check_untuned(state.variant)
        self._check_data()

    def _check_data(self) -> None:
        """Raise UserError where the training data of a variant changed between two of its runs."""
        allowed = f"runs of one training set: remove one of the two, or {option('output')}"
        for state in self.variants:
            check_same_data([(run.job.run, run.job.recipe) for run in state.runs], allowed)

    def _state(self, planned: PlannedRun, kind: str) -> CellState:
        tests = self.grid.tests if kind == CELLS else (self.grid.tuning_set,) if self.grid.tuning_set else ()
        job = CellJob(
            f"{planned.variant}, seed {planned.seed}" if kind == CELLS else f"tuning {planned.name}",
            planned.variant, planned.seed, (self.output / kind / planned.name).absolute(), planned.recipe, tests,
            self.grid.config.predict, self.threads, (self.output / LOGS / f"{kind}-{planned.name}.txt").absolute(),
            page=kind == CELLS,
        )  # fmt: skip
        state = CellState(planned, job)
        state.result = job.result()
        state.status = "waiting" if state.result is None else "finished"
        return state

    def _settle(self, state: VariantState) -> bool:
        """Make the cells of a variant whose tuning is done. Says whether nothing more is needed for that."""
        if state.cells or state.failed:
            return True
        if any(run.status in ("waiting", "running") for run in state.tuning):
            return False
        if state.tuning and not state.chosen:
            self._choose(state)
        if not state.failed:
            state.cells = [self._state(cell, CELLS) for cell in self.grid.cells(state.variant, state.value)]
            for cell in state.cells:
                self._check_same(cell.job)
        return True

    def _choice_file(self, state: VariantState) -> Path:
        return self.output / TUNING / f"{state.variant.name}.json"

    def _recall(self, state: VariantState) -> None:
        """Take over the choice of an earlier call, which stands although a short run had failed."""
        path = self._choice_file(state)
        if not path.is_file():
            return
        known = shaped(read_json(path, what="choice"), CHOICE, str(path), "this choice")
        if known.stamp == self._stamp(state) and known.chosen < len(state.by_value):
            state.value, state.chosen = state.by_value[known.chosen][0].planned.value, True
            if missing := [run.planned.name for run in state.tuning if run.result is None]:
                what = f"the choice of {state.value} stands without results of {', '.join(missing)}, as after a failure"
                warn(f"{state.variant.name}: {what}; without {path} they are tried again")
            for run in state.tuning:
                run.status = "finished"

    def _choose(self, state: VariantState) -> None:
        """Choose the best value of the tuned key for a variant, and keep the choice.

        A value with which training fails has lost, with whatever seed. A short run that was killed has not been tried:
        nothing is chosen.
        """
        metric, tune = self.grid.metrics_of()[0], self.grid.config.tune
        assert tune is not None
        killed = [run.job.name for run in state.tuning if run.status == "failed" and run.signal]
        tried = map(_outputs, state.by_value)
        scores = [None if outputs is None else tuning_score(outputs, metric) for outputs in tried]
        if killed or not any(score is not None for score in scores):
            why = f"{', '.join(killed)} was killed" if killed else "short runs failed with every value"
            state.failed = f"{state.variant.name}: not tuned, since {why}"
            return
        losses = [_loss(runs) for runs in state.by_value]
        chosen = best_score(scores, losses, metric)
        choice = {"stamp": self._stamp(state), "chosen": chosen, metric.label: scores, "dev_loss": losses}
        write_json(self._choice_file(state), choice)
        state.value, state.chosen = state.by_value[chosen][0].planned.value, True
        say(f"{state.variant.name}: {tune.key} {state.value} has the best {metric.label} of the short runs")
        if not self._is_told_apart(state):
            known = [score for score in scores if score is not None]
            spread = f"{metric.label} from {min(known):.2f} to {max(known):.2f}"
            warn(f"{state.variant.name}: the short runs do not tell the values apart ({spread})")

    def _stamp(self, state: VariantState) -> dict[str, Any]:
        """The ground of a choice: the metric, and the short runs of a variant with what their results are of."""
        runs = [
            [run.planned.name, run.job.recipe.model_dump(mode="json"), run.job.stamp()["tests"]] for run in state.tuning
        ]
        language = state.variant.recipe.text.target.language
        named = {"language": language} if has_no_spaces(language) else {}
        return {"metric": named | self.grid.metrics[0], "runs": runs}

    def _is_told_apart(self, state: VariantState) -> bool:
        """Whether the short runs of a variant tell the values of the tuned key apart."""
        tried = map(_outputs, state.by_value)
        return are_told_apart([outputs for outputs in tried if outputs is not None], self.grid.metrics_of()[0])

    def _check_untuned(self, variant: Variant) -> None:
        """Raise UserError for cells that were made with another recipe, whatever tuning will say."""
        tune = self.grid.config.tune
        assert tune is not None
        for cell in self.grid.cells(variant, tune.values[0]):
            self._check_same(self._state(cell, CELLS).job, but=tune.key)

    def _check_same(self, job: CellJob, but: str = "") -> None:
        """Raise UserError where a run was made with another recipe, apart from the key `but`."""
        folder = RunFolder(job.run)
        if not folder.recipe_file.exists():
            return
        with foreign_code(bool(import_paths(job.recipe.model_dump(mode="json")))):
            _, changes = compared_with_run(folder, self.precision.given(job.recipe))
        others = {key: values for key, values in changes.items() if not but or not f"{key}.".startswith(f"{but}.")}
        if others:
            shown = "; ".join(f"{key}: {old!r} -> {new!r}" for key, (old, new) in others.items())
            allowed = f"the grid that it was made with, or another folder for {option('output')}"
            raise UserError(f"this cell was made with another recipe ({shown})", where=str(job.run), allowed=allowed)

    def all(self) -> list[CellState]:
        """All runs that are known: short ones and cells."""
        return [run for state in self.variants for run in state.runs]

    def ready(self) -> list[CellState]:
        """The runs that can be begun: short ones first, then a seed of all variants after the other."""
        tuning = [run for state in self.variants for run in state.tuning]
        cells = sorted((cell for state in self.variants for cell in state.cells), key=self._order)
        return [run for run in (*tuning, *cells) if run.status == "waiting"]

    def _order(self, cell: CellState) -> int:
        return self.grid.config.seeds.index(cell.planned.seed)

    def result(self, stopped: int = 0) -> GridResult:
        """The results and failures so far. A short run that failed has only lost, where another value is chosen."""
        finished = [cell.result for state in self.variants for cell in state.cells if cell.result is not None]
        needed = [run for state in self.variants for run in (state.cells if state.chosen else state.runs)]
        failed = [_failure(run) for run in needed if run.status == "failed"]
        failed += [state.failed for state in self.variants if state.failed]
        chosen = [state for state in self.variants if state.tuning and state.cells]
        tuned = {state.variant.name: state.value for state in chosen}
        by_chance = [] if stopped else [state.variant.name for state in chosen if not self._is_told_apart(state)]
        return GridResult(tuple(finished), tuple(failed), tuned, tuple(by_chance), stopped, tuple(self._unfinished()))

    def _unfinished(self) -> Iterator[str]:
        """The cells that neither finished nor failed; the name of a variant where it is not tuned yet."""
        for state in self.variants:
            yield from (cell.job.name for cell in state.cells if cell.status in ("waiting", "running"))
            if not state.cells and not state.failed:
                yield f"{state.variant.name}, all seeds"

    def run(self, workers: Workers) -> GridResult:
        """Make all that is missing.

        A cell that fails ends no other. After SIGINT or SIGTERM, those that are at work save and end; the next call
        goes on with them.

        Raises:
            RunError: another call is at work in the same folder.
            UserError: the training data has changed between two runs of a variant.
        """
        self.output.mkdir(parents=True, exist_ok=True)
        with locked(self.output / ".lock"), noted_signals() as signals:
            try:
                with progress(f"comparing in {self.output}", self.grid.total, "cells") as line:
                    while not self.is_done():
                        if signals.received is not None:
                            self._end_all()
                            return self.result(signals.received)
                        self._begin(workers)
                        self._look(line, workers.slots)
                        time.sleep(LOOK)
            finally:
                for run in self.all():
                    if run.worker is not None:
                        run.worker.kill()
        self._check_data()
        return self.result()

    def planned(self) -> Iterator[tuple[str, PlannedRun, bool]]:
        """All runs: the name of their folder, what they are, and whether they are finished.

        The cells of a variant that is not tuned yet have any of the values.
        """
        for state in self.variants:
            yield from ((TUNING, run.planned, run.status == "finished") for run in state.tuning)
        tune = self.grid.config.tune
        for state in self.variants:
            if state.cells:
                yield from ((CELLS, cell.planned, cell.status == "finished") for cell in state.cells)
            else:
                cells = self.grid.cells(state.variant, None if tune is None else tune.values[0])
                yield from ((CELLS, cell, False) for cell in cells)

    def is_done(self) -> bool:
        """Whether nothing is left to be made."""
        return all(map(self._settle, self.variants)) and all(run.status in ("finished", "failed") for run in self.all())

    def _begin(self, workers: Workers) -> None:
        """Give work to the free workers, in one precision where recipes leave it open."""
        running = sum(run.status == "running" for run in self.all())
        for run in self.ready()[: max(0, workers.slots - running)]:
            run.job.run.parent.mkdir(parents=True, exist_ok=True)
            job = replace(run.job, recipe=self.precision.given(run.job.recipe))
            run.worker, run.status = workers.start(job), "running"

    def _look(self, line: Progress, slots: int) -> None:
        """See which runs have ended, and show how far the others are."""
        ended = False
        for run in self.all():
            code = run.worker.code() if run.worker is not None else None
            if code is not None:
                run.worker, ended = None, True
                run.result = run.job.result() if code == 0 else None
                run.status, run.code = ("failed" if run.result is None else "finished"), code
                if run.status == "failed":
                    warn(_failure(run))
        if ended or time.monotonic() - self._looked >= REDRAW:
            self._looked = time.monotonic()
            done = sum(run.status in ("finished", "failed") for run in self.all())
            text, below = self.board.shown(slots)
            line.update(done, text, below=below)

    def _end_all(self) -> None:
        """Ask all workers to save and end, and wait for that."""
        running = [run for run in self.all() if run.worker is not None]
        say(f"stopping: {len(running)} cells save what they have")
        for run in running:
            assert run.worker is not None
            run.worker.stop()
        for run in running:
            while run.worker is not None and run.worker.code() is None:
                time.sleep(LOOK)
            run.worker, run.status = None, "waiting"


def _outputs(runs: Sequence[CellState]) -> list[CellOutput] | None:
    """The outputs of the short runs of a value, one a seed; None where one of them failed."""
    outputs = [run.result.outputs[0] for run in runs if run.result is not None]
    return outputs if len(outputs) == len(runs) else None


def _loss(runs: Sequence[CellState]) -> float | None:
    """The mean loss on dev of the short runs of a value, one a seed; None where one of them has none."""
    losses = []
    for run in runs:
        kept = RunFolder(run.job.run).read_manifest().get("averaged_updates", [])
        curve = () if run.result is None else run.result.curve
        losses += [point.scores["loss"] for point in curve if point.update in kept[-1:] and "loss" in point.scores]
    return fmean(losses) if len(losses) == len(runs) else None


def _failure(run: CellState) -> str:
    """The failure of a run in words."""
    how = f"exit code {run.code}"
    if run.signal:
        with suppress(ValueError):
            how = f"killed by {signal.Signals(run.signal).name}"
    said = [line for line in _lines(run.job.log) if line.strip()]
    last = f": {said[-1].removeprefix('error: ')}" if said else ""
    return f"{run.job.name}: failed ({how}){last}; {run.job.log}"


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
