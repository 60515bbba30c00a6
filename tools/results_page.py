"""The pages of what was measured: docs/results.md, an overview with findings first, and a page for each section.

python tools/results_page.py

For each claim file of claims/, and each record of results/ without claims, a page has the findings in sentences, one
table, and the path of the record, which has all other tables. `results/contents.yaml` lists the pages.
"""

import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import isclose
from pathlib import Path
from statistics import median
from typing import Any, Final

import yaml

from headway.claims.claims import (
    COSTS,
    ClaimConfig,
    ClaimFile,
    Decided,
    Grouped,
    Regime,
    claims_table,
    decided_by,
    higher_is_better,
    metric_of,
    read_claims,
    runs_needed,
)
from headway.claims.reproduce import ResultRecord, read_record
from headway.comparison.comparison import UNLEARNED, in_groups, score_nothing
from headway.comparison.options import LOGPROB, USUAL_BUDGET
from headway.core.config import Section, validated
from headway.core.errors import HeadwayError, UserError
from headway.core.log import counted
from headway.core.tables import Cell, Column, Table
from headway.metrics.intervals import Estimate
from headway.recipe import read_tree

ROOT = Path(__file__).parents[1]
CONTENTS, AGES = "contents.yaml", "ages.yaml"
PAGE, FOLDER = "results.md", "results"
READING = "How to read a verdict"  # the heading of the overview's text
WIDTH = 128  # of a line of text
NOT_RUN: Final = "not run"
UNKNOWN: Final = "unknown"
COVERAGE = "coverage"  # the record of what intervals hold
OWN = "headway"  # the document of claims that no paper makes
AT_EDGE = re.compile(r"the best for (.+) is the (?:lowest|highest) that was tried")
BY_CHANCE = re.compile(r"the short runs of (.+) do not tell its values apart")
SEEDS_NEEDED = "would mostly"  # in the reasons of claims that only need more seeds
VERDICTS = ("holds", "holds early", "fails", "fails early", "open", "rate?", NOT_RUN)

Findings = Mapping[str, Decided | None]


class PageSection(Section):
    """A page beside the overview: claim files and further records by their names. `*` in a name is a wildcard.

    `found`: what was found, in sentences for the page and the overview. `record_text`: whether the page has the text
    of the records, which describes all of their tables.
    """

    title: str
    found: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    records: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()
    record_text: bool = True

    @property
    def file(self) -> str:
        """The file of the page, by its title."""
        return f"{_slug(self.title)}.md"

    def shown(self, there: Sequence[str]) -> list[str]:
        """The names of the claim files and records on the page. Raises UserError if a record is missing."""
        fitting = {wanted: [name for name in there if Path(name).match(wanted)] for wanted in self.records}
        for wanted, found in fitting.items():
            if not found:
                raise UserError("there is no such record", where=CONTENTS, received=wanted, allowed=there)
        return list(dict.fromkeys([*self.claims, *(name for found in fitting.values() for name in found)]))


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
    there = {file.relative_to(results).with_suffix("").as_posix(): file for file in sorted(results.rglob("*.json"))}
    of_others = {name for name in there if any(map(Path(name).match, contents.elsewhere))}
    records = {name: read_record(file) for name, file in there.items() if name not in of_others}
    shown = {section.file: section.shown([*records]) for section in contents.sections}
    if left := sorted(records.keys() - {name for names in shown.values() for name in names}):
        raise UserError("no section of the page has this record", where=str(path), received=", ".join(left))
    files = {name: read_claims(claims / f"{name}.yaml") for section in contents.sections for name in section.claims}
    titles = {name: each.title for name, each in (records | files).items()}
    found = {name: _decided(file, records.get(name)) for name, file in files.items()}
    said = {
        f"[{section.title}]({FOLDER}/{section.file}): ": " ".join(section.found)
        or f"{'; '.join(titles[name] for name in shown[section.file])}."
        for section in contents.sections
    }
    overview = [f"# {contents.title}", *_items([link + text for link, text in said.items()])]
    if errors := [*_trainings(found.values()), *_expected_errors(files, found, records.get(COVERAGE))]:
        errors += _ages(results / AGES, [records[name] for name in files if name in records])
        overview += ["", "## How sure this is", *_paragraph(errors)]
    if contents.text:
        overview += ["", f"## {READING}", *_items(contents.text)]
    of_papers = {name: every for name, every in found.items() if files[name].document != OWN}
    of_ours = {name: every for name, every in found.items() if name not in of_papers}
    tables = [*_verdicts(contents, of_papers, "Claims of papers"), *_verdicts(contents, of_ours, "Our own claims")]
    pages = {PAGE: [*overview, *tables]}
    for section in contents.sections:
        trainings = [*_trainings([found[name] for name in section.claims])]
        if section.claims:
            trainings.append(f"[{READING}](../{PAGE}#{_slug(READING)}).")
        lines = [f"# {section.title}"]
        for sentences in (section.found, trainings, section.text):
            lines += _paragraph(sentences)
        for name in (names := shown[section.file]):
            lines += ["", f"## {titles[name]}"] if len(names) > 1 else []
            if name in files:
                lines += _claims_lines(name, files[name], found[name], records.get(name))
            else:
                lines += _record_lines(name, records[name], with_text=section.record_text)
        pages[f"{FOLDER}/{section.file}"] = lines
    return {name: "\n".join(lines) + "\n" for name, lines in pages.items()}


