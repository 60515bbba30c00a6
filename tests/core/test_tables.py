"""A table says the same in all of its formats."""

import csv
import io
import json
import sys

import pytest

from headway.core.tables import Column, Spread, Table, display_width

TABLE = Table(
    ["system", Column("BLEU", format=".2f"), Column("size", "MB", format=",.1f"), Column("words", format=","), "done"],
    [
        ["a_b & co", Spread(12.25, 0.5), 1234.5, 12345, True],
        ["日本", Spread(9.0, 1.25), None, 7, False],
    ],
    title="Scores <1>",
    notes=["±: half of the interval"],
)


def test_text_aligns_what_is_shown() -> None:
    assert TABLE.text().splitlines() == [
        "Scores <1>",
        "system            BLEU  size (MB)   words  done",
        "a_b & co  12.25 ± 0.50    1,234.5  12,345  yes",
        "日本       9.00 ± 1.25                  7  no",
        "±: half of the interval",
    ]


def test_widths_are_those_of_a_terminal() -> None:
    assert [display_width(text) for text in ("abc", "日本", "e\u0301", "")] == [3, 4, 1, 0]


def test_json_and_csv_have_the_values_whole() -> None:
    content = json.loads(json.dumps(TABLE.to_json(), allow_nan=False))
    assert content["columns"][2] == {"name": "size", "unit": "MB", "format": ",.1f"}
    assert content["rows"][0] == ["a_b & co", {"value": 12.25, "spread": 0.5}, 1234.5, 12345, True]
    assert Table(["x"], [[float("nan")]]).to_json()["rows"] == [[None]]
    rows = list(csv.reader(io.StringIO(TABLE.csv())))
    assert rows[0] == ["system", "BLEU", "BLEU ±", "size", "words", "done"]
    assert rows[1] == ["a_b & co", "12.25", "0.5", "1234.5", "12345", "True"]
    assert Table(["x", "n"], [[1 / 3, 10_000_000]]).csv(digits=6) == "x,n\n0.333333,10000000\n"


def test_json_brings_a_table_back() -> None:
    again = Table.from_json(json.loads(json.dumps(TABLE.to_json())))
    assert (again.text(), again.markdown(), again.notes) == (TABLE.text(), TABLE.markdown(), TABLE.notes)
    for values in ({}, {"columns": [{"nome": "x"}], "rows": []}, {"columns": [{"name": "x"}], "rows": [[1, 2]]}, None):
        with pytest.raises(ValueError, match="table"):
            Table.from_json(values)


def test_markup_is_escaped_in_every_format() -> None:
    table = Table(["a|b", Column("n")], [["<script>_x_ 5%", 1]], title="<t>")
    assert table.markdown().splitlines() == [
        "**\\<t>**",
        "",
        "| a\\|b | n |",
        "| --- | ---: |",
        "| \\<script>\\_x\\_ 5% | 1 |",
    ]
    assert "<td>&lt;script&gt;_x_ 5%</td>" in table.html()
    assert "<caption>&lt;t&gt;</caption>" in table.html()
    assert '<th scope="col" class="number">n</th>' in table.html()
    assert r"\textless{}script\textgreater{}\_x\_ 5\% & 1 \\" in table.latex()
    assert table.latex().startswith("\\begin{tabular}{lr}\n\\toprule\n")


def test_text_columns_stay_on_the_left_and_a_column_may_say_otherwise() -> None:
    assert Table(["x", Column("y", align="right")], [["1", "2"]]).aligns() == ["left", "right"]
    assert Table(["x"], [[None], [3]]).aligns() == ["right"]
    assert Table(["x"], []).aligns() == ["left"]
    assert Table(["x"], []).text() == "x"


def test_a_row_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="a row of 1 cells in a table of 2 columns"):
        Table(["a", "b"], [["x"]])


def test_a_narrow_terminal_has_the_columns_without_room_below(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "31")
    assert TABLE.text().splitlines() == [
        "Scores <1>",
        "system            BLEU",
        "a_b & co  12.25 ± 0.50",
        "日本       9.00 ± 1.25",
        "system    size (MB)   words",
        "a_b & co    1,234.5  12,345",
        "日本                      7",
        "system    done",
        "a_b & co  yes",
        "日本      no",
        "±: half of the interval",
    ]
