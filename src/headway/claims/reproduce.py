"""`headway reproduce`: decide the claims of a document with runs of its variants, on data that its commands prepare."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import psutil
from pydantic import Field, TypeAdapter

from headway.claims.claims import (
    ClaimConfig,
    ClaimData,
    ClaimFile,
    ClaimPath,
    Decided,
    Regime,
    check_decidable,
    chosen_files,
    claim_files,
    claims_folder,
    claims_table,
    decide,
    decided_by,
    higher_is_better,
    read_claims,
    regime_of,
    regimes_of,
    sought_of_claims,
    tree_of_cell,
)
from headway.comparison.comparison import Comparison
from headway.comparison.differences import banded_curves
from headway.comparison.options import CompareOptions, ReproduceOptions
from headway.comparison.report import write_report
from headway.core.config import Section, Seed
from headway.core.device import machine
from headway.core.documents import read_json, shaped
from headway.core.errors import RunError, UserError, option
from headway.core.files import sha256, write_json, write_text
from headway.core.log import duration, progress, say
from headway.core.storage import locked, workspace
from headway.core.system import kill_with_children, move
from headway.core.tables import Cell, Table
from headway.core.version import VERSION
from headway.grids.ablation import ablate_seeds
from headway.grids.compare import compare_grid, plan_of, warn_of_reach
from headway.grids.grid import CELLS, Grid, grid_of
from headway.grids.grid_run import GridResult
from headway.metrics.intervals import Linearised

DATA, PREPARED, LOG = "data", ".prepared", "prepare.txt"
NAMES_DATA = re.compile(r"\$\{?DATA\b")  # matches commands that read the user's folder
LOOK = 0.1  # seconds between checks of the commands
TAIL = 4096  # bytes that are searched for the last line
RECORD = "record.json"
Cuts = Mapping[str, Mapping[str, Linearised]]  # by metric and name: variants, whole or without a part


class Provenance(Section):
    """How something was measured. `commands`: as they were typed; `commit` and `date`: of the code."""

    commands: tuple[str, ...]
    machine: str
    seeds: tuple[Seed, ...] = (1,)
    commit: str
    date: str


class Figure(Section):
    """An image file beside the page."""

    file: str
    title: str


class ResultRecord(Section):
    """Tables that were measured together.

    `text`: further notes on the measurement, one sentence each. `claims`: the findings, at the level of `looks` looks.
    """

    title: str
    measured: Provenance
    text: tuple[str, ...] = ()
    tables: tuple[dict[str, Any], ...] = ()
    figures: tuple[Figure, ...] = ()
    comparison: dict[str, Any] | None = None
    claims: tuple[dict[str, Any], ...] = ()
    looks: Annotated[int, Field(ge=1, le=100)] = 1


def measured_now(commands: Sequence[str], seeds: Sequence[int]) -> Provenance:
    """The provenance of a measurement that has just finished.

    The commit is that of headway's own code, with + if files were changed, or its version if it is not a clone.
    """

    def ask(*arguments: str) -> str:
        here = Path(__file__).parent
        asked = subprocess.run(["git", *arguments], cwd=here, capture_output=True, check=True)  # noqa: S603, S607
        return asked.stdout.decode().strip()

    try:
        commit = ask("rev-parse", "HEAD")[:7] + ("+" if ask("status", "-s", "-uno") else "")
    except (OSError, subprocess.CalledProcessError):
        commit = f"headway {VERSION}"
    facts = machine()
    processor = f"{facts['processor']} ({facts['instruction_set']}), {facts['cores']} cores"
    return Provenance(
        commands=tuple(commands), machine=f"{processor}, torch {facts['torch']}, {facts['accelerator'] or 'no GPU'}",
        seeds=tuple(seeds), commit=commit, date=datetime.now(UTC).date().isoformat(),
    )  # fmt: skip


def write_record(path: Path, record: ResultRecord) -> None:
    write_json(path, record.model_dump(mode="json", exclude_defaults=True))


def read_record(path: Path) -> ResultRecord:
    """Read a record. Raises UserError if it is damaged."""
    return shaped(read_json(path, what="record"), TypeAdapter(ResultRecord), str(path), "this record")


def prepare(data: ClaimData, folder: Path, given: Path | None, beside: Path) -> Path:
    """Run the commands that make the data, unless the data exist already. Returns the complete data folder.

    Args:
        data: the commands, and the files that they need.
        folder: the folder for `data`, and for `prepare.txt` with the output of the commands.
        given: the folder with the user's files.
        beside: the working directory of the commands.

    Raises:
        UserError: as `check_given`; or the folder has cells trained on other data than the commands make.
        RunError: a command failed, or another process is working in the folder.
    """
    output = (folder / DATA).absolute()
    if is_prepared(data, output, given):
        return output
    check_given(data, given)
    with locked(folder / ".lock"):
        if not is_prepared(data, output, given):  # another process may have prepared it meanwhile
            _make(data, folder, output, given, beside)
    return output


def _make(data: ClaimData, folder: Path, output: Path, given: Path | None, beside: Path) -> None:
    """Run the commands. Their output becomes `output` atomically."""
    with workspace(folder) as unfinished:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        environment = {**os.environ, "PATH": path, "OUTPUT": str(unfinished / DATA)}
        if given is not None:
            environment["DATA"] = str(given.absolute())
        (unfinished / DATA).mkdir()
        log = folder / LOG
        code, error = _run(data.prepare, beside, environment, log, f"preparing {output}")
        if code:
            raise RunError(f"the data could not be prepared (exit code {code}): {error or 'no message'}; {log}")
        write_text(unfinished / DATA / PREPARED, f"{_stamp(data)}\n{_sizes(data, given)}\n")
        _check_cells(folder, output, unfinished / DATA)
        shutil.rmtree(output, ignore_errors=True)
        move(unfinished / DATA, output)


def _check_cells(folder: Path, before: Path, now: Path) -> None:
    """Raise UserError if cells were trained on data that the new data would replace."""

    def content(folder: Path) -> dict[Path, str]:
        """The hashes of all files by their relative paths, without the stamp of the preparation."""
        files = (path for path in folder.rglob("*") if path.is_file() and path.name != PREPARED)
        return {path.relative_to(folder): sha256(path) for path in files}

    cells = folder / CELLS
    if before.is_dir() and cells.is_dir() and any(cells.iterdir()) and content(before) != content(now):
        what = f"the cells in {cells} were made of other data than the commands make now"
        raise UserError(what, where=option("output"), received=str(folder.parent), allowed="another folder")


def check_given(data: ClaimData, given: Path | None) -> None:
    """Raise UserError if the user's folder lacks files that the commands need."""
    missing = [name for name in data.needs if given is None or not (given / name).exists()]
    if missing or (given is None and NAMES_DATA.search(data.prepare)):
        received = "no folder" if given is None else f"{given}, without {', '.join(missing)}"
        raise UserError(f"these claims need {data.about}", where=option("data"), received=received)


