"""The page on adding a mixer does what it says."""

import json
import re

import pytest

from headway.mixers.conformance import CHECKS
from tests.docs.pages import ROOT, run_page


@pytest.mark.slow
def test_the_page_runs(tmp_path):
    page = ROOT / "docs" / "adding-a-mixer.md"
    changes = {
        "pytest -q": "pytest -q -k shapes",  # the command before it has made all of these checks
    }
    printed = run_page(page, tmp_path, **changes).splitlines()
    rows = [line for line in printed if line.startswith("| ")]
    assert len(rows) == 2 + len(CHECKS)
    assert {cell.strip() for row in rows[2:] for cell in row.split("|")[3:5]} == {"pass", "does not apply"}
    assert [
        line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("| ") and line not in rows
    ] == []
    assert re.fullmatch(rf"2 passed, {2 * len(CHECKS) - 2} deselected in .*", printed[-2])
    assert printed[-1] == "three one four"
    captured = json.loads((tmp_path / "attention.jsonl").read_text())
    assert captured["target_tokens"] == ["three", "one", "four", "</s>"]
    weights = captured["attention"]["decoder.2.self"]
    assert (len(weights), len(weights[0])) == (2, 4)
    assert all(abs(sum(row) - 1) < 1e-4 for head in weights for row in head)
    assert all(
        weight == 0 for head in weights for row, t in zip(head, range(4), strict=True) for weight in row[t + 1 :]
    )
