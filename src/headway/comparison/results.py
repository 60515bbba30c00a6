"""Records of what was measured, and the page that is made from them.

`results/` has a JSON file a record: tables with their command, machine, seeds and commit. `results/contents.yaml` says
in which order they stand on the page. What was found stands in the claim files.
"""

from __future__ import annotations

import subprocess
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, ValidationError

import headway
from headway.comparison.claims import ClaimFile, read_claims
from headway.comparison.findings import CLAIM_COLUMNS, claims_table
from headway.config import Section, Seed, explain
from headway.device import machine
from headway.documents import read_json
from headway.errors import UserError
from headway.files import write_json
from headway.recipe import read_tree
from headway.tables import Cell, Column, Table

CONTENTS = "contents.yaml"
WIDTH = 128  # of a line of text
NOT_RUN = "not run"
VERDICTS = ("holds", "fails", "open", NOT_RUN)
ClaimCommand = Callable[[str, str, bool], str]


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


class PageSection(Section):
    """A section of the page: records and claim files by their names, a record's with `*` for all that fit."""

    title: str
    text: tuple[str, ...] = ()
    records: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()


class PageContents(Section):
    """The page. `elsewhere`: files beside the records that other pages show, with `*` for all that fit."""

    title: str
    text: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()
    sections: tuple[PageSection, ...]


def machine_in_words() -> str:
    """The machine and its versions in a line."""
    facts = machine()
    device = facts["accelerator"] or "no GPU"
    processor = f"{facts['processor']} ({facts['instruction_set']})"
    return f"{processor}, {facts['cores']} cores, torch {facts['torch']}, {device}"


def commit_in_words() -> str:
    """The commit of headway's own code, with + where files were changed; its version where it is no clone."""

    def ask(*arguments: str) -> str:
        asked = subprocess.run(["git", *arguments], cwd=here, capture_output=True, text=True, check=True)  # noqa: S603, S607
        return asked.stdout.strip()

    here = Path(__file__).parent
    try:
        return ask("rev-parse", "HEAD")[:7] + ("+" if ask("status", "-s", "-uno") else "")
    except (OSError, subprocess.CalledProcessError):
        return f"headway {headway.__version__}"


def measured_now(commands: Sequence[str], seeds: Sequence[int]) -> Provenance:
    """The facts of a measurement that has just been made."""
    today = datetime.now(UTC).date().isoformat()
    return Provenance(
        commands=tuple(commands), machine=machine_in_words(), seeds=tuple(seeds), commit=commit_in_words(), date=today
    )


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


def results_page(results: Path, claims: Path, command: ClaimCommand) -> str:
    """The page of all records, as Markdown.

    Args:
        results: the folder of the records.
        claims: the folder of the claim files.
        command: what decides claims, by their name, their budget, and whether they need data.

    Raises:
        UserError: a file that cannot be read, a record that is missing, or one that no section has.
    """
    path = results / CONTENTS
    try:
        contents = PageContents.model_validate(read_tree(path))
    except ValidationError as error:
        raise UserError(explain(error, PageContents, str(path))) from error
    there = {name: file for name, file in _named(results) if not any(map(Path(name).match, contents.elsewhere))}
    records = {name: read_record(file) for name, file in there.items()}
    lines, shown = [f"# {contents.title}", *_paragraph(contents.text), *_overview(contents, claims, records)], set()
    for section in contents.sections:
        names = [name for wanted in section.records for name in _fitting(wanted, list(there), path)]
        shown |= set(names)
        lines += ["", f"## {section.title}", *_paragraph(section.text)]
        for name in section.claims:
            lines += _questions(claims, name, records.get(name), command)
        for name in names:
            lines += ["", f"### {records[name].title}"] if len(names) > 1 else []
            lines += _record_lines(records[name])
    if left := sorted(there.keys() - shown):
        raise UserError("no section of the page has this record", where=str(path), received=", ".join(left))
    return "\n".join(lines) + "\n"


def _named(results: Path) -> list[tuple[str, Path]]:
    """The JSON files of a folder by their names in it."""
    return [(file.relative_to(results).with_suffix("").as_posix(), file) for file in sorted(results.rglob("*.json"))]


