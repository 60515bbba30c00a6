"""Numbers that pages quote are those of the records, and pages say how old they are."""

import re
from collections.abc import Iterator
from datetime import date
from typing import Any

import pytest

from headway.claims.reproduce import ResultRecord, read_record
from tests.docs.pages import ROOT


def record(name: str) -> ResultRecord:
    return read_record(ROOT / "results" / f"{name}.json")


def day(name: str) -> str:
    """The day of a measurement, as pages write it."""
    measured = date.fromisoformat(record(name).measured.date)
    return f"{measured.day} {measured:%B %Y}"


def rows(name: str, table: int = 0) -> list[dict[str, Any]]:
    """The rows of a table by the names of its columns, without spreads."""
    found = record(name).tables[table]
    names = [column["name"] for column in found["columns"]]
    values = [[cell["value"] if isinstance(cell, dict) else cell for cell in row] for row in found["rows"]]
    return [dict(zip(names, row, strict=True)) for row in values]


def listed(values: list[str]) -> str:
    return f"{', '.join(values[:-1])} and {values[-1]}"


def first_ten_minutes() -> Iterator[str]:
    (start,), trained = rows("start"), rows("tanaka-twenty-minutes", 1)
    yield f"took {start['CPU time']:.0f} seconds of processor time"
    yield f"gave {start['BLEU']:.1f} BLEU on their 200 test pairs"
    yield f"({day('start')})"
    yield f"give more than {int(min(row['best BLEU'] for row in trained))} on dev"


def comparing() -> Iterator[str]:
    known = record("loem2023-layers").comparison
    assert known is not None
    scores = {name: known["variants"][name]["bleu"] for name in ("attention", "lowest-2")}
    seeds = {name: listed([f"{score:.1f}" for score in of["seeds"]]) for name, of in scores.items()}
    pairs = zip(known["pairs"], known["significance"], strict=True)
    pair, chance = next(each for each in pairs if (each[0]["a"], each[0]["b"], each[0]["metric"]) == (*scores, "bleu"))
    means = [of["mean"] for of in scores.values()]
    shares = zip(scores["lowest-2"]["seeds"], scores["attention"]["seeds"], strict=True)
    yield f"has {seeds['attention']} BLEU"
    yield f"have {seeds['lowest-2']}"
    yield f"The means are {listed([f'{mean:.1f}' for mean in means])}"
    yield f"the differences are {listed([f'{one - other:+.1f}' for one, other in shares])}"
    yield f"{pair['difference']:+.1f} [{pair['low']:+.1f}, {pair['high']:+.1f}], with p = {chance['p']:.3f}"
    yield f"raises its p to {chance['p_holm']:.2f}"
    yield f"({day('loem2023-layers')})"
    three, five = (
        next(row for row in rows("coverage") if row["seeds"] == n and row["sd between seeds"] == 0.5) for n in (3, 5)
    )
    yield f"{three['intervals that hold the truth']:.1f} % of the 95 % intervals hold the true difference"
    yield f"{three['false verdicts, A against A']:.1f} % of two equal systems get a verdict"
    power = [row["power, 1 BLEU"] for row in (three, five)]
    yield f"in {power[0]:.0f} % of comparisons with three such seeds, and in {power[1]:.0f} % with five"
    yield f"({day('coverage')})"


def verdict() -> Iterator[str]:
    for row in rows("coverage"):
        shown = [f"{value:.1f}" for value in list(row.values())[1:-1]]
        yield f"| {row['seeds']} | {' | '.join(shown)} | {row['width']:.2f} |"
    yield f"({day('coverage')})"


