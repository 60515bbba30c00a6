"""The pages of what was measured: docs/results.md, an overview with findings first, and a page for each section.

python tools/results_page.py

They are made of the records in results/ and of what claims/ says was found. `results/contents.yaml` says what stands
where. The findings stand in the claim files.
"""

import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isclose
from pathlib import Path
from typing import Any

from headway.claims.claims import (
    COSTS,
    ClaimConfig,
    ClaimFile,
    Decided,
    claims_table,
    decided_by,
    higher_is_better,
    read_claims,
)
from headway.claims.reproduce import ResultRecord, read_record
from headway.comparison.comparison import in_groups
from headway.comparison.options import USUAL_BUDGET
from headway.core.config import Section, validated
from headway.core.errors import HeadwayError, UserError
from headway.core.log import counted
from headway.core.tables import Cell, Column, Table
from headway.metrics.intervals import Estimate
from headway.recipe import read_tree

ROOT = Path(__file__).parents[1]
CONTENTS = "contents.yaml"
PAGE, FOLDER = "results.md", "results"
WIDTH = 128  # of a line of text
NOT_RUN, UNKNOWN = "not run", "unknown"
COVERAGE = "coverage"  # the record of what intervals hold
VERDICTS = ("holds", "holds early", "fails", "fails early", "open", "rate?", NOT_RUN)

Findings = Mapping[str, Decided | None]


class PageSection(Section):
    """A page beside the overview: records and claim files by their names, a record's with `*` for all that fit.

    `found`: what was found, in sentences for the overview, which otherwise has the titles of claims and records.
    """

    title: str
    found: tuple[str, ...] = ()
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
    contents = validated(PageContents, read_tree(path), str(path))
    records = {
        name: read_record(file) for name, file in _named(results) if not any(map(Path(name).match, contents.elsewhere))
    }
    shown = {name for section in contents.sections for name in section.shown(records)}
    if left := sorted(records.keys() - shown):
        raise UserError("no section of the page has this record", where=str(path), received=", ".join(left))
    files = {name: read_claims(claims / f"{name}.yaml") for section in contents.sections for name in section.claims}
    found = {name: _decided(file, records.get(name)) for name, file in files.items()}
    errors = [*_trainings(found.values()), *_expected_errors(files, found, records.get(COVERAGE))]
    findings = list(_found_so_far(contents, files, records))
    trust = ["", "## How sure this is", *_paragraph(errors)] if errors else []
    overview = [f"# {contents.title}", *findings, *trust, *_paragraph(contents.text)]
    pages = {PAGE: [*overview, *_verdicts(contents, found)]}
    for section in contents.sections:
        names = section.shown(records)
        trainings = _trainings([found[name] for name in section.claims])
        lines = [f"# {section.title}", *_paragraph(trainings), *_paragraph(section.text)]
        for name in section.claims:
            lines += _questions(name, files[name], found[name], records.get(name))
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


def _found_so_far(
    contents: PageContents, files: Mapping[str, ClaimFile], records: Mapping[str, ResultRecord]
) -> Iterator[str]:
    """The findings of each section, with a link to it."""
    yield ""
    for section in contents.sections:
        titles = [files[name].title for name in section.claims]
        titles += [records[name].title for name in section.shown(records) if name not in section.claims]
        said = " ".join(section.found) or f"{'; '.join(titles)}."
        yield from _wrapped(f"[{section.title}]({FOLDER}/{section.file}): {said}", "- ", "  ")


def _verdicts(contents: PageContents, found: Mapping[str, Findings]) -> Iterator[str]:
    """How many claims of each file hold, fail, are open, or were not run."""
    rows: list[list[Cell]] = []
    for section in contents.sections:
        for name in section.claims:
            every = found[name].values()
            verdicts = [NOT_RUN if each is None else each.verdict for each in every]
            unknown = sum(each is not None and each.is_decided and each.regime == UNKNOWN for each in every)
            counts = (*(verdicts.count(each) for each in VERDICTS), unknown)
            rows.append([name.replace("-", "/", 1), section.title, *counts])
    if rows:
        columns = [Column("claims"), Column("section"), *map(Column, VERDICTS), Column("decided, training unknown")]
        yield from ("", Table(columns, rows, title="Claims by their verdicts").markdown().rstrip("\n"))


def _trainings(found: Iterable[Findings]) -> Iterator[str]:
    """How far the variants of decided claims were trained, in sentences; none where nothing is decided."""
    regimes = [each.regime for every in found for each in every.values() if each is not None and each.is_decided]
    early, unknown = regimes.count("early"), regimes.count(UNKNOWN)
    if early + unknown:
        if 2 * early > len(regimes):
            yield "**Most of these findings are on early training.**"
        yield (
            f"Of {counted(len(regimes), 'decided claim')}, {early} are on early training: in the last fifth of the "
            "updates, one of the two variants still gained the margin or more on dev."
        )
    if unknown:
        yield f"The records of {unknown} keep no curve of dev, so nothing is known of how far training was."


