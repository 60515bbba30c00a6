"""Running the cells of a grid: an executor tunes, trains and decodes them, and resumes those that were stopped."""

import json
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import groupby
from math import comb, inf
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, NonNegativeInt, TypeAdapter

from headway.comparison.cells import CellOutput, CellResult, check_same_data
from headway.comparison.executors import CellExecutor
from headway.core.documents import read_json, shaped
from headway.core.errors import UserError, option
from headway.core.files import write_json
from headway.core.languages import has_no_spaces
from headway.core.log import Progress, duration, progress, say, warn
from headway.core.registry import foreign_code, import_paths
from headway.core.storage import locked
from headway.core.tables import Cell, Column, Table
from headway.grids.checks import Check, neighbour_of
from headway.grids.grid import (
    CELLS,
    CHECKS,
    TUNING,
    CellGroup,
    CellJob,
    Grid,
    PlannedRun,
    RunKind,
    check_tuned,
    edge_of,
    slug,
)
from headway.metrics import Metric
from headway.metrics.intervals import SIGNIFICANT, linearise
from headway.metrics.metric import rank
from headway.recipe import Recipe
from headway.runs.run import open_run
from headway.runs.run_folder import RunFolder
from headway.training.arithmetic import SharedPrecision, compared_with_run
from headway.training.parallel import noted_signals

COUNTED = ("update", "epoch", "seconds")  # in each line of metrics.jsonl
TAIL = 8192  # bytes at the end of metrics.jsonl; they hold at least two lines
LOOK = 0.1  # seconds between checks of the workers
REDRAW = 1.0  # seconds between updates of the progress display


@dataclass(frozen=True)
class RunProgress:
    """The progress of a run's training: the last logged update, and the completed share from 0 to 1."""

    update: int
    share: float
    seconds: float
    loss: float | None = None

    @property
    def total(self) -> float | None:
        """The estimated seconds of the whole training; None before there is progress."""
        return self.seconds / self.share if self.share > 0 else None

    @property
    def left(self) -> float | None:
        """The estimated seconds of training that remain."""
        return None if self.total is None else self.total - self.seconds


def progress_of(run: Path, recipe: Recipe) -> RunProgress:
    """The progress of a run, from the complete lines at the end of its metrics.jsonl, which may still be growing."""
    try:
        with RunFolder(run).metrics.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
            lines = file.read().decode("utf-8", "ignore").split("\n")[:-1]
    except OSError:
        lines = []
    entries = []
    for line in lines:
        with suppress(ValueError):  # the first line may be truncated
            entry = json.loads(line)
            if isinstance(entry, dict) and all(isinstance(entry.get(key), int | float) for key in COUNTED):
                entries.append(entry)
    if not entries:
        return RunProgress(0, 0.0, 0.0)
    last, config = entries[-1], recipe.training
    ends = ((config.updates, last["update"]), (config.epochs, last["epoch"]), (config.minutes, last["seconds"] / 60))
    share = max((done / end for end, done in ends if end), default=0.0)
    losses = [entry["loss"] for entry in entries if "loss" in entry]
    return RunProgress(last["update"], min(1.0, share), last["seconds"], losses[-1] if losses else None)


def tuning_score(outputs: Sequence[CellOutput], metric: Metric) -> float:
    """The mean score of the short runs of a value, with one output per seed."""
    return fmean(metric.score(*output.scored).value for output in outputs)


def best_score(scores: Sequence[float | None], losses: Sequence[float | None], metric: Metric) -> int:
    """The index of the best score; ties go to the lowest dev loss. A score is None if training failed."""
    known = {index: score for index, score in enumerate(scores) if score is not None}
    return min(known, key=lambda index: rank(known[index], losses[index], higher_is_better=metric.higher_is_better))


def are_told_apart(values: Sequence[Sequence[CellOutput]], metric: Metric) -> bool:
    """Whether the best and the worst value differ significantly over their segments. True for a single value.

    The outputs of all seeds are summed per segment, because seeds make errors on the same segments. The best and the
    worst value are the most distant of all pairs, so the level is adjusted by the number of pairs (Bonferroni). The
    variation between seeds is ignored: it may still explain the difference.
    """
    if len(values) < 2:
        return True
    every = [
        linearise(metric, [np.sum([metric.counted(*one.scored) for one in outputs], axis=0)]) for outputs in values
    ]
    lowest, *_, highest = sorted(every, key=lambda linear: float(linear.scores[0]))
    low, high = (highest - lowest).estimate().interval(1 - SIGNIFICANT / comb(len(every), 2))
    return not low <= 0 <= high


