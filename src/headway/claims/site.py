"""`headway site`: a static page of packed papers, with findings, ranks, and the command that replays each.

Nothing of a pack is run, unpacked or trusted: its files are read as data, and shown as text.
"""

from __future__ import annotations

import html
import shlex
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ConfigDict, TypeAdapter

from headway.claims.claims import ClaimConfig, ClaimData, Decided
from headway.claims.paper import CLAIMS, MEMBER, PAPER, PaperConfig, opened_paper
from headway.claims.reproduce import NAMES_DATA, RECORD, ResultRecord
from headway.core.config import Score, Section
from headway.core.documents import LARGEST_JSON, LARGEST_YAML, parse_json, parse_yaml, shaped
from headway.core.errors import UserError
from headway.core.files import sha256
from headway.core.log import counted
from headway.core.storage import check_new, put_in_place, workspace
from headway.core.tables import Cell, Column, Spread, Table
from headway.pages.page import write_page

PACKS = "packs"
NOT_DECIDED = "not decided"
TRUST = (
    "The findings are those that the packs record: nothing of them was run. A command below each decides them again."
)

Value = TypeVar("Value")


class Shown(Section):
    """The part of a document that a page shows."""

    model_config = ConfigDict(extra="ignore")


class ShownClaims(Shown):
    """A claim file."""

    title: str
    document: str
    data: ClaimData
    full_data: ClaimData | None = None
    claims: tuple[ClaimConfig, ...]


class ShownScore(Shown):
    """The mean score of a system over seeds, and the standard deviation between them."""

    mean: Score
    sd: Score | None = None


class ShownComparison(Shown):
    """The systems with their scores (and costs) by measure, the verdicts on pairs, and the measures."""

    variants: dict[str, dict[str, ShownScore | Score | str | None]]
    pairs: tuple[dict[str, Any], ...]
    metrics: dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Paper:
    """The content of a pack that a page shows. Without a record, nothing was decided when it was packed."""

    pack: Path
    about: PaperConfig
    claims: ShownClaims
    record: ResultRecord | None
    findings: Sequence[tuple[ClaimConfig, Decided | None]]
    comparison: ShownComparison | None

    def summary(self) -> str:
        """The number of claims by finding, such as `2 holds, 1 open`."""
        counts = Counter(NOT_DECIDED if found is None else found.finding for _, found in self.findings)
        return ", ".join(f"{count} {finding}" for finding, count in counts.most_common())


def read_paper(pack: Path) -> Paper:
    """Read a pack without unpacking it. Raises UserError if it is damaged or no pack of a paper."""
    if not MEMBER.fullmatch(pack.name):
        raise UserError("this name cannot be part of a site", where=pack.name, allowed="letters, digits and -_.@+=")
    with opened_paper(pack) as archive:

        def read(
            name: str, shape: type[Value], parse: Callable[[str, str], Any] = parse_json, most: int = LARGEST_JSON
        ) -> Value:
            if name not in archive.namelist() or archive.getinfo(name).file_size > most:
                what = f"a file of this pack is missing, or has more than {most:,} bytes"
                raise UserError(what, where=str(pack), received=name)
            where = f"{pack}: {name}"
            return shaped(parse(archive.read(name).decode(), where), TypeAdapter(shape), where)

        about = read(PAPER, PaperConfig)
        claims = read(f"{CLAIMS}/{about.claims}.yaml", ShownClaims, parse_yaml, LARGEST_YAML)
        record = read(RECORD, ResultRecord) if RECORD in archive.namelist() else None
    where, decided, comparison = f"{pack}: {RECORD}", dict[tuple[str, str], Decided](), None
    for found in () if record is None else record.claims:
        claim = {name: value for name, value in found.items() if name in ClaimConfig.model_fields}
        one = shaped({**found, "claim": claim}, TypeAdapter(Decided), where, "a finding")
        decided[one.claim.says, one.claim.claim] = one
    if record is not None and record.comparison is not None:
        comparison = shaped(record.comparison, TypeAdapter(ShownComparison), where, "the comparison")
    findings = [(claim, decided.get((claim.says, claim.claim))) for claim in claims.claims]
    return Paper(pack, about, claims, record, findings, comparison)


def verdict_groups(ordered: Sequence[str], better: set[tuple[str, str]]) -> Iterator[list[str]]:
    """Split systems, best first, into groups as small as possible (the clusters of Bojar et al. 2016).

    Each system of a group is better, by the verdicts `better`, than all systems of later groups. Systems that are not
    told apart are in one group.
    """
    begin = 0
    for end in range(1, len(ordered) + 1):
        if all((above, below) in better for above in ordered[begin:end] for below in ordered[end:]):
            yield list(ordered[begin:end])
            begin = end


