"""The page on looking inside runs as it stands, with a small run in the place of the demo's."""

from pathlib import Path

import pytest

from tests.conftest import Reversal
from tests.docs.pages import ROOT, run_page
from tests.inspect.test_inspection import sentences_of


@pytest.mark.slow
def test_the_page_runs(reversal: Reversal, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "dates").symlink_to(reversal.run)
    said = run_page(ROOT / "docs" / "looking-inside.md", tmp_path)
    assert [each["source"] for each in sentences_of(tmp_path / "inside.html")] == [
        "二〇八一年五月十六日",
        "3. Mai 2024",
    ]
    lines = said.splitlines()
    assert lines[0] == "inside.html: 2 sentences, 0.3 MB"
    assert lines[1] == "heat.pdf: decoder layer 1, cross, head 2"
    assert (tmp_path / "heat.pdf").read_bytes().startswith(b"%PDF")
    assert "(2, 2, " in lines[2]
    assert any(line.startswith("</s> <- ") for line in lines)
