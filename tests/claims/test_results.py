"""The pages of results are what the records say."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from headway.claims.reproduce import ResultRecord, measured_now, read_record, write_record
from headway.core.errors import UserError
from headway.core.tables import Column, Spread, Table
from tools.results_page import results_pages

ROOT = Path(__file__).parents[2]
COMMAND = "headway compare g.yaml \\\n    --output d"


def test_the_pages_are_not_stale() -> None:
    pages = results_pages(ROOT / "results", ROOT / "claims")
    written = {name: (ROOT / "docs" / name).read_text(encoding="utf-8") for name in pages}
    assert written == pages, "run `python tools/results_page.py`"
    there = {f"results/{file.name}" for file in (ROOT / "docs" / "results").iterdir()}
    assert there == pages.keys() - {"results.md"}
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert [name for name in pages if f"- {name}\n" not in navigation] == []
    command = "`headway reproduce loem2023/articles --budget full --data FOLDER --output runs`"
    assert command in pages["results/summarization.md"].replace("\n", " ")


def test_a_record_may_be_that_of_another_page(folders: tuple[Path, Path]) -> None:
    (folders[0] / "contents.yaml").write_text("title: R\nelsewhere: [speed/*]\nsections: []\n", encoding="utf-8")
    assert results_pages(*folders) == {"results.md": "# R\n\n"}


def test_what_the_page_shows_is_there() -> None:
    for path in (ROOT / "results").rglob("*.json"):
        if path.parent.name == "reliability":  # of campaigns, whose page is another
            continue
        record = read_record(path)
        assert all((ROOT / "docs" / figure.file).is_file() for figure in record.figures), path
        assert record.measured.commit
        assert record.measured.date


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Records and claims in folders of their own: one record, one section."""
    results = tmp_path / "results"
    (results / "speed").mkdir(parents=True)
    shutil.copy(ROOT / "claims" / "kaneko2019-layers.yaml", tmp_path)
    table = Table(
        ["system", Column("BLEU", format=".2f")], [["a", Spread(12.346, 0.5)]], title="Scores", notes=["a note"]
    )
    measured = measured_now([COMMAND], [1, 2])
    record = ResultRecord(title="Words", measured=measured, text=("One.", "Two."), tables=(table.to_json(),))
    write_record(results / "speed" / "words.json", record)
    contents = "title: R\nsections: [{title: S, records: ['speed/*'], claims: [kaneko2019-layers]}]\n"
    (results / "contents.yaml").write_text(contents)
    return results, tmp_path


def test_a_record_becomes_a_page_and_a_line_of_the_overview(folders: tuple[Path, Path]) -> None:
    pages = results_pages(*folders)
    assert list(pages) == ["results.md", "results/s.md"]
    for text in (
        "# R\n", "- [S](results/s.md): ", "; Words.\n", "| kaneko2019/layers | S | 0 | 0 | 0 | 0 | 0 | 0 | 6 | 0 |",
    ):  # fmt: skip
        assert text in pages["results.md"], text
    for text in (
        "# S\n", COMMAND, "\nOne. Two.\n", "**Scores**", "| a | 12.35 ± 0.50 |", "6 claims, not run.",
        "(../../results/speed/words.json)", "seeds 1, 2.",
        "`headway reproduce kaneko2019/layers --data FOLDER --output",
    ):  # fmt: skip
        assert text in pages["results/s.md"], text
    assert "a note" not in pages["results/s.md"]


def pages_of(folders: tuple[Path, Path], record: ResultRecord) -> dict[str, str]:
    """The pages with a record of the claims of kaneko2019/layers."""
    results, _ = folders
    write_record(results / "kaneko2019-layers.json", record)
    contents = (results / "contents.yaml").read_text().replace("['speed/*']", "['*']")
    (results / "contents.yaml").write_text(contents, encoding="utf-8")
    return results_pages(*folders)


def row_of(page: str, says: str) -> list[str]:
    (row,) = (line for line in page.splitlines() if line.startswith(f"| {says}"))
    return row.strip("| ").split(" | ")


HELPS, MEAN = "Pre-training helps.", "The mean of all layers is better than the last layer."


def found(says: str, claim: str, difference: float, half: float, finding: str, **others: Any) -> dict[str, Any]:
    values = {"difference": difference, "low": difference - half, "high": difference + half, "values": [50, 40]}
    return {
        "says": says,
        "claim": claim,
        "metric": None,
        "test": None,
        "margin": 0,
        "finding": finding,
        **values,
        **others,
    }


def record_with(*claims: dict[str, Any], **others: Any) -> ResultRecord:
    return ResultRecord(title="L", measured=measured_now([COMMAND], [1]), claims=claims, **others)