def is_prepared(data: ClaimData, output: Path, given: Path | None) -> bool:
    """Whether the mark in `output` has the commands of `data` and, if `given` is a folder, the sizes of its files."""
    mark = output / PREPARED
    if not mark.is_file():
        return False
    stamp, _, sizes = mark.read_text(encoding="utf-8").strip().partition("\n")
    return stamp == _stamp(data) and (given is None or sizes == _sizes(data, given))


def _stamp(data: ClaimData) -> str:
    return hashlib.sha256(data.prepare.encode()).hexdigest()


def _sizes(data: ClaimData, given: Path | None) -> str:
    """A hash of the sizes of the files that the commands need. Hashing gigabytes of content would take too long."""
    paths = [given / name for name in data.needs if given is not None]
    files = [file for path in paths for file in ([path] if path.is_file() else sorted(path.rglob("*")))]
    sizes = (str(file.stat().st_size) for file in files if file.is_file())
    return hashlib.sha256("\n".join(sizes).encode()).hexdigest()


def _run(commands: str, beside: Path, environment: Mapping[str, str], log: Path, title: str) -> tuple[int, str]:
    """Run shell commands, showing their last line. Returns the exit code, and the last line of standard error."""
    shell, pipe = ["bash", "-euo", "pipefail", "-c", commands], subprocess.PIPE
    began, said, errors = time.monotonic(), bytearray(), bytearray()
    with (
        log.open("wb", buffering=0) as kept,
        progress(title, long=True) as work,
        subprocess.Popen(  # noqa: S603
            shell, cwd=beside, env=environment, stdout=pipe, stderr=pipe, start_new_session=True
        ) as process,
    ):

        def keep(stream: Any, *tails: bytearray) -> None:
            while text := os.read(stream.fileno(), 1 << 16):
                with suppress(OSError):  # the disk is full; the commands will report it
                    kept.write(text)
                for tail in tails:
                    tail.extend(text)
                    del tail[:-TAIL]

        # A selector cannot wait for a pipe on Windows.
        read = (process.stdout, said), (process.stderr, said, errors)
        threads = [threading.Thread(target=keep, args=each, daemon=True) for each in read]
        for thread in threads:
            thread.start()
        try:
            while any(thread.is_alive() for thread in threads):
                for thread in threads:
                    thread.join(LOOK)
                parts = duration(time.monotonic() - began), _last_line(said)
                work.update(0, " · ".join(filter(None, parts)))
        except BaseException:
            with suppress(ProcessLookupError, psutil.NoSuchProcess):
                kill_with_children(process.pid)
            for thread in threads:
                thread.join(LOOK)
            raise
    return process.returncode, _last_line(errors)


