"""The pages of what was measured: docs/results.md, an overview, and a page for each section beside it.

python tools/results_page.py

They are made of the records in results/ and of what claims/ says was found. `results/contents.yaml` says what stands
where. The findings stand in the claim files.
"""

import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from headway.comparison.claims import ClaimFile, claims_table, read_claims
from headway.comparison.options import USUAL_BUDGET
from headway.comparison.reproduce import ResultRecord, read_record
from headway.core.config import Section, explain
from headway.core.errors import HeadwayError, UserError
from headway.core.tables import Cell, Column, Table
from headway.recipe import read_tree

ROOT = Path(__file__).parents[1]
CONTENTS = "contents.yaml"
PAGE, FOLDER = "results.md", "results"
WIDTH = 128  # of a line of text
NOT_RUN = "not run"
VERDICTS = ("holds", "fails", "open", "rate?", NOT_RUN)


class PageSection(Section):
    """A page beside the overview: records and claim files by their names, a record's with `*` for all that fit."""

    title: str
    text: tuple[str, ...] = ()
    records: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()

    @property
    def file(self) -> str:
        """The file of the page, by its title."""
        return f"{re.sub(r'[^a-z0-9]+', '-', self.title.lower()).strip('-')}.md"

    def shown(self, names: Iterable[str]) -> list[str]:
        """The names of records that the page has, in its order. Raises UserError for one that is not there."""
        there = list(names)
        fitting = {wanted: [name for name in there if Path(name).match(wanted)] for wanted in self.records}
        for wanted, found in fitting.items():
            if not found:
                raise UserError("there is no such record", where=CONTENTS, received=wanted, allowed=there)
        return [name for found in fitting.values() for name in found]


class PageContents(Section):
    """All pages. `elsewhere`: files beside the records that other pages show, with `*` for all that fit."""

    title: str
    text: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()
    sections: tuple[PageSection, ...]


def results_pages(results: Path, claims: Path) -> dict[str, str]:
    """The pages as Markdown, by their paths in docs/.

    Args:
        results: the folder of the records.
        claims: the folder of the claim files.

    Raises:
        UserError: a file that cannot be read, a record that is missing, or one that no section has.
    """
    path = results / CONTENTS
    try:
        contents = PageContents.model_validate(read_tree(path))
    except ValidationError as error:
        raise UserError(explain(error, PageContents, str(path))) from error
    records = {
        name: read_record(file) for name, file in _named(results) if not any(map(Path(name).match, contents.elsewhere))
    }
    shown = {name for section in contents.sections for name in section.shown(records)}
    if left := sorted(records.keys() - shown):
        raise UserError("no section of the page has this record", where=str(path), received=", ".join(left))
    overview = [f"# {contents.title}", *_paragraph(contents.text), *_overview(contents, claims, records)]
    pages = {PAGE: overview}
    for section in contents.sections:
        names = section.shown(records)
        lines = [f"# {section.title}", *_paragraph(section.text)]
        for name in section.claims:
            lines += _questions(claims, name, records.get(name))
        for name in names:
            lines += ["", f"## {records[name].title}"] if len(names) > 1 else []
            lines += _record_lines(records[name])
        pages[f"{FOLDER}/{section.file}"] = lines
    return {name: "\n".join(lines) + "\n" for name, lines in pages.items()}


def _command(name: str, budget: str, needs_data: bool) -> str:
    """The command that decides the claims of a file; `FOLDER` has the data that they need."""
    given = [f" --budget {budget}"] if budget != USUAL_BUDGET else []
    given += [" --data FOLDER"] if needs_data else []
    return f"headway reproduce {name}{''.join(given)} --output runs"


def _named(results: Path) -> list[tuple[str, Path]]:
    """The JSON files of a folder by their names in it."""
    return [(file.relative_to(results).with_suffix("").as_posix(), file) for file in sorted(results.rglob("*.json"))]


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
    """A line a section with its link, and how many claims of each file hold, fail, are open, or were not run."""
    yield ""
    rows: list[list[Cell]] = []
    for section in contents.sections:
        titles = [read_claims(folder / f"{name}.yaml").title for name in section.claims]
        titles += [records[name].title for name in section.shown(records) if name not in section.claims]
        yield from _wrapped(f"[{section.title}]({FOLDER}/{section.file}): {'; '.join(titles)}.", "- ", "  ")
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


def _questions(folder: Path, name: str, record: ResultRecord | None) -> Iterator[str]:
    """The claims of a file with the command that decides them, and what has been found so far."""
    claims = read_claims(folder / f"{name}.yaml")
    where = f"{claims.document}, {claims.table}" if claims.table else claims.document
    data = claims.data_of(claims.usual_budget)
    asked = _command(name.replace("-", "/", 1), claims.usual_budget, bool(data.needs))
    given = [f"FOLDER has {data.about}."] if data.needs else []
    decided = f"`{asked}` decides these [claims](../../claims/{name}.yaml)."
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
        yield f"![{figure.title}](../{figure.file})"
    seeds = ", ".join(map(str, measured.seeds))
    word = "seeds" if len(measured.seeds) > 1 else "seed"
    yield ""
    yield f"*Measured on {measured.date} at {measured.commit}: {measured.machine}; {word} {seeds}.*"


def main() -> None:
    """Write the pages in place of those that are there."""
    pages = results_pages(ROOT / "results", ROOT / "claims")
    shutil.rmtree(ROOT / "docs" / FOLDER, ignore_errors=True)
    for name, text in pages.items():
        path = ROOT / "docs" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    try:
        main()
    except HeadwayError as error:
        sys.exit(f"error: {error}")
