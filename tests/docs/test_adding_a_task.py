"""The page on adding a task does what it says."""

import pytest

from tests.conftest import Command
from tests.docs.pages import ROOT, run_page


@pytest.mark.slow
def test_the_page_runs(tmp_path, run_headway: Command):
    page = ROOT / "docs" / "adding-a-task.md"
    printed = run_page(page, tmp_path).splitlines()
    assert printed[-1] == "M UW SH"
    score = next(line for line in printed if line.startswith("out "))
    assert float(score.split()[1]) < 30
    assert "per: unit:phoneme|version:g2p-1" in printed
    assert (tmp_path / "runs" / "g2p" / "report.html").exists()
    refused = run_headway("predict", tmp_path / "runs" / "g2p")
    (shown,) = (line.strip() for line in page.read_text(encoding="utf-8").splitlines() if "error: data" in line)
    assert (refused.code, refused.err.splitlines()[0]) == (2, shown)