def _last_line(text: bytearray) -> str:
    """The last line that is not blank. Progress bars end their lines with a carriage return."""
    lines = [line.strip() for line in text.decode(errors="replace").splitlines()]
    return next(filter(None, reversed(lines)), "")


def listed_claims(folder: Path) -> Table:
    """A table of all claim files. Raises UserError if there are none, or one cannot be read."""
    rows: list[list[Cell]] = []
    for name, path in claim_files(folder).items():
        claims = read_claims(path)
        variants, budgets = ", ".join(claims.grid.get("variants", {})), ", ".join(claims.budgets)
        rows.append([name, claims.title, claims.document, len(claims.claims), budgets, variants])
    return Table(["name", "title", "document", "claims", "budgets", "variants"], rows)


def reproduce(
    chosen: ClaimPath,
    options: ReproduceOptions,
    overrides: Sequence[str] = (),
    command: str = "",
    confirmed: Callable[[Table], bool] = lambda commands: False,
    begun: Callable[[Grid, Path, Path], None] = lambda grid, folder, data: None,
) -> tuple[list[Table], int]:
    """Decide the claims of a document, of one of its tables, or of one variant there.

    The data and runs of each claim file have a folder in the output folder. Existing results are reused.

    Args:
        chosen: the claims; of a whole document, the files that have the budget.
        options: budget, data, output and workers.
        overrides: changes to the grids or to all recipes.
        command: the command that makes the runs, for the record.
        confirmed: asks the user whether the commands of claim files may run, with all of the user's permissions.
        begun: called with each grid, its folder and its prepared data, before anything is trained.

    Returns:
        A table per file, and the worst exit code of `compare_grid`.

    Raises:
        UserError: claims, data or recipes cannot be used, or commands were not allowed.
        RunError: data could not be prepared.
    """
    if options.output is None:
        raise UserError("data and runs need a folder", where=option("output"))
    files = {
        name: (path, read_claims(path)) for name, path in chosen_files(claims_folder(options.claims), chosen).items()
    }
    having = {name: pair for name, pair in files.items() if options.budget in pair[1].budgets}
    if chosen.table is None and having:  # if no file has the budget, the error names the first
        if left_out := [name for name in files if name not in having]:
            say(f"without a budget {options.budget}, and left out: {', '.join(left_out)}")
        files = having
    waiting = dict[str, Table]()
    for name, (path, claims) in files.items():
        lines = _commands_to_run(claims, path, options.output / path.stem, options, chosen.cell, overrides)
        if lines is not None:
            rows: list[list[Cell]] = [[line if line.isprintable() else repr(line)] for line in lines]  # escape
            notes = ["the data are not there yet: these commands prepare them, and then the cells can be listed"]
            waiting[name] = Table([f"commands of {path}"], rows, title=f"{name}: {claims.title}", notes=notes)
    for table in waiting.values():
        if not (options.dry_run or options.yes or confirmed(table)):
            what, allowed = (
                "the commands that prepare the data were not allowed",
                "commands that you have read and trust",
            )
            raise UserError(what, where=option("yes"), allowed=allowed)
    tables, code = list[Table](), 0
    for name, (path, claims) in files.items():
        if options.dry_run and name in waiting:
            tables.append(waiting[name])
            continue
        folder = options.output / path.stem
        data = prepare(claims.data_of(options.budget), folder, options.data, path.parent)
        grid = claimed_grid(claims, path, data, options.budget, chosen.cell, overrides)
        check_decidable(claims, grid)
        sought = sought_of_claims(claims, grid)
        begun(grid, folder, data)
        if options.dry_run:
            plan = plan_of(grid, folder, options, sought)
            tables.append(Table(plan.columns, plan.rows, title=f"{name}: {claims.title}", notes=plan.notes))
            continue
        say(f"\n{name}: {claims.title}")
        made = compare_grid(grid, folder, options, sought)
        code = max(code, made.code)
        if made.result.stopped:
            break
        if made.comparison is not None:
            shown = folder if chosen.cell is None else folder / f"only-{chosen.cell}"
            tables += _findings(claims, options, made.result, made.comparison, data, shown, command)
    return tables, code


