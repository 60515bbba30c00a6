"""The page on adding a metric does what it says."""

import json

import pytest

from tests.docs.pages import ROOT, run_page


@pytest.mark.slow
def test_the_page_runs(tmp_path):
    page = ROOT / "docs" / "adding-a-metric.md"
    printed = run_page(page, tmp_path).splitlines()
    assert any(line.startswith("outputs  60.00 ") for line in printed)
    assert printed[-1] in page.read_text(encoding="utf-8")
    lines = map(json.loads, (tmp_path / "runs" / "prefixes" / "metrics.jsonl").read_text().splitlines())
    (scores,) = (line["dev"] for line in lines if "dev" in line)
    assert list(scores) == ["prefix", "exact_match"]