def _expected_errors(
    files: Mapping[str, ClaimFile], found: Mapping[str, Findings], coverage: ResultRecord | None
) -> Iterator[str]:
    """How many wrong verdicts so many claims let one expect, by their levels and by the coverage that was simulated."""
    run = {name: [each for each in every.values() if each is not None] for name, every in found.items()}
    count = sum(map(len, run.values()))
    decided = sum(each.is_decided for every in run.values() for each in every)
    if decided:
        wrong = sum((1 - files[name].kept_level) * len(every) for name, every in run.items())
        yield (
            f"{counted(count, 'claim')} were run, and {decided} are decided. An interval of 95 % leaves out the "
            "truth in 5 % of claims by chance, and in more of the claims that were looked at twice. Expect up to "
            f"{wrong:.1f} wrong verdicts."
        )
        if coverage is not None:
            missed = [100 - row[2] for row in coverage.tables[0]["rows"]]
            least, most = (count * share / 100 for share in (min(missed), max(missed)))
            yield f"In simulations, intervals leave out the truth less often: {least:.0f} to {most:.0f} wrong verdicts."
        yield "A learning rate that was chosen once, by one short run, may have made further verdicts wrong."


def _decided(claims: ClaimFile, record: ResultRecord | None) -> Findings:
    """What the record has found on the claims of a file, by their sentences; of one that was another then, nothing."""
    return {claim.says: None if record is None else _found(claim, claims, record) for claim in claims.claims}


def _found(claim: ClaimConfig, claims: ClaimFile, record: ResultRecord) -> Decided | None:
    """What a record has found on a claim: decided anew by the variances that it keeps, but for a cost."""
    same = ("says", "claim", "metric", "test", "margin")
    found = next((each for each in record.claims if all(each[key] == getattr(claim, key) for key in same)), None)
    if found is None:
        return None
    value, regime, known = found["difference"], found.get("regime", "unknown"), record.comparison or {}
    left, _, right = claim.inequality
    pairs = [*zip(known.get("pairs", ()), known.get("significance", ()), strict=True)]
    of_claim = [
        {"doubt": "", **pair, **chance}
        for pair, chance in pairs
        if {pair["a"], pair["b"]} == {left, right} and isclose(abs(pair["difference"]), abs(value))
        and pair["metric"].endswith(claim.test or "")
    ]  # fmt: skip
    values = found["values"][0], found["values"][1]
    if not of_claim or claim.metric in COSTS:
        kept = found["low"], found["high"], values, found["finding"], found.get("needs", ""), regime
        return Decided(claim, value, *kept)
    names = ("seeds", "segments", "seed_variance", "segment_variance", "interaction_variance", "pooled")
    estimate = Estimate(value, **{name: of_claim[0][name] for name in names if name in of_claim[0]})
    paper = claim.paper_difference(higher_is_better=higher_is_better(claim, claims))
    key = of_claim[0]["metric"]
    why = in_groups(
        {name: known["variants"][name][key]["seeds"] for name in (left, right)}, known["metrics"][key]["margin"]
    )
    level, doubt = looked_at(claims, record).level, of_claim[0]["doubt"]
    return decided_by(claim, estimate, values, level, paper, why=why, doubt=doubt, regime=regime)


def looked_at(claims: ClaimFile, record: ResultRecord | None) -> ClaimFile:
    """The claims as they were when a record was made, with no more looks."""
    return claims if record is None else claims.model_copy(update={"looks": record.looks})


def _questions(name: str, claims: ClaimFile, found: Findings, record: ResultRecord | None) -> Iterator[str]:
    """The claims of a file with the command that decides them, and what has been found so far."""
    where = f"{claims.document}, {claims.table}" if claims.table else claims.document
    data = claims.data_of(claims.usual_budget)
    asked = _command(name.replace("-", "/", 1), claims.usual_budget, bool(data.needs))
    given = [f"FOLDER has {data.about}."] if data.needs else []
    decided = f"`{asked}` decides these [claims](../../claims/{name}.yaml)."
    yield from _paragraph([f"**{claims.title}.**", f"{where}: {claims.setting}.", decided, *given])
    shown = claims_table(found, looked_at(claims, record), as_printed=False, missing=NOT_RUN)
    yield from ("", Table(shown.columns, shown.rows, notes=shown.notes).markdown().rstrip("\n"))
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
    if record.claims:  # they stand above
        yield from ("", '<details markdown="1"><summary>Scores, costs and differences</summary>')
        yield from _tables(record.tables)
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