def _commands_to_run(
    claims: ClaimFile, path: Path, folder: Path, options: ReproduceOptions, cell: str | None, overrides: Sequence[str]
) -> list[str] | None:
    """The commands that prepare the data of a claim file, after all possible checks; None if the data exist.

    Raises:
        UserError: claims, data or recipes cannot be used.
    """
    data, tree = claims.data_of(options.budget), claims.tree(options.budget)
    ready = is_prepared(data, folder / DATA, options.data)
    if not ready:
        check_given(data, options.data)
    claims_table({}, claims, as_printed=False)  # raises for claims by an unknown metric
    if cell is not None:
        tree_of_cell(tree, claims, cell)
    if _named_output(tree, "") == tree:  # else recipes depend on runs that the preparation trains
        grid = claimed_grid(claims, path, folder / DATA, options.budget, cell, overrides)
        check_decidable(claims, grid)
        if not ready:
            warn_of_reach(grid, {}, sought_of_claims(claims, grid))
    return None if ready else [line for line in data.prepare.splitlines() if line.strip()]


def _findings(
    claims: ClaimFile,
    options: ReproduceOptions,
    result: GridResult,
    comparison: Comparison,
    data: Path,
    folder: Path,
    command: str,
) -> list[Table]:
    """The tables of a comparison, with the findings on all claims. Writes the report and the record into the folder."""
    as_printed = claims.budget(options.budget).as_printed
    claims = claims.model_copy(update={"looks": max(claims.looks, comparison.looks)})
    regimes = regimes_of(comparison, as_printed=as_printed)
    runs = {name: [cell.path for cell in cells if cell.path] for name, cells in comparison.cells.items()}
    cuts, of_cuts = cut_variants(claims, runs, data)
    decided = {
        one.says: decide_cut(one, claims, cuts, regimes) or decide(one, comparison, claims.level, regimes)
        for one in claims.claims
    }
    write_report(comparison, folder, CompareOptions(allow_code=True))
    write_record(folder / RECORD, record_of(claims, options, result, comparison, decided, command, of_cuts))
    costs = {variant.name: variant.costs for variant in comparison.variants}
    return [claims_table(decided, claims, as_printed=as_printed, costs=costs), comparison.table(), *of_cuts]


