"""`headway reproduce`: the claims of a document, decided by runs of its variants on prepared data."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from headway.comparison.claim_data import DATA, check_given, is_prepared, prepare
from headway.comparison.claims import (
    ClaimFile,
    ClaimPath,
    chosen_files,
    claim_files,
    claims_folder,
    read_claims,
    tree_of_cell,
)
from headway.comparison.compare_options import CompareOptions
from headway.comparison.comparison import Comparison
from headway.comparison.comparison_page import write_report
from headway.comparison.findings import Decided, check_decidable, claims_table, decide
from headway.comparison.grid import Grid
from headway.comparison.grid_comparison import GridComparison, compare_grid, plan_of
from headway.comparison.grid_file import grid_of
from headway.comparison.learning_curves import banded_curves
from headway.comparison.records import ResultRecord, measured_now, write_record
from headway.comparison.reproduce_options import ReproduceOptions
from headway.errors import UserError, option
from headway.log import say
from headway.tables import Cell, Table

RECORD = "record.json"


def listed_claims(folder: Path) -> Table:
    """All claim files: what they are about. Raises UserError where there is none, or one that cannot be read."""
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
) -> tuple[list[Table], int]:
    """Decide the claims of a document, of one of its tables, or of one variant there.

    Every file's data and runs are in a folder of its own within the output. What is there is not made again.

    Args:
        chosen: which claims; of a whole document those that have the budget.
        options: budget, data, output and workers.
        overrides: changes to the grids or to all recipes.
        command: what makes the runs, for the record.
        confirmed: asks the user whether the commands of claim files, which can do all that the user can, may run.

    Returns:
        A table a file, and the exit code: as of `compare_grid`, the worst of all.

    Raises:
        UserError: claims, data or recipes that cannot be used, or commands that were not allowed.
        RunError: data could not be prepared.
    """
    if options.output is None:
        raise UserError("data and runs need a folder", where=option("output"))
    files = chosen_files(claims_folder(options.claims), chosen)
    if chosen.table is None:
        files = _having(options.budget, files)
    for path in files.values():
        _check(path, options.output / path.stem, chosen.cell, options, overrides)
    waiting = {name: table for name, path in files.items() if (table := _commands(name, path, options)) is not None}
    for table in waiting.values():
        if not (options.dry_run or options.yes or confirmed(table)):
            what, allowed = (
                "the commands that prepare the data were not allowed",
                "commands that you have read and trust",
            )
            raise UserError(what, where=option("yes"), allowed=allowed)
    tables, code = list[Table](), 0
    for name, path in files.items():
        if options.dry_run and name in waiting:
            tables.append(waiting[name])
            continue
        claims, folder = read_claims(path), options.output / path.stem
        data = prepare(claims.data_of(options.budget), folder, options.data, path.parent)
        grid = claimed_grid(claims, path, data, options.budget, chosen.cell, overrides)
        check_decidable(claims, grid)
        if options.dry_run:
            plan = plan_of(grid, folder, options)
            tables.append(Table(plan.columns, plan.rows, title=f"{name}: {claims.title}", notes=plan.notes))
            continue
        say(f"\n{name}: {claims.title}")
        made = compare_grid(grid, folder, options)
        code = max(code, made.code)
        if made.result.stopped:
            break
        if made.comparison is None:
            continue
        as_printed = claims.budget(options.budget).as_printed
        decided = {claim.says: decide(claim, made.comparison, claims.level) for claim in claims.claims}
        tables += [claims_table(decided, claims, as_printed=as_printed), made.comparison.table()]
        shown = folder if chosen.cell is None else folder / f"only-{chosen.cell}"
        write_report(made.comparison, shown, CompareOptions(), own=True)
        write_record(shown / RECORD, record_of(claims, options, made, made.comparison, decided, command))
    return tables, code


def _commands(name: str, path: Path, options: ReproduceOptions) -> Table | None:
    """The commands that prepare the data of a claim file; None where the data are there."""
    assert options.output is not None
    claims = read_claims(path)
    data = claims.data_of(options.budget)
    if is_prepared(data, options.output / path.stem / DATA, options.data):
        return None
    lines = (line for line in data.prepare.splitlines() if line.strip())
    rows: list[list[Cell]] = [[line if line.isprintable() else repr(line)] for line in lines]  # nothing hides from eyes
    notes = ["the data are not there yet: these commands prepare them, and then the cells can be listed"]
    return Table([f"commands of {path}"], rows, title=f"{name}: {claims.title}", notes=notes)


def _having(budget: str, files: dict[str, Path]) -> dict[str, Path]:
    """The claim files that have a budget; says which have not. All of them where none has: the first is named then."""
    having = {name: path for name, path in files.items() if budget in read_claims(path).budgets}
    if having and len(having) < len(files):
        say(f"without a budget {budget}, and left out: {', '.join(name for name in files if name not in having)}")
    return having or files


def _check(path: Path, folder: Path, cell: str | None, options: ReproduceOptions, overrides: Sequence[str]) -> None:
    """Raise UserError for what can be seen to be wrong before any data are prepared."""
    claims = read_claims(path)
    tree = claims.tree(options.budget)
    check_given(claims.data_of(options.budget), folder, options.data)
    claims_table({}, claims, as_printed=False)  # raises for claims by a metric that there is not
    if cell is not None:
        tree_of_cell(tree, claims, cell)
    if _named_output(tree, "") == tree:  # else recipes go on from runs that the preparation makes
        check_decidable(claims, claimed_grid(claims, path, folder / DATA, options.budget, cell, overrides))


def claimed_grid(
    claims: ClaimFile, path: Path, data: Path, budget: str, cell: str | None = None, overrides: Sequence[str] = ()
) -> Grid:
    """The grid of a claim file, on prepared data, whose folder `$OUTPUT` names. Raises UserError as `load_grid`."""
    tree = _named_output(claims.tree(budget), str(data.absolute()))
    if cell is not None:
        tree = tree_of_cell(tree, claims, cell)
    folder = json.dumps(str(data.absolute()))  # as YAML, whatever characters it has
    return grid_of(tree, path.parent, [f"data.folder={folder}", *overrides])


def _named_output(value: Any, output: str) -> Any:
    """A tree with `output` for each `$OUTPUT` in its texts: of runs that the preparation trains."""
    if isinstance(value, dict):
        return {key: _named_output(part, output) for key, part in value.items()}
    if isinstance(value, list):
        return [_named_output(part, output) for part in value]
    return value.replace("$OUTPUT", output) if isinstance(value, str) else value


def record_of(
    claims: ClaimFile,
    options: ReproduceOptions,
    made: GridComparison,
    comparison: Comparison,
    decided: dict[str, Decided | None],
    command: str,
) -> ResultRecord:
    """All that was found, as `results/` keeps it: of the curves on dev, those of the first metric."""
    as_printed, result = claims.budget(options.budget).as_printed, made.result
    missing = [f"Failed: {failure}." for failure in result.failed]
    missing += [f"Not finished: {'; '.join(result.unfinished)}."] if result.unfinished else []
    tables = [claims_table(decided, claims, as_printed=as_printed), comparison.table(), comparison.pair_table()]
    tables += [curves.table() for curves in banded_curves(comparison)[:1] if curves.are_long]
    return ResultRecord(
        title=claims.title,
        measured=measured_now([command], comparison.variants[0].seeds),
        text=(f"Budget: {options.budget}.", *missing),
        tables=tuple(table.to_json() for table in tables),
        comparison=comparison.to_json(),
        claims=tuple(found.to_json() for found in decided.values() if found is not None),
    )