def test_claims_have_their_verdicts_as_the_only_table(folders: tuple[Path, Path]) -> None:
    tables = read_record(folders[0] / "speed" / "words.json").tables
    page = pages_of(folders, record_with(found(HELPS, "bert > untrained", 9, 1, "holds", margin=1), tables=tables))[
        "results/s.md"
    ]
    of_claims, of_words = page.split("\n## Words\n")
    assert row_of(of_claims, HELPS)[3:] == ["+9.00 [+8.00, +10.00]", "unknown", "holds"]
    assert "| a | 12.35 ± 0.50 |" in of_words
    assert "| a | 12.35 ± 0.50 |" not in of_claims
    assert "(../../results/kaneko2019-layers.json)" in of_claims


def test_a_record_has_its_first_table_and_no_text_if_the_page_has_another(folders: tuple[Path, Path]) -> None:
    path = folders[0] / "speed" / "words.json"
    (table,) = read_record(path).tables
    write_record(path, read_record(path).model_copy(update={"tables": (table, table | {"title": "Costs"})}))
    contents = (folders[0] / "contents.yaml").read_text().replace("{title: S,", "{title: S, record_text: false,")
    (folders[0] / "contents.yaml").write_text(contents, encoding="utf-8")
    page = results_pages(*folders)["results/s.md"]
    assert "**Scores**" in page
    assert "**Costs**" not in page
    assert "One. Two." not in page


def test_a_record_says_nothing_of_other_claims_and_keeps_its_own_level(folders: tuple[Path, Path]) -> None:
    others = [
        found(HELPS, "bert > untrained", 9, 1, "holds", margin=3),
        found(MEAN, "avgl > bert", 1, 1, "holds", metric="f"),
    ]
    page = pages_of(folders, record_with(*others, looks=2))["results/s.md"]
    assert "The intervals have a level of 97.5 %." in " ".join(page.split())
    assert [row_of(page, name)[-1] for name in (HELPS, MEAN)] == ["not run"] * 2


def compared(difference: float, *seeds: list[float], seed_variance: float = 1.0) -> dict[str, Any]:
    """What a record keeps of a pair: `bert` and `avgl`."""
    pair = {"a": "bert", "b": "avgl", "metric": "f0.5 on realec", "difference": difference}
    chance = {"seeds": 5, "segments": 400, "seed_variance": seed_variance, "segment_variance": 0.01}
    scores = {name: {"f0.5 on realec": {"seeds": row}} for name, row in zip(("bert", "avgl"), seeds, strict=True)}
    return {
        "pairs": [pair], "significance": [pair | chance], "variants": scores,
        "metrics": {"f0.5 on realec": {"margin": 1.0}},
    }  # fmt: skip


def test_old_records_are_decided_anew(folders: tuple[Path, Path]) -> None:
    alike = [50.0, 50.5, 51.0, 51.5, 52.0]
    old = found(MEAN, "avgl > bert", 0.5, 0.2, "holds", test="realec", needs="1 seed would do it")
    page = pages_of(folders, record_with(old | {"test": None}, comparison=compared(0.5, alike, alike)))["results/s.md"]
    assert row_of(page, MEAN)[-1] == "open", "the interval is that of the variances"
    assert "Open, avgl > bert" not in page, "a claim that needs more seeds has no reason below the table"


def test_no_mean_decides_where_seeds_fall_in_two_groups(folders: tuple[Path, Path]) -> None:
    split, alike, apart = [10.0, 10.5, 50.0, 50.5, 51.0], [9.0, 9.2, 10.2, 9.1, 9.3], [9.0, 9.2, 9.4, 9.1, 9.3]
    old = found(MEAN, "avgl > bert", 30.0, 2.0, "holds")
    page = pages_of(folders, record_with(old, comparison=compared(30.0, alike, split)))["results/s.md"]
    assert row_of(page, MEAN)[-3:] == ["+30.00", "unknown", "open"]
    assert "the seeds of avgl fall in two groups, and above 30.25 are 3 of 5 of avgl and 0 of 5 of bert" in page
    page = pages_of(folders, record_with(old, comparison=compared(30.0, apart, split)))["results/s.md"]
    assert row_of(page, MEAN)[-1] == "holds", "every seed of one is above every seed of the other"


def test_pages_say_what_is_early_and_how_many_verdicts_may_be_wrong(folders: tuple[Path, Path]) -> None:
    early = found(HELPS, "bert > untrained", 9, 1, "holds", margin=1, regime="early")
    pages = pages_of(folders, record_with(early, found(MEAN, "avgl > bert", 1, 2, "open", regime="unknown")))
    assert row_of(pages["results/s.md"], HELPS)[-2:] == ["early", "holds early"]
    paragraphs = pages["results/s.md"].split("\n\n")[1], pages["results.md"].split("## How sure this is\n\n")[1]
    for text in paragraphs:
        assert text.startswith("**Most of these findings are on early training.** Of 1 decided claim, 1 are on early")
    said = " ".join(paragraphs[1].split("\n\n")[0].split())
    assert "2 claims were run, and 1 are decided." in said
    assert "up to 0.1 wrong verdicts" in said, "a twentieth of both: an open claim could have been decided"
    assert "| kaneko2019/layers | S | 0 | 1 | 0 | 0 | 1 | 0 | 4 | 0 |" in pages["results.md"]