def claimed_grid(
    claims: ClaimFile, path: Path, data: Path, budget: str, cell: str | None = None, overrides: Sequence[str] = ()
) -> Grid:
    """The grid of a claim file, with the folder `data` for `$OUTPUT`. Raises UserError as `load_grid`."""
    tree = _named_output(claims.tree(budget), str(data.absolute()))
    if cell is not None:
        tree = tree_of_cell(tree, claims, cell)
    folder = json.dumps(str(data.absolute()))  # quoted for YAML
    return grid_of(tree, path.parent, [f"data.folder={folder}", *overrides])


def _named_output(value: Any, output: str) -> Any:
    """A tree with `output` in place of `$OUTPUT` in its texts, such as paths of runs that the preparation trains."""
    if isinstance(value, dict):
        return {key: _named_output(part, output) for key, part in value.items()}
    if isinstance(value, list):
        return [_named_output(part, output) for part in value]
    return value.replace("$OUTPUT", output) if isinstance(value, str) else value


def cut_variants(claims: ClaimFile, runs: Mapping[str, Sequence[Path]], data: Path) -> tuple[Cuts, list[Table]]:
    """From the runs of each variant: the variants, whole and without each cut part, by metric; and tables."""
    cuts, tables = dict[str, dict[str, Linearised]](), list[Table]()
    if claims.cut is None:
        return cuts, tables
    given = claims.cut.options
    files = {name: path and data / path for name, path in (("input", given.input), ("reference", given.reference))}
    for name, folders in runs.items():
        parts = {part: what for part, what in claims.cut.parts.items() if part.startswith(f"{name}/")}
        options = given.model_copy(update={"what": tuple(parts.values()), "together": True, **files})
        for ablation in ablate_seeds(folders, options).ablations if parts and folders else ():
            systems = zip([name, *parts], ablation.systems.values(), strict=True)
            cuts[ablation.measure.key] = {**dict(systems), **cuts.get(ablation.measure.key, {})}  # the first `how`
            tables.append(ablation.table(f"{name}: "))
    return cuts, tables


def decide_cut(claim: ClaimConfig, claims: ClaimFile, cuts: Cuts, regimes: Mapping[str, Regime]) -> Decided | None:
    """The finding on a claim about variants without a part. None if the claim is about whole variants."""
    left, _, right = claim.inequality
    systems = cuts.get(claim.metric or next(iter(cuts), ""), {})
    if "/" not in claim.claim or not {left, right} <= systems.keys():
        return None
    estimate, sign = (systems[left] - systems[right]).estimate(), 1 if higher_is_better(claim, claims) else -1
    values = float(systems[left].scores.mean()), float(systems[right].scores.mean())
    found = replace(estimate, value=sign * estimate.value)
    return decided_by(claim, found, values, claims.level, regime=regime_of(claim, regimes))


def record_of(
    claims: ClaimFile,
    options: ReproduceOptions,
    result: GridResult,
    comparison: Comparison,
    decided: dict[str, Decided | None],
    command: str,
    cuts: Sequence[Table] = (),
) -> ResultRecord:
    """The record of all results in the format of `results/`. Of the dev curves, it has those of the first metric."""
    missing = [f"Failed: {failure}." for failure in result.failed]
    missing += [f"Not finished: {'; '.join(result.unfinished)}."] if result.unfinished else []
    tables = [comparison.table(), comparison.pair_table(), *cuts]
    tables += [curves.table() for curves in banded_curves(comparison)[:1] if curves.are_long]
    return ResultRecord(
        title=claims.title,
        measured=measured_now([command], comparison.variants[0].seeds),
        text=(f"Budget: {options.budget}.", *missing),
        tables=tuple(table.to_json() for table in tables),
        comparison=comparison.to_json(),
        claims=tuple(found.to_json() for found in decided.values() if found is not None),
        looks=claims.looks,
    )
