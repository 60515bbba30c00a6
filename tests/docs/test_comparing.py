"""The page on comparing as it stands, with two small runs in the place of a reader's own."""

import json
from pathlib import Path

import pytest

from tests.conftest import Reversal
from tests.docs.pages import ROOT, run_page


@pytest.mark.slow
def test_the_page_runs(reversal: Reversal, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    for name in ("dates", "again"):
        (tmp_path / "runs" / name).symlink_to(reversal.run)
    said = run_page(ROOT / "docs" / "comparing.md", tmp_path)
    values = json.loads((tmp_path / "comparison" / "compare.json").read_text())
    assert list(values["variants"]) == ["theirs", "ours"]
    assert [pair["verdict"] for pair in values["pairs"]] == ["none", "none"]
    assert values["pairs"][0]["difference"] > 0 > values["pairs"][1]["difference"]
    runs = json.loads((tmp_path / "runs-compared" / "compare.json").read_text())
    assert list(runs["variants"]) == ["first", "second"]
    assert "attention-0-0" not in (tmp_path / "comparison" / "compare.html").read_text()
    assert "Comparison(2 variants, seeds: 1; no verdict on ours and theirs by chrf)" in said
    assert (tmp_path / "forest.png").stat().st_size > 1000