def rank_table(comparison: ShownComparison, metric: str) -> Table:
    """The systems by one measure, with their ranks. The systems of a verdict group share the rank of the first."""
    facts, better = comparison.metrics[metric], set[tuple[str, str]]()
    measured = ((name, values.get(metric)) for name, values in comparison.variants.items())
    scores = {name: score for name, score in measured if isinstance(score, ShownScore)}
    for pair in comparison.pairs:
        if pair.get("metric") == metric and pair.get("verdict") in ("better", "worse"):
            ends = str(pair.get("b")), str(pair.get("a"))
            better.add(ends if pair["verdict"] == "better" else ends[::-1])
    ordered = sorted(scores, key=lambda name: scores[name].mean, reverse=bool(facts.get("higher_is_better", True)))
    rows, rank = list[list[Cell]](), 1
    for group in verdict_groups(ordered, better):
        shown = [(name, scores[name].mean, scores[name].sd) for name in group]
        rows += [[rank, name, mean if sd is None else Spread(mean, sd)] for name, mean, sd in shown]
        rank += len(group)
    columns = [Column("rank"), Column("system"), Column(metric, format=".2f")]
    note = "Systems that the verdicts do not tell apart share a rank. ±: standard deviation between seeds."
    return Table(columns, rows, title=f"Ranks by {metric}", notes=[note, str(facts.get("signature", ""))])


def finding_table(paper: Paper) -> Table:
    """A row for each claim of a paper, with its verdict."""
    rows = list[list[Cell]]()
    for claim, found in paper.findings:
        margin = f", margin {claim.margin:g}" if claim.margin else ""
        verdict, regime, difference = NOT_DECIDED, "", ""
        if found is not None:
            interval = "" if found.low is None else f" [{found.low:+.2f}, {found.high:+.2f}]"
            verdict, regime, difference = found.verdict, found.regime, f"{found.difference:+.2f}{interval}"
        rows.append([claim.says, verdict, f"{claim.claim}{margin}", difference, regime])
    columns = [Column(name, align="left") for name in ("claim", "verdict", "inequality", "difference", "training")]
    note = "A difference is that of the left system to the right one, above 0 if it is better, with its interval."
    return Table(columns, rows, title="Claims", notes=[note])


def paper_section(paper: Paper, place: str, spell: Callable[[str], str]) -> Iterator[str]:
    """The markup of a paper. All text is escaped. `spell` writes an option of its command."""
    claims, about, name = paper.claims, paper.about, html.escape(paper.pack.name)
    measured = about if paper.record is None else paper.record.measured
    data = claims.full_data if about.budget == "full" and claims.full_data is not None else claims.data
    facts = {"document": claims.document, "measured": measured.date, "commit": measured.commit}
    facts |= {"machine": measured.machine, "budget": about.budget, "data": data.about}
    yield f'<section id="{place}"><h2>{html.escape(claims.title)}</h2><dl>'
    yield from (f"<dt>{fact}</dt><dd>{html.escape(value)}</dd>" for fact, value in facts.items())
    yield f'</dl><div class="wide">{finding_table(paper).html()}</div>'
    if paper.comparison is not None:
        for metric in paper.comparison.metrics:
            yield f'<div class="wide ranks">{rank_table(paper.comparison, metric).html()}</div>'
    given = [spell("data"), "DATA"] if data.needs or NAMES_DATA.search(data.prepare) else []
    command = shlex.join(["headway", "reproduce", paper.pack.name, *given, spell("output"), "replayed"])
    yield f"<pre><code>{html.escape(command)}</code></pre>"
    yield f'<p><a href="{PACKS}/{name}" download>{name}</a>, SHA-256 <code>{sha256(paper.pack)}</code></p>'
    hashes = Table(["file", "SHA-256"], [*about.data.items()])
    yield f"<details><summary>{counted(len(hashes.rows), 'file')} of data</summary>"
    yield f'<div class="wide hashes">{hashes.html()}</div></details></section>'


def write_site(packs: Sequence[Path], output: Path, spell: Callable[[str], str]) -> list[str]:
    """Write a folder with a page of all papers and their packs. Returns a line for each paper.

    `spell` writes an option as the user's shell does. Raises UserError if a pack cannot be read, two have the same
    name, or `output` exists.
    """
    check_new(output, "output")
    names = Counter(pack.name for pack in packs)
    if twice := [name for name, count in names.items() if count > 1]:
        raise UserError("two packs have the same name", where="PACK", received=twice[0])
    papers, links, sections = [read_paper(pack) for pack in packs], list[str](), list[str]()
    for number, paper in enumerate(papers, start=1):
        links.append(f'<li><a href="#paper-{number}">{html.escape(paper.claims.title)}</a>: {paper.summary()}</li>')
        sections += paper_section(paper, f"paper-{number}", spell)
    with workspace(output.absolute().parent, output) as place:
        (place / "site" / PACKS).mkdir(parents=True)
        for pack in packs:
            shutil.copyfile(pack, place / "site" / PACKS / pack.name)
        write_page(
            place / "site" / "index.html", "site.html", title=f"{counted(len(papers), 'paper')}, and what was found",
            styles=("palette.css", "report.css", "site.css"), scripts=(), data={},
            assets=resources.files(__package__).joinpath("page"),
            elements=[f"<p>{TRUST}</p>", "<ul>", *links, "</ul>", *sections, "</main>"],
        )  # fmt: skip
        put_in_place(place / "site", output)
    return [f"{paper.claims.document}: {paper.claims.title}: {paper.summary()}" for paper in papers]