def make_cell(job: CellJob) -> int:
    """Make a cell in a new process. Returns the exit code of `headway train`."""
    from headway.grids.run import run_cell  # keeps the waiting process small

    return run_cell(job)


@dataclass
class CellState:
    """A run of the grid and its status. `call`: the running call. `code`: the exit code of a failed run."""

    job: CellJob
    status: Literal["waiting", "running", "finished", "failed"] = "waiting"
    call: Future[int] | None = None
    result: CellResult | None = None
    code: int = 0

    @property
    def signal(self) -> int:
        """The number of the signal that ended a failed run, before or after it saved; 0 if there was no signal."""
        return max(0, -self.code, self.code - 128)


@dataclass
class GroupState:
    """The state of a group: the short runs, the value that they choose, the cells with this value, and its check."""

    group: CellGroup
    tuning: list[CellState]
    cells: list[CellState] = field(default_factory=list)
    check: CellState | None = None
    value: Any = None
    chosen: bool = False
    failed: str = ""

    @property
    def by_value(self) -> list[list[CellState]]:
        """The short runs, grouped by their value of the tuned key."""
        return [list(runs) for _, runs in groupby(self.tuning, key=lambda run: run.job.planned.value)]

    @property
    def tried(self) -> tuple[Any, ...]:
        """The values of the short runs: those of the grid, followed by those beyond them."""
        return tuple(runs[0].job.planned.value for runs in self.by_value)

    @property
    def runs(self) -> list[CellState]:
        """All known runs: short runs, cells and the check."""
        return [*self.tuning, *self.cells, *([self.check] if self.check else [])]


@dataclass(frozen=True)
class Choice:
    """The value of the tuned key that was chosen for cells of a variant.

    `by_chance`: whether the short runs, if they choose for all seeds at once, show no significant difference.
    """

    variant: str
    seeds: tuple[int, ...]
    value: Any
    tried: tuple[Any, ...]
    by_chance: bool = False

    @property
    def edge(self) -> Literal["lowest", "highest", ""]:
        """Whether the value is the lowest or the highest that was tried; empty if it is neither."""
        return edge_of(self.tried, self.value)


@dataclass(frozen=True)
class GridResult:
    """The finished cells of a grid, the `failed` and `unfinished` cells as text, and the choices of the tuned key.

    `checks`: those that are finished. `stopped`: the number of the signal that ended the work; 0 without a signal.
    """

    cells: tuple[CellResult, ...]
    failed: tuple[str, ...]
    choices: tuple[Choice, ...] = ()
    stopped: int = 0
    unfinished: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()


class KeptChoice(BaseModel):
    """The stored choice of a tuned key: a stamp of its inputs, and the index of the chosen value.

    `seed`: of the cell that it is for; None if it is for all seeds. `grown`: the values beyond the grid's.
    """

    stamp: Any
    chosen: NonNegativeInt
    seed: int | None = None
    grown: tuple[Any, ...] = ()


