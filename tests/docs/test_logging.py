"""The page on logging does what it says."""

import json
from pathlib import Path

import pytest

from tests.conftest import write_reversal
from tests.docs.pages import ROOT, run_page


@pytest.mark.slow
def test_the_page_runs(tmp_path: Path) -> None:
    write_reversal(tmp_path)
    page = ROOT / "docs" / "logging.md"
    changes = {"python follow.py": "python follow.py; python loud.py"}
    printed = run_page(page, tmp_path, **changes).splitlines()
    assert [line.split()[0] for line in printed[:2]] == ["50", "100"]
    assert "{'chrf': " in printed[0]
    assert [line.split()[0] for line in printed[2:]] == [str(update) for update in range(10, 101, 10)]
    lines = (tmp_path / "runs" / "logged" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    text = page.read_text(encoding="utf-8")
    for key in {key for line in lines for key in json.loads(line)}:
        assert f'"{key}"' in text, key