def _fitting(wanted: str, names: Sequence[str], where: Path) -> list[str]:
    fitting = [name for name in names if Path(name).match(wanted)]
    if not fitting:
        raise UserError("there is no such record", where=str(where), received=wanted, allowed=names)
    return fitting


def _paragraph(sentences: Sequence[str]) -> Iterator[str]:
    if sentences:
        yield ""
        yield from _wrapped(" ".join(sentences))


def _wrapped(text: str, first: str = "", others: str = "") -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=first, subsequent_indent=others, break_long_words=False, break_on_hyphens=False
    )


def _items(texts: Sequence[str]) -> Iterator[str]:
    yield ""
    for text in texts:
        yield from _wrapped(text, "- ", "  ")


def _overview(contents: PageContents, folder: Path, records: Mapping[str, ResultRecord]) -> Iterator[str]:
    """How many claims of each file hold, fail, are open, or were not run."""
    rows: list[list[Cell]] = []
    for section in contents.sections:
        for name in section.claims:
            claims = read_claims(folder / f"{name}.yaml")
            verdicts = [row[-1] for row in _decided(claims, records.get(name)).cells()]
            rows.append([name.replace("-", "/", 1), section.title, *(verdicts.count(each) for each in VERDICTS)])
    if rows:
        columns = [Column("claims"), Column("section"), *(Column(each) for each in VERDICTS)]
        yield from ("", Table(columns, rows, title="Claims by their verdicts").markdown().rstrip("\n"))


def _decided(claims: ClaimFile, record: ResultRecord | None) -> Table:
    """All claims of a file with what the record has found: nothing, where inequality, metric or test were others."""
    table = claims_table({}, claims, as_printed=False)
    if record is None or not record.claims:
        return Table(table.columns, [[*row[:-1], NOT_RUN] for row in table.rows])
    measured = Table.from_json(record.tables[0])
    rows_of = {row[0]: row for row in measured.rows}
    asked = {found["says"]: (found["metric"], found["test"]) for found in record.claims}
    rows: list[Sequence[Cell]] = []
    for claim, row in zip(claims.claims, table.rows, strict=True):
        same = asked.get(claim.says, (claim.metric, claim.test)) == (claim.metric, claim.test)
        known = rows_of.get(claim.says)
        rows.append(known if known is not None and same and known[1] == row[1] else [*row[:-1], NOT_RUN])
    return Table(table.columns, rows, notes=measured.notes)


def _questions(folder: Path, name: str, record: ResultRecord | None, command: ClaimCommand) -> Iterator[str]:
    """The claims of a file with the command that decides them, and what has been found so far."""
    claims = read_claims(folder / f"{name}.yaml")
    where = f"{claims.document}, {claims.table}" if claims.table else claims.document
    data = claims.data_of(claims.usual_budget)
    asked = command(name.replace("-", "/", 1), claims.usual_budget, bool(data.needs))
    given = [f"FOLDER has {data.about}."] if data.needs else []
    decided = f"`{asked}` decides these [claims](../claims/{name}.yaml)."
    yield from _paragraph([f"**{claims.title}.**", f"{where}: {claims.setting}.", decided, *given])
    yield from ("", _decided(claims, record).markdown().rstrip("\n"))
    if claims.findings:
        yield from ("", "Found so far:")
        yield from _items(claims.findings)


def _tables(tables: Sequence[dict[str, Any]]) -> Iterator[str]:
    for table in tables:
        yield from ("", Table.from_json(table).markdown().rstrip("\n"))


def _record_lines(record: ResultRecord) -> Iterator[str]:
    measured = record.measured
    if measured.commands:
        yield from ("", "```", *measured.commands, "```")
    yield from _paragraph(record.text)
    if record.claims:  # they are the first table, and stand above
        yield from ("", '<details markdown="1"><summary>Scores, costs and differences</summary>')
        yield from _tables(record.tables[1:])
        yield from ("", "</details>")
    else:
        yield from _tables(record.tables)
    for figure in record.figures:
        yield ""
        yield f"![{figure.title}]({figure.file})"
    seeds = ", ".join(map(str, measured.seeds))
    word = "seeds" if len(measured.seeds) > 1 else "seed"
    yield ""
    yield f"*Measured on {measured.date} at {measured.commit}: {measured.machine}; {word} {seeds}.*"
