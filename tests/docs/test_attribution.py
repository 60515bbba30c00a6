"""The page on attribution runs as it stands, with a small run in the place of the demo's."""

from pathlib import Path

import pytest

from tests.conftest import Reversal
from tests.docs.pages import ROOT, run_page
from tests.inspect.test_inspection import sentences_of


@pytest.mark.slow
def test_the_page_runs(reversal: Reversal, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "dates").symlink_to(reversal.run)
    changes = {"3. Mai 2024": "abcd", "--against 2": "--against a"}
    script = (ROOT / "docs" / "attribution.md").read_text(encoding="utf-8").replace('against="2"', 'against="a"')
    (tmp_path / "page.md").write_text(script.replace('["3. Mai 2024"]', '["abcd"]'), encoding="utf-8")
    said = run_page(tmp_path / "page.md", tmp_path, **changes).splitlines()
    assert [line for line in said if line.endswith("(occlusion)")] == ["abcd -> dcba (occlusion)"] * 2
    assert "(1, 2, 4) ['abcd', '</s>', '<s>', 'dcba']" in said
    (sentence,) = sentences_of(tmp_path / "attribution.html")
    assert sentence["maps"][-1]["title"] == "Attribution"