class GridRun:
    """The cells of a grid in a folder. Raises UserError if an existing run was made with another recipe."""

    def __init__(self, grid: Grid, output: Path, threads: int) -> None:
        self.output, self.threads, self._looked = output, threads, 0.0
        self.grid = grid = self._as_begun(grid)
        self._shares = {variant.name: grid.short_share(variant) for variant in grid.variants}
        tune, groups = grid.config.tune, [group for variant in grid.variants for group in grid.groups_of(variant)]
        first = tune and tune.values[0]
        runs = [(run.recipe, output / TUNING / run.name) for group in groups for run in grid.tuning_runs(group)]
        runs += [(cell.recipe, output / CELLS / cell.name) for group in groups for cell in grid.cells(group, first)]
        self.precision = SharedPrecision(runs)
        self.groups = [GroupState(group, self._short_runs(group)) for group in groups]
        for state in self.groups:
            self._recall(state)
            if not self._settle(state):  # check the recipes of existing cells before tuning
                for cell in grid.cells(state.group, first):
                    self._state(cell, CELLS, but=tune.key if tune else "")
        self._plan_checks()
        self._check_data()

    def _as_begun(self, grid: Grid) -> Grid:
        """The grid, tuned by variant if it does not say how to tune and its folder was begun so."""
        tune, known = grid.config.tune, [self._kept_choice(variant.name) for variant in grid.variants]
        if tune is None or "by" in tune.model_fields_set or not any(kept and kept.seed is None for kept in known):
            return grid
        say(f"{self.output} was begun with one value of {tune.key} a variant, and goes on so (tune.by=variant)")
        by_variant = tune.model_copy(update={"by": "variant"})
        return replace(grid, config=grid.config.model_copy(update={"tune": by_variant}))

    def _check_data(self) -> None:
        """Raise UserError if the training data of a variant changed between two of its runs."""
        allowed = f"runs of one training set: remove one of the two, or {option('output')}"
        for variant in self.grid.variants:
            runs = [run for state in self.groups if state.group.variant is variant for run in state.runs]
            check_same_data([(run.job.run, run.job.planned.recipe) for run in runs], allowed)

    def _state(self, planned: PlannedRun, kind: RunKind, but: str = "", beside: Path | None = None) -> CellState:
        """The state of a run. Raises UserError if it was made with another recipe, apart from the key `but`."""
        tests = self.grid.tests if kind == CELLS else (self.grid.tuning_set,) if self.grid.tuning_set else ()
        job = CellJob(planned, kind, self.output.absolute(), tests, self.grid.config.predict, self.threads, beside)
        self._check_same(job, but)
        result = job.result()
        return CellState(job, "waiting" if result is None else "finished", result=result)

    def _short_runs(self, group: CellGroup, values: Sequence[Any] | None = None) -> list[CellState]:
        return [self._state(run, TUNING) for run in self.grid.tuning_runs(group, values)]

    def _settle(self, state: GroupState) -> bool:
        """Plan the cells of a group once its tuning is complete. Returns whether the tuning is complete."""
        if state.cells:
            return True
        while state.tuning and not (state.chosen or state.failed):
            if any(run.status in ("waiting", "running") for run in state.tuning):
                return False
            self._choose(state)
        if not state.failed:
            state.cells = [self._state(cell, CELLS) for cell in self.grid.cells(state.group, state.value)]
        return True

    def _checked_groups(self) -> Iterator[GroupState]:
        """The first group of each value that a variant chose, but for edges; of variants that have chosen all."""
        if self.grid.config.tune is None or not self.grid.config.tune.check:
            return
        for _, of_variant in groupby(self.groups, key=lambda state: state.group.variant.name):
            states = [state for state in of_variant if not state.failed]
            if all(state.chosen for state in states):
                first = {slug(state.value): state for state in reversed(states)}
                yield from (state for state in first.values() if not edge_of(state.tried, state.value))

    def _plan_checks(self) -> None:
        """Plan the checks whose cells are finished."""
        for state in self._checked_groups():
            if state.check is None and state.cells[0].status == "finished":
                check = self.grid.check(state.group, self._neighbour(state))
                state.check = self._state(check, CHECKS, beside=state.cells[0].job.run)

    def _neighbour(self, state: GroupState) -> Any:
        """The value that is checked beside the chosen one."""
        tune, metric, scores = self.grid.config.tune, self.grid.metrics_of()[0], dict[str, float]()
        assert tune is not None
        for value, outputs in zip(state.tried, map(_outputs, state.by_value), strict=True):
            score = None if outputs is None else tuning_score(outputs, metric)
            scores[slug(value)] = -inf if score is None else score if metric.higher_is_better else -score
        return neighbour_of(tune.key, state.tried, state.value, lambda value: scores[slug(value)])

    def _finished_checks(self) -> Iterator[Check]:
        """The checks that are finished, with the short runs of their values."""
        for state in self.groups:
            if state.check is None or state.check.result is None:
                continue
            name, chosen, planned = state.group.variant.name, slug(state.value), state.check.job.planned
            alike = [other for other in self.groups if other.group.variant.name == name]
            seeds = sum(len(other.group.seeds) for other in alike if other.chosen and slug(other.value) == chosen)
            short = [
                run.result.outputs[0]
                for other in alike for run in other.tuning
                if run.result is not None and slug(run.job.planned.value) == chosen
            ]  # fmt: skip
            share, (better, beside) = seeds / len(self.grid.config.seeds), state.check.result.outputs
            yield Check(name, share, state.value, planned.value, planned.seed, (better, beside), tuple(short))

    def still_checks(self) -> int:
        """The largest number of checks that are not planned yet."""
        if self.grid.config.tune is None or not self.grid.config.tune.check:
            return 0
        choosing = {state.group.variant.name for state in self.groups if not (state.chosen or state.failed)}
        known = [state for state in self._checked_groups() if state.check is None]
        return sum(state.group.variant.name in choosing for state in self.groups) + sum(
            state.cells[0].status != "failed" for state in known
        )

    def _choice_file(self, name: str) -> Path:
        return self.output / TUNING / f"{name}.json"

    def _kept_choice(self, name: str) -> KeptChoice | None:
        """The stored choice of an earlier call; None if there is none."""
        path = self._choice_file(name)
        if not path.is_file():
            return None
        return shaped(read_json(path, what="choice"), TypeAdapter(KeptChoice), str(path), "this choice")

    def _recall(self, state: GroupState) -> None:
        """Restore the choice of an earlier call. It is valid even if a short run failed."""
        known = self._kept_choice(state.group.name)
        if known is None or known.seed != state.group.seed or known.stamp != self._stamp(state):
            return
        grown = self._short_runs(state.group, known.grown)
        if known.chosen >= len(state.tried) + len(known.grown):
            return
        state.tuning += grown
        state.value, state.chosen = state.tried[known.chosen], True
        if missing := [run.job.planned.name for run in state.tuning if run.result is None]:
            what = f"the choice of {state.value} stands without results of {', '.join(missing)}, as after a failure"
            warn(f"{state.group.title}: {what}; without {self._choice_file(state.group.name)} they are tried again")
        for run in state.tuning:
            run.status = "finished"

    def _choose(self, state: GroupState) -> None:
        """Choose the best value of the tuned key for a group and store the choice, or try a further value first.

        A learning rate with a diverged run is discarded, whatever the seed. If a short run was killed, nothing is
        chosen.
        """
        metric, tune, title = self.grid.metrics_of()[0], self.grid.config.tune, state.group.title
        assert tune is not None
        killed = [run.job.name for run in state.tuning if run.status == "failed" and run.signal]
        scores = [None if found is None else tuning_score(found, metric) for found in map(_outputs, state.by_value)]
        if killed or not any(score is not None for score in scores):
            why = f"{', '.join(killed)} was killed" if killed else "short runs failed with every value"
            state.failed = f"{title}: not tuned, since {why}"
            return
        losses = [_loss(runs) for runs in state.by_value]
        chosen = best_score(scores, losses, metric)
        value, grown = state.tried[chosen], state.tried[len(tune.values) :]
        if further := self._further(state, value):
            edge = edge_of(state.tried, value)
            say(f"{title}: {tune.key} {value:g} is the best, and the {edge}: {further[0].job.planned.value:g} is tried")
            state.tuning += further
            return
        stamp = self._stamp(state)
        choice = {"stamp": stamp, "chosen": chosen, metric.label: scores, "dev_loss": losses, "grown": grown}
        if state.group.seed is not None:
            choice["seed"] = state.group.seed
        write_json(self._choice_file(state.group.name), choice)
        state.value, state.chosen = value, True
        say(f"{title}: {tune.key} {value} has the best {metric.label} of the short runs")
        if self._is_by_chance(state):
            known = [score for score in scores if score is not None]
            spread = f"{metric.label} from {min(known):.2f} to {max(known):.2f}"
            warn(f"{title}: the short runs do not tell the values apart ({spread})")

    def _further(self, state: GroupState, value: Any) -> list[CellState]:
        """The short runs with the next value beyond the best one. Empty if this is not at an edge, or cannot grow."""
        tune = self.grid.config.tune
        assert tune is not None
        for further in tune.beyond(state.tried, value):
            try:
                planned = self.grid.tuning_runs(state.group, [further])
                for run in planned:
                    check_tuned(run.recipe, tune.key)
            except UserError:  # the value is not allowed
                continue
            return [self._state(run, TUNING) for run in planned]
        return []

    def _stamp(self, state: GroupState) -> dict[str, Any]:
        """The inputs of a choice: the metric, and the short runs with the grid's values and their test sets."""
        tune = self.grid.config.tune
        given = 0 if tune is None else len(tune.values) * len(state.group.tuning_seeds)
        runs = [
            [run.job.planned.name, run.job.planned.recipe.model_dump(mode="json"), run.job.stamp()["tests"]]
            for run in state.tuning[:given]
        ]
        language = state.group.variant.recipe.text.target.language
        named = {"language": language} if has_no_spaces(language) else {}
        return {"metric": named | self.grid.metrics[0], "runs": runs}

    def _is_by_chance(self, state: GroupState) -> bool:
        """Whether the short runs that choose for all seeds show no significant difference between values.

        If each seed has its own choice, the variance between seeds includes the chance of the choice.
        """
        known = [outputs for outputs in map(_outputs, state.by_value) if outputs is not None]
        return state.group.seed is None and not are_told_apart(known, self.grid.metrics_of()[0])

    def _check_same(self, job: CellJob, but: str) -> None:
        """Raise UserError if a run was made with another recipe, apart from the key `but`."""
        folder = RunFolder(job.run)
        if not folder.recipe_file.exists():
            return
        recipe = job.planned.recipe
        with foreign_code(bool(import_paths(recipe.model_dump(mode="json")))):
            _, changes = compared_with_run(folder, self.precision.given(recipe))
        others = {key: values for key, values in changes.items() if not f"{key}.".startswith(f"{but}.")}
        if others:
            shown = "; ".join(f"{key}: {old!r} -> {new!r}" for key, (old, new) in others.items())
            allowed = f"the grid that it was made with, or another folder for {option('output')}"
            raise UserError(f"this cell was made with another recipe ({shown})", where=str(job.run), allowed=allowed)

    def all(self) -> list[CellState]:
        return [run for state in self.groups for run in state.runs]

    def ready(self) -> list[CellState]:
        """The runs that can start, seed by seed over all variants, with short runs before cells, and checks last.

        Short runs that choose for all seeds come first.
        """
        seeds = self.grid.config.seeds

        def place(state: GroupState, run: CellState) -> int:
            if run.job.kind == CHECKS:
                return len(seeds)
            return seeds.index(run.job.planned.seed) if run.job.kind == CELLS or state.group.seed is not None else -1

        runs = [(place(state, run), run) for state in self.groups for run in state.runs if run.status == "waiting"]
        return [run for _, run in sorted(runs, key=lambda entry: (entry[0], entry[1].job.kind == CELLS))]

    def result(self, stopped: int = 0) -> GridResult:
        """The results and failures so far. A failed short run is no failure if another value was chosen."""
        finished = [cell.result for state in self.groups for cell in state.cells if cell.result is not None]
        needed = [run for state in self.groups for run in state.runs if not (state.chosen and run.job.kind == TUNING)]
        failed = [_failure(run) for run in needed if run.status == "failed"]
        failed += [state.failed for state in self.groups if state.failed]
        choices = [
            Choice(
                state.group.variant.name, state.group.seeds, state.value, state.tried,
                not stopped and self._is_by_chance(state),
            )
            for state in self.groups if state.tuning and state.cells
        ]  # fmt: skip
        unfinished = list[str]()
        for state in self.groups:
            unfinished += [cell.job.name for cell in state.cells if cell.status in ("waiting", "running")]
            if not state.cells and not state.failed:
                unfinished.append(state.group.title + (", all seeds" if state.group.seed is None else ""))
        checks = tuple(self._finished_checks())
        return GridResult(tuple(finished), tuple(failed), tuple(choices), stopped, tuple(unfinished), checks)

    def run(self, executor: CellExecutor) -> GridResult:
        """Run all missing cells.

        A failed cell does not stop others. After SIGINT or SIGTERM, running cells save and stop; the next call resumes
        them.

        Raises:
            RunError: another process is working in the folder.
            UserError: the training data changed between two runs of a variant.
        """
        self.output.mkdir(parents=True, exist_ok=True)
        with locked(self.output / ".lock"), noted_signals() as signals:
            try:
                with progress(f"comparing in {self.output}", self.total[1], "cells") as line:
                    while not self.is_done():
                        if signals.received is not None:
                            self._end_all()
                            return self.result(signals.received)
                        self._begin(executor)
                        self._look(line, executor.slots)
                        time.sleep(LOOK)
            finally:
                executor.shutdown(cancel_futures=True)
        self._check_data()
        return self.result()

    def planned(self) -> Iterator[tuple[str, PlannedRun, bool]]:
        """All runs: the name of their folder, the planned run, and whether it is finished.

        If a variant is not tuned yet, its cells have an arbitrary value.
        """
        for state in self.groups:
            yield from ((TUNING, run.job.planned, run.status == "finished") for run in state.tuning)
        tune = self.grid.config.tune
        for state in self.groups:
            if state.cells:
                yield from ((CELLS, cell.job.planned, cell.status == "finished") for cell in state.cells)
            else:
                cells = self.grid.cells(state.group, None if tune is None else tune.values[0])
                yield from ((CELLS, cell, False) for cell in cells)
        checks = (state.check for state in self.groups if state.check is not None)
        yield from ((CHECKS, check.job.planned, check.status == "finished") for check in checks)

    def still_grows(self, state: GroupState) -> int:
        """The largest number of further short runs that a group may need if its best value is at an edge."""
        tune = self.grid.config.tune
        if tune is None or not tune.grows or state.chosen or state.failed:
            return 0
        return (tune.grow + len(tune.values) - len(state.tried)) * len(state.group.tuning_seeds)

    @property
    def total(self) -> tuple[int, int]:
        """The number of all runs, and the largest number that it may grow to."""
        known = sum(len(state.tuning) + len(state.group.seeds) + (state.check is not None) for state in self.groups)
        return known, known + sum(map(self.still_grows, self.groups)) + self.still_checks()

    def is_done(self) -> bool:
        """Whether all runs are finished or failed."""
        settled = [self._settle(state) for state in self.groups]
        self._plan_checks()
        return all(settled) and all(run.status in ("finished", "failed") for run in self.all())

    def _begin(self, executor: CellExecutor) -> None:
        """Start as many runs as there is room for, with the same precision if recipes leave it open."""
        running = sum(run.status == "running" for run in self.all())
        for run in self.ready()[: max(0, executor.slots - running)]:
            run.job.run.parent.mkdir(parents=True, exist_ok=True)
            planned = run.job.planned
            job = replace(run.job, planned=replace(planned, recipe=self.precision.given(planned.recipe)))
            run.call, run.status = executor.submit(make_cell, job), "running"

    def _look(self, line: Progress, slots: int) -> None:
        """Check which runs have ended, and show the progress of the others."""
        ended = False
        for run in self.all():
            if run.call is not None and run.call.done():
                error = run.call.exception()
                code = run.call.result() if error is None else error.args[0]
                run.call, ended = None, True
                run.result = run.job.result() if code == 0 else None
                run.status, run.code = ("failed" if run.result is None else "finished"), code
                if run.status == "failed":
                    warn(_failure(run))
        if ended or time.monotonic() - self._looked >= REDRAW:
            self._looked = time.monotonic()
            done = sum(run.status in ("finished", "failed") for run in self.all())
            text, below = self.shown(slots)
            line.update(done, text, total=self.total[1], below=below)

    def shown(self, slots: int) -> tuple[str, list[str]]:
        """The state of the work with `slots` workers: a summary, and the lines of a table of running cells."""
        runs, known, waiting, beyond = self.all(), self.known_seconds(), list[float | None](), 0.0
        for state in self.groups:
            whole, short = (self.seconds_of(kind, state.group.variant.name, known) for kind in (CELLS, TUNING))
            for some, seconds in ((state.tuning, short), (state.runs[len(state.tuning) :], whole)):
                waiting += [seconds for run in some if run.status == "waiting" and not run.job.is_trained()]
            waiting += [] if state.cells or state.failed else [whole] * len(state.group.seeds)
            beyond += (short or 0.0) * self.still_grows(state)
        beyond += (self.seconds_of(CHECKS, "", known) or 0.0) * self.still_checks()
        at = [(run, _progress(run)) for run in runs if run.status == "running"]
        left = sum(progress.left or 0.0 for _, progress in at) + sum(seconds or 0.0 for seconds in waiting) + beyond
        failed, done = (sum(run.status in kinds for run in runs) for kinds in (("failed",), ("failed", "finished")))
        total, most = self.total
        up_to = "up to " if most > total else ""
        parts = [f"{done} of {up_to}{most} cells"] + ([f"{failed} failed"] if failed else [])
        parts += [f"{run.job.name}: update {progress.update:,}" for run, progress in at]
        parts += [f"{up_to}{duration(left / slots)} left"] if left and None not in waiting else []
        rows: list[list[Cell]] = [
            [
                run.job.name, "decoding" if run.job.is_trained() else "training", progress.update, progress.loss,
                "" if progress.left is None else duration(progress.left),
            ]
            for run, progress in at
        ]  # fmt: skip
        update, loss = Column("update", format=","), Column("loss", format=".3f")
        table = Table(["running", "work", update, loss, "left"], rows)
        return " · ".join(parts), table.text().splitlines() if at else []

    def known_seconds(self) -> dict[str, list[float]]:
        """By variant, the training seconds of cells that are finished or have progressed.

        Without such cells, they are estimated from the speed of short runs.
        """
        known = dict[str, list[float]]()
        for name, short in self._shares.items():
            runs = [run for run in self.all() if run.job.planned.variant == name and run.status != "waiting"]
            for kind, share in ((CELLS, 1.0), (CHECKS, 1.0), (TUNING, short)):
                totals = [_progress(run).total for run in runs if run.job.kind == kind]
                seconds = [total / share for total in totals if total is not None]
                if seconds:
                    known[name] = seconds
                    break
        return known

    def seconds_of(self, kind: str, variant: str, known: Mapping[str, Sequence[float]]) -> float | None:
        """The expected seconds of a run: the mean over the variant's known runs, or else over all known runs."""
        seconds = known.get(variant) or [value for values in known.values() for value in values]
        return fmean(seconds) * (self._shares[variant] if kind == TUNING else 1.0) if seconds else None

    def _end_all(self) -> None:
        """Ask all workers to save and stop, and wait for them."""
        running = [(run, run.call) for run in self.all() if run.call is not None]
        say(f"stopping: {len(running)} cells save what they have")
        for _, call in running:
            call.cancel()
        while not all(call.done() for _, call in running):
            time.sleep(LOOK)
        for run, _ in running:
            run.call, run.status = None, "waiting"


