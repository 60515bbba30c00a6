"""The pages of results are what the records say."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from headway.comparison.reproduce import ResultRecord, measured_now, read_record, write_record
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


RECORD = {"title": "x", "measured": {"commands": [], "machine": "m", "commit": "c", "date": "d"}}
FOUND = {"says": "s", "metric": None, "test": None}


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
        "# R\n", "- [S](results/s.md): ", "; Words.\n", "| kaneko2019/layers | S | 0 | 0 | 0 | 6 |",
    ):  # fmt: skip
        assert text in pages["results.md"], text
    for text in (
        "# S\n", COMMAND, "\nOne. Two.\n", "**Scores**", "| a | 12.35 ± 0.50 |", "a note", "seeds 1, 2.*",
        "| Pre-training helps. | bert > untrained + 1 | +30.10 |  | not run |",
        "`headway reproduce kaneko2019/layers --data FOLDER --output",
    ):  # fmt: skip
        assert text in pages["results/s.md"], text


def test_the_tables_of_a_record_with_claims_are_folded_below_them(folders: tuple[Path, Path]) -> None:
    results, _ = folders
    decided = Table(
        ["claim", "inequality", "paper", "ours", "verdict"],
        [["Pre-training helps.", "bert > untrained + 1", "+30.10", "+9.00", "holds"]],
    )
    tables = [decided.to_json(), *read_record(results / "speed" / "words.json").tables]
    claim = {"says": "Pre-training helps.", "claim": "bert > untrained + 1", "metric": None, "test": None}
    record = ResultRecord(title="L", measured=measured_now([COMMAND], [1]), tables=tuple(tables), claims=(claim,))
    write_record(results / "kaneko2019-layers.json", record)
    contents = (results / "contents.yaml").read_text().replace("['speed/*']", "['*']")
    (results / "contents.yaml").write_text(contents, encoding="utf-8")
    page = results_pages(*folders)["results/s.md"]
    above, folded = page.split('<details markdown="1"><summary>Scores, costs and differences</summary>\n')
    assert "| Pre-training helps. | bert > untrained + 1 | +30.10 | +9.00 | holds |" in above
    folded, below = folded.split("\n</details>\n")
    assert "| a | 12.35 ± 0.50 |" in folded
    assert "*Measured on" in below


def test_a_record_says_nothing_of_other_claims_and_keeps_its_own_level(folders: tuple[Path, Path]) -> None:
    results, _ = folders
    says = ("Pre-training helps.", "The mean of all layers is better than the last layer.")
    rows = [[says[0], "bert > untrained + 3", "", "+9.00", "holds"], [says[1], "avgl > bert", "", "+1.00", "holds"]]
    decided = Table(["claim", "inequality", "paper", "ours", "verdict"], rows, notes=["With the 90 % interval."])
    asked = [{"says": says[0], "metric": None, "test": None}, {"says": says[1], "metric": "accuracy", "test": None}]
    record = ResultRecord(
        title="L", measured=measured_now([COMMAND], [1]), tables=(decided.to_json(),), claims=tuple(asked)
    )
    write_record(results / "kaneko2019-layers.json", record)
    contents = (results / "contents.yaml").read_text().replace("['speed/*']", "['*']")
    (results / "contents.yaml").write_text(contents, encoding="utf-8")
    page = results_pages(*folders)["results/s.md"]
    assert "With the 90 % interval." in page
    for name in says:
        (row,) = (line for line in page.splitlines() if line.startswith(f"| {name}"))
        assert row.endswith("| not run |"), row


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
        ({"speed/words.json": json.dumps({"title": "x"})}, "measured: this key is needed"),
        ({"speed/words.json": json.dumps(RECORD | {"claims": [{}]})}, "a claim of a record has says, metric and test"),
        ({"speed/words.json": json.dumps(RECORD | {"claims": [FOUND]})}, "a record with claims has their table"),
        (
            {"speed/words.json": json.dumps(RECORD | {"claims": [FOUND], "tables": [{"columns": [], "rows": []}]})},
            "a record with claims has their table",
        ),
    ],
)
def test_a_mistake_is_named(folders: tuple[Path, Path], change: dict[str, Any], message: str) -> None:
    results, claims = folders
    for name, text in change.items():
        (results / name).write_text(text)
    with pytest.raises(UserError, match=message):
        results_pages(results, claims)