def _slug(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def _paragraph(sentences: Sequence[str]) -> Iterator[str]:
    if sentences:
        yield ""
        yield from _wrapped(" ".join(sentences))


def _items(texts: Sequence[str]) -> Iterator[str]:
    yield ""
    for text in texts:
        yield from _wrapped(text, "- ")


def _wrapped(text: str, bullet: str = "") -> list[str]:
    indent = " " * len(bullet)
    return textwrap.wrap(
        text, WIDTH, initial_indent=bullet, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _verdicts(contents: PageContents, found: Mapping[str, Findings], whose: str) -> Iterator[str]:
    """How many claims of each file hold, fail, are open, or were not run."""
    rows: list[list[Cell]] = []
    for section in contents.sections:
        for name in filter(found.__contains__, section.claims):
            every = found[name].values()
            verdicts = [NOT_RUN if each is None else each.verdict for each in every]
            unknown = sum(each is not None and each.is_decided and each.regime == UNKNOWN for each in every)
            counts = (*(verdicts.count(each) for each in VERDICTS), unknown)
            rows.append([name.replace("-", "/", 1), section.title, *counts])
    if rows:
        columns = [Column("claims"), Column("section"), *map(Column, VERDICTS), Column("decided, training unknown")]
        yield from ("", Table(columns, rows, title=f"{whose} by their verdicts").markdown().rstrip("\n"))


def _trainings(found: Iterable[Findings]) -> Iterator[str]:
    """How far the variants of decided claims were trained, in sentences; none where nothing is decided."""
    regimes = [each.regime for every in found for each in every.values() if each is not None and each.is_decided]
    early, unknown = regimes.count("early"), regimes.count(UNKNOWN)
    if early + unknown:
        if 2 * early > len(regimes):
            yield "**Most of these findings are on early training.**"
        rest = f", and for {unknown} it is unknown how far training was" if unknown else ""
        yield f"Of {counted(len(regimes), 'decided claim')}, {early} are on early training{rest}."


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
    if doubted := sum(each.finding == "rate?" for every in run.values() for each in every):
        yield f"Of {counted(doubted, 'further claim')}, the learning rate may decide as much (`rate?`)."


def _ages(path: Path, records: Sequence[ResultRecord]) -> Iterator[str]:
    """The median age of records in commits, by a file that `main` writes, in a sentence; none without the file."""
    if not path.is_file():
        return
    known = read_tree(path)
    ages = [known["ages"][commit] for record in records if (commit := _commit(record)) in known["ages"]]
    yield f"In the median, a record of claims is {median(ages):,.0f} commits older than {known['at']}."


def _commit(record: ResultRecord) -> str:
    return record.measured.commit.rstrip("+")


def _asked(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=True, text=True).stdout.strip()


def counted_ages(records: Iterable[ResultRecord]) -> dict[str, Any]:
    """The number of commits since that of each record, by its name in git."""
    commits = sorted({_commit(record) for record in records} - {""})
    return {
        "at": _asked("rev-parse", "HEAD")[:7],
        "ages": {commit: int(_asked("rev-list", "--count", f"{commit}..HEAD")) for commit in commits},
    }


def _decided(claims: ClaimFile, record: ResultRecord | None) -> Findings:
    """What the record has found on the claims of a file, by their sentences; of one that was another then, nothing."""
    return {claim.says: None if record is None else _found(claim, claims, record) for claim in claims.claims}


def _found(claim: ClaimConfig, claims: ClaimFile, record: ResultRecord) -> Decided | None:
    """What a record has found on a claim: decided anew by the variances that it keeps, but for a cost."""
    same = ("says", "claim", "metric", "test", "margin")
    found = next((each for each in record.claims if all(each[key] == getattr(claim, key) for key in same)), None)
    if found is None:
        return None
    value, known = found["difference"], record.comparison or {}
    regime: Regime = found.get("regime", UNKNOWN)
    left, _, right = claim.inequality
    pairs = [*zip(known.get("pairs", ()), known.get("significance", ()), strict=True)]
    of_claim = [
        {"doubt": "", **pair, **chance}
        for pair, chance in pairs
        if {pair["a"], pair["b"]} == {left, right} and isclose(abs(pair["difference"]), abs(value))
        and pair["metric"].endswith(claim.test or "")
    ]  # fmt: skip
    values = found["values"][0], found["values"][1]
    of_outputs = claim.metric not in (*COSTS, LOGPROB) and "/" not in claim.claim
    metric = metric_of(claim, claims) if of_outputs else None
    nothing = metric is not None and score_nothing(values, metric)
    regime, kept = ("unlearned" if nothing else regime), of_claim[0]["doubt"] if of_claim else ""
    doubts = _doubt(record, left, kept), _doubt(record, right, kept)
    if not of_claim or claim.metric in COSTS:
        old = Decided(
            claim, value, found["low"], found["high"], values, found["finding"], found.get("needs", ""), regime
        )
        doubt = "" if claim.metric in COSTS or not old.is_decided else runs_needed(claim, old.finding, value, doubts)
        return replace(old, finding="rate?", needs=doubt) if doubt else old
    names = ("seeds", "segments", "seed_variance", "segment_variance", "interaction_variance", "pooled")
    estimate = Estimate(value, **{name: of_claim[0][name] for name in names if name in of_claim[0]})
    paper = claim.paper_difference(higher_is_better=higher_is_better(claim, claims))
    key = of_claim[0]["metric"]
    seeds = {name: known["variants"][name][key]["seeds"] for name in (left, right)}
    groups = None if nothing else in_groups(seeds, known["metrics"][key]["margin"])
    why = f"neither {UNLEARNED}" if nothing else groups.why if groups else ""
    level = looked_at(claims, record).level
    sign = 1 if higher_is_better(claim, claims) else -1
    ours, others = ([sign * score for score in seeds[name]] for name in (left, right))
    grouped = Grouped(ours, others, sign * groups.gap) if groups else None
    return decided_by(claim, estimate, values, level, paper, why=why, doubts=doubts, regime=regime, groups=grouped)


def _doubt(record: ResultRecord, variant: str, kept: str) -> str:
    """The runs that a variant needs before its learning rate can be trusted; empty if none.

    They stand in what a record has kept of a pair. Older records have notes below their tables alone.
    """
    name = variant.partition("/")[0]
    if own := [part for part in kept.split("; ") if re.search(f"(tune|suit) {re.escape(name)} ", part)]:
        return "; ".join(own)
    notes = [note for table in record.tables for note in table.get("notes", ())]
    reasons = {AT_EDGE: "the best rate of {} is at an edge", BY_CHANCE: "short runs do not tell the rates of {} apart"}
    found = list[str]()
    for pattern, reason in reasons.items():
        named = {one for note in notes if (match := pattern.search(note)) for one in match[1].split(", ")}
        found += [reason.format(name)] if name in named else []
    return "; ".join(found)


def looked_at(claims: ClaimFile, record: ResultRecord) -> ClaimFile:
    """The claims with the number of looks at which the record was made."""
    return claims.model_copy(update={"looks": record.looks})


def _claims_lines(name: str, claims: ClaimFile, found: Findings, record: ResultRecord | None) -> Iterator[str]:
    """What was found on the claims of a file, their verdicts, and where the rest is."""
    where = f"{claims.document}, {claims.table}" if claims.table else claims.document
    budget = claims.usual_budget
    data = claims.data_of(budget)
    options = "" if budget == USUAL_BUDGET else f" --budget {budget}"
    options += " --data FOLDER" if data.needs else ""
    command = f"headway reproduce {name.replace('-', '/', 1)}{options} --output runs"
    how = [f"`{command}` decides the [claims](../../claims/{name}.yaml)."]
    how += [f"FOLDER has {data.about}."] if data.needs else []
    if record is None:
        yield from _paragraph([f"{where}. {counted(len(found), 'claim')}, not run.", *how])
        return
    if claims.findings:
        yield from _items(claims.findings)
    looked = looked_at(claims, record)
    table = claims_table(found, looked, as_printed=False, missing=NOT_RUN)
    undecided = [each for each in found.values() if each and each.needs and SEEDS_NEEDED not in each.needs]
    notes = [f"{each.finding.capitalize()}, {each.claim.claim}: {each.needs}." for each in undecided]
    yield from _shown(Table(table.columns, table.rows, notes=notes), record)
    how += [f"The intervals have a level of {100 * looked.level:.3g} %."] if looked.looks > 1 else []
    yield from _paragraph([f"{where}: {claims.setting}.", *how, _rest(name, record)])


def _record_lines(name: str, record: ResultRecord, *, with_text: bool) -> Iterator[str]:
    """The first table of a record, its commands, and where the rest is."""
    yield from _paragraph(record.text if with_text else ())
    table = Table.from_json(record.tables[0])
    yield from _shown(Table(table.columns, table.rows, title=table.title), record)
    yield from ("", "```", *record.measured.commands, "```")
    yield from _paragraph([_rest(name, record), f"Machine: {record.measured.machine}."])


def _shown(table: Table, record: ResultRecord) -> Iterator[str]:
    yield from ("", table.markdown().rstrip("\n"))
    for figure in record.figures:
        yield from ("", f"![{figure.title}](../{figure.file})")


def _rest(name: str, record: ResultRecord) -> str:
    """Where a record is, and when and with which seeds it was measured."""
    measured, file = record.measured, f"results/{name}.json"
    seeds = f"{'seeds' if len(measured.seeds) > 1 else 'seed'} {', '.join(map(str, measured.seeds))}"
    when = f"measured on {measured.date} at {measured.commit} with {seeds}"
    return f"All other numbers are in [{file}](../../{file}), {when}."


def main() -> None:
    """Write the pages in place of those that are there, and how old records are."""
    records = [read_record(path) for path in (ROOT / "results").glob("*.json")]
    (ROOT / "results" / AGES).write_text(yaml.safe_dump(counted_ages(records)), encoding="utf-8")
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