@pytest.mark.parametrize(
    "note",
    [
        "optimizer.learning_rate: the best for untrained, shmla is the highest that was tried, 0.0001",
        "optimizer.learning_rate: the short runs of untrained do not tell its values apart (p > 0.05)",
    ],
)
def test_the_notes_of_a_record_make_a_rate(folders: tuple[Path, Path], note: str) -> None:
    table = Table(["variant"], [["bert"]], notes=[note])
    claims = found(HELPS, "bert > untrained", 9, 1, "holds", margin=1), found(MEAN, "avgl > bert", 1, 2, "open")
    pages = pages_of(folders, record_with(*claims, tables=(table.to_json(),)))
    assert [row_of(pages["results/s.md"], says)[-1] for says in (HELPS, MEAN)] == ["rate?", "open"]
    assert "Rate?, bert > untrained: " in pages["results/s.md"]
    better = note.replace("untrained", "bert")
    kept = pages_of(folders, record_with(*claims, tables=(Table(["variant"], [["bert"]], notes=[better]).to_json(),)))
    assert row_of(kept["results/s.md"], HELPS)[-1] == "holds", "with a better rate, bert would be better still"
    assert "Of 1 further claim, the learning rate may decide" in " ".join(pages["results.md"].split())


def test_models_that_learned_nothing_are_at_no_plateau(folders: tuple[Path, Path]) -> None:
    row = [0.3, 0.4, 0.35, 0.3, 0.4]
    old = found(MEAN, "avgl > bert", 0.02, 0.01, "holds", regime="plateau") | {"values": [0.36, 0.34]}
    page = pages_of(folders, record_with(old, comparison=compared(0.02, row, row)))["results/s.md"]
    assert row_of(page, MEAN)[-2:] == ["unlearned", "open"]
    assert "neither has learned" in page


def test_our_own_claims_have_a_table_of_their_own(folders: tuple[Path, Path]) -> None:
    results, claims = folders
    tree = (claims / "kaneko2019-layers.yaml").read_text(encoding="utf-8")
    ours = re.sub("^document: .*", "document: headway", tree, flags=re.MULTILINE)
    (claims / "headway-layers.yaml").write_text(ours, encoding="utf-8")
    contents = (
        (results / "contents.yaml").read_text().replace("[kaneko2019-layers]", "[kaneko2019-layers, headway-layers]")
    )
    (results / "contents.yaml").write_text(contents, encoding="utf-8")
    of_papers, of_ours = results_pages(*folders)["results.md"].split("**Our own claims by their verdicts**")
    assert ("kaneko2019/layers" in of_papers, "kaneko2019/layers" in of_ours) == (True, False)
    assert ("headway/layers" in of_papers, "headway/layers" in of_ours) == (False, True)


def test_the_overview_says_how_old_records_are(folders: tuple[Path, Path]) -> None:
    record = record_with(found(HELPS, "bert > untrained", 9, 1, "holds", margin=1))
    commit = record.measured.commit.rstrip("+")
    (folders[0] / "ages.yaml").write_text(f"at: abcdef0\nages: {{'{commit}': 7}}\n", encoding="utf-8")
    text = " ".join(pages_of(folders, record)["results.md"].split())
    assert "In the median, a record of claims is 7 commits older than abcdef0." in text


def test_the_overview_and_the_page_have_findings_first(folders: tuple[Path, Path]) -> None:
    contents = (folders[0] / "contents.yaml").read_text().replace("{title: S,", "{title: S, found: [One., Two.],")
    (folders[0] / "contents.yaml").write_text(contents, encoding="utf-8")
    pages = results_pages(*folders)
    assert pages["results.md"].startswith("# R\n\n- [S](results/s.md): One. Two.\n")
    assert pages["results/s.md"].startswith("# S\n\nOne. Two.\n")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"contents.yaml": "title: R\nsections: []\n"},
            "no section of the page has this record; received 'speed/words'",
        ),
        ({"contents.yaml": "title: R\nsections: [{title: S, records: [word]}]\n"}, "there is no such record"),
        ({"contents.yaml": "title: R\nsection: []\n"}, "section: unknown key"),
        ({"speed/words.json": "{"}, r"words\.json:1: the record is damaged: not JSON"),
        ({"speed/words.json": json.dumps({"title": "x"})}, r"words\.json: this record is damaged \(measured: "),
    ],
)
def test_a_mistake_is_named(folders: tuple[Path, Path], change: dict[str, Any], message: str) -> None:
    results, claims = folders
    for name, text in change.items():
        (results / name).write_text(text)
    with pytest.raises(UserError, match=message):
        results_pages(results, claims)
