"""A class compared: systems that differ are told apart, as permutations of sentences tell them, and no others."""

import random
import re
from pathlib import Path

import numpy as np
import pytest

from headway.comparison.cells import CellOutput, CellResult, EvaluationSet
from headway.comparison.comparison import Comparison, compare_cells
from headway.comparison.ranking import p_value, ranking, worst_sentences, write_ranking
from headway.metrics.metric import ExactMatch, Metric

LINES = tuple(f"line {number} <b>" for number in range(400))
RIGHT = {"first": 0.95, "a": 0.8, "b": 0.8, "c": 0.78, "last": 0.4}


def compared(metric: Metric, right: dict[str, float] = RIGHT) -> Comparison:
    test = EvaluationSet("test", (LINES,))
    cells = []
    for name, share in right.items():
        drawn = random.Random(name)
        outputs = tuple(line if drawn.random() < share else f"wrong {line}" for line in LINES)
        cells.append(CellResult(name, 1, (CellOutput(test, outputs),)))
    return compare_cells(cells, [metric])


def test_ranks_are_those_that_differences_leave() -> None:
    comparison = compared(ExactMatch())
    rows = {str(row[1]): row for row in ranking(comparison, comparison.measures[0]).rows}
    assert [row[0] for row in rows.values()] == [1, 2, 3, 4, 5]
    assert [rows[name][3] for name in ("first", "last")] == ["1", "5"]
    assert [rows[name][3] for name in "abc"] == ["2 to 4"] * 3
    assert set(str(rows["a"][4]).split(", ")) == {"b", "c"}
    assert rows["first"][4] == ""


@pytest.mark.parametrize("other", [0.78, 0.74, 0.72, 0.9])
def test_p_is_that_of_permutations(other: float) -> None:
    comparison = compared(ExactMatch(), {"a": 0.8, "b": other})
    (pair,) = comparison.pairs
    right = [
        np.array([output == line for output, line in zip(cells[0].outputs[0].hypotheses, LINES, strict=True)], float)
        for cells in comparison.cells.values()
    ]
    differences = right[1] - right[0]
    signs = np.random.default_rng(1).choice([-1, 1], (20_000, len(LINES)))
    slow = float((np.abs(signs @ differences) >= abs(differences.sum()) - 1e-9).mean())
    assert p_value(pair) == pytest.approx(slow, abs=0.05)


def test_identical_systems_have_one_rank() -> None:
    comparison = compared(ExactMatch(), {"a": 1.0, "b": 1.0})
    assert [row[3] for row in ranking(comparison, comparison.measures[0]).rows] == ["1 to 2", "1 to 2"]


def test_the_page_has_the_worst_sentences_and_asks_no_one(tmp_path: Path) -> None:
    comparison = compared(ExactMatch())
    worst = worst_sentences(comparison, comparison.measures[0], "last")
    assert all(str(row[2]).startswith("wrong ") and row[3] == 0.0 for row in worst.rows)
    assert len(worst.rows) == 10
    write_ranking(comparison, tmp_path / "class.html")
    page = (tmp_path / "class.html").read_text(encoding="utf-8")
    assert re.findall("<summary>(.*?)</summary>", page)[0::4] == ["first", "last"]
    assert "wrong line" in page
    assert "&lt;b&gt;" in page
    assert "<b>" not in page
    assert not re.search(r"https?://|src=|<script", page)
