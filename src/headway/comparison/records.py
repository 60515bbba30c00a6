"""Records of what was measured: tables with their commands, machine, seeds and commit, as a JSON file each."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, ValidationError

import headway
from headway.comparison.claims import CLAIM_COLUMNS
from headway.config import Section, Seed, explain
from headway.device import machine
from headway.documents import read_json
from headway.errors import UserError
from headway.files import write_json
from headway.tables import Table


class Provenance(Section):
    """The way in which something was measured. `commands`: as they were typed; `commit` and `date`: of the code."""

    commands: tuple[str, ...]
    machine: str
    seeds: tuple[Seed, ...] = (1,)
    commit: str
    date: str


class Figure(Section):
    """A picture beside the page."""

    file: str
    title: str


def _found_claim(value: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(value.get("says"), str) or not {"metric", "test"} <= value.keys():
        raise ValueError("a claim of a record has says, metric and test")
    return value


class ResultRecord(Section):
    """Tables that were measured together. `text`: what else is to be said of how, a sentence each."""

    title: str
    measured: Provenance
    text: tuple[str, ...] = ()
    tables: tuple[dict[str, Any], ...] = ()
    figures: tuple[Figure, ...] = ()
    comparison: dict[str, Any] | None = None
    claims: tuple[Annotated[dict[str, Any], AfterValidator(_found_claim)], ...] = ()


def measured_now(commands: Sequence[str], seeds: Sequence[int]) -> Provenance:
    """The facts of a measurement that has just been made.

    The commit is that of headway's own code, with + where files were changed; its version where it is no clone.
    """

    def ask(*arguments: str) -> str:
        here = Path(__file__).parent
        asked = subprocess.run(["git", *arguments], cwd=here, capture_output=True, text=True, check=True)  # noqa: S603, S607
        return asked.stdout.strip()

    try:
        commit = ask("rev-parse", "HEAD")[:7] + ("+" if ask("status", "-s", "-uno") else "")
    except (OSError, subprocess.CalledProcessError):
        commit = f"headway {headway.__version__}"
    facts = machine()
    processor = f"{facts['processor']} ({facts['instruction_set']}), {facts['cores']} cores"
    return Provenance(
        commands=tuple(commands), machine=f"{processor}, torch {facts['torch']}, {facts['accelerator'] or 'no GPU'}",
        seeds=tuple(seeds), commit=commit, date=datetime.now(UTC).date().isoformat(),
    )  # fmt: skip


def write_record(path: Path, record: ResultRecord) -> None:
    """Write a record."""
    write_json(path, record.model_dump(mode="json", exclude_defaults=True))


def read_record(path: Path) -> ResultRecord:
    """Read a record. Raises UserError with every mistake."""
    try:
        record = ResultRecord.model_validate(read_json(path, what="record"))
        tables = [Table.from_json(table) for table in record.tables]
        if record.claims and (not tables or len(tables[0].columns) != len(CLAIM_COLUMNS)):
            raise ValueError("a record with claims has their table")
    except ValidationError as error:
        raise UserError(explain(error, ResultRecord, str(path))) from error
    except (OSError, ValueError) as error:
        raise UserError(f"this record cannot be read ({error})", where=str(path)) from error
    return record