def sizes() -> Iterator[str]:
    (start,), small = rows("start"), rows("tanaka-fast")
    trained, sequel = rows("tanaka-twenty-minutes", 1), [rows(f"headway-tanaka-{n}k")[0] for n in (10, 25)]
    scores = sorted(row["best BLEU"] for row in trained)
    yield f"| {start['BLEU']:.1f} BLEU on test, three seeds | {start['CPU time']:.0f} seconds of one core |"
    for row in sequel:
        yield f"| {row['BLEU']:.1f} BLEU on test after 1,000 updates, three seeds | {row['CPU time'] / 60:.0f} minutes"
    yield f"BLEU rose from {sequel[0]['BLEU']:.1f} to {sequel[1]['BLEU']:.1f} only"
    yield f"| {small[0]['best BLEU']:.1f} BLEU on dev, three seeds |"
    yield f"| {scores[0]:.1f} to {scores[-1]:.1f} BLEU on dev, three seeds |"
    updates = sorted(row["update with 40"] for row in trained)
    yield f"reached 40 BLEU after {updates[0]:,} to {updates[-1]:,} updates"
    slow, quick = (row["CPU minutes to 37.7"] for row in small)
    yield f"after {slow:.1f} minutes, and 2+2 layers of 256/512 with 4,000 pieces after {quick:.1f} minutes"
    names = (
        "start",
        "headway-tanaka-10k",
        "headway-tanaka-25k",
        "tanaka-fast",
        "multi30k-fast",
        "tanaka-twenty-minutes",
        "students",
    )
    days = sorted(record(name).measured.date for name in names)
    yield f"measured from {date.fromisoformat(days[0]).day} to {date.fromisoformat(days[-1]):%d %B %Y}".replace(
        " 0", " "
    )


def fine_tuning() -> Iterator[str]:
    gain, loss = (claim["difference"] for claim in record("headway-captions").claims[:2])
    yield f"gained {gain:.1f} BLEU on captions and lost {-loss:.1f} on the text of before ({day('headway-captions')})"


def teaching() -> Iterator[str]:
    power = [row["power, 1 BLEU"] for row in rows("coverage") if row["seeds"] == 3]
    yield f"gets its verdict in {min(power):.0f} to {max(power):.0f} % of comparisons"


def found(name: str, claim: str) -> dict[str, Any]:
    """The finding of a record on a claim."""
    return next(each for each in record(name).claims if each["claim"] == claim)


def interval(of: dict[str, Any]) -> str:
    return f"{of['difference']:+.1f} [{of['low']:+.1f}, {of['high']:+.1f}]"


def claims() -> Iterator[str]:
    forgets = found("headway-captions", "tuned >= before")
    gains = interval(found("headway-captions", "tuned > before")).replace(" [", " BLEU [")
    yield f"fine-tuning gains on captions: {gains}"
    yield f"10,000 pairs: {interval(found('headway-tanaka-10k', 'backtranslated > plain'))}"
    yield f"a global vector helps: {interval(found('loem2023-translation', 'multinn > no-global'))}"
    yield f"The loss is {-forgets['difference']:.1f} BLEU [{forgets['low']:.1f}, {forgets['high']:.1f}]"
    yield f"that score is {rows('loem2023-translation', 2)[0]['best on dev']:.1f} BLEU"


def more_data() -> Iterator[str]:
    back, sampled = (found("headway-tanaka-10k", f"{name} > plain") for name in ("backtranslated", "sampled"))
    yield f"back-translation cost {-back['difference']:.1f} BLEU and subword sampling {-sampled['difference']:.1f}"
    yield f"({day('headway-tanaka-10k')})"


def dependencies() -> Iterator[str]:
    share = list(rows("ewt-heads")[0].values())[1]
    yield f"[{share:.1f} % of the words of dev]"
    yield f"({day('ewt-heads')})"


PAGES = {
    "first-ten-minutes": first_ten_minutes, "comparing": comparing, "verdict": verdict, "sizes": sizes,
    "fine-tuning": fine_tuning, "teaching": teaching, "claims": claims, "more-data": more_data,
    "dependencies": dependencies,
}  # fmt: skip


@pytest.mark.parametrize("page", PAGES)
def test_numbers_are_those_of_the_records(page: str) -> None:
    text = re.sub(r"\s+", " ", (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8"))
    assert [quoted for quoted in PAGES[page]() if quoted not in text] == []
