"""The page on adding a mixer does what it says."""

import json

from tests.docs.pages import ROOT, run_page


def test_the_page_runs(tmp_path):
    printed = run_page(ROOT / "docs" / "adding-a-mixer.md", tmp_path).splitlines()
    assert printed == ["all checks passed, twice", "three one four"]
    captured = json.loads((tmp_path / "attention.jsonl").read_text())
    assert captured["target_tokens"] == ["three", "one", "four", "</s>"]
    weights = captured["attention"]["decoder.2.self"]
    assert (len(weights), len(weights[0])) == (2, 4)
    assert all(abs(sum(row) - 1) < 1e-4 for head in weights for row in head)
    assert all(
        weight == 0 for head in weights for row, t in zip(head, range(4), strict=True) for weight in row[t + 1 :]
    )