def _progress(run: CellState) -> RunProgress:
    return progress_of(run.job.run, run.job.planned.recipe)


def _outputs(runs: Sequence[CellState]) -> list[CellOutput] | None:
    """The outputs of the short runs of a value, one per seed; None if any of them failed."""
    outputs = [run.result.outputs[0] for run in runs if run.result is not None]
    return outputs if len(outputs) == len(runs) else None


def _loss(runs: Sequence[CellState]) -> float | None:
    """The mean dev loss of the short runs of a value; None if any of them has none."""
    losses = []
    for run in runs:
        kept = open_run(run.job.run).manifest.get("averaged_updates", [])
        curve = () if run.result is None else run.result.curve
        losses += [point.scores["loss"] for point in curve if point.update in kept[-1:] and "loss" in point.scores]
    return fmean(losses) if len(losses) == len(runs) else None


def _failure(run: CellState) -> str:
    """The failure of a run as text."""
    how = f"exit code {run.code}"
    if run.signal:
        with suppress(ValueError):
            how = f"killed by {signal.Signals(run.signal).name}"
    said = []
    with suppress(OSError):
        lines = run.job.log.read_text(encoding="utf-8", errors="replace").splitlines()
        said = [line for line in lines if line.strip()]
    last = f": {said[-1].removeprefix('error: ')}" if said else ""
    return f"{run.job.name}: failed ({how}){last}; {run.job.log}"
