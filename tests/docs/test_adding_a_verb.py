"""The page on adding a verb does what it says."""

import subprocess
import sys

import pytest

from tests.conftest import plain
from tests.docs.pages import ROOT, run_page


@pytest.mark.slow
def test_the_page_runs(tmp_path):
    assert run_page(ROOT / "docs" / "adding-a-verb.md", tmp_path).split() == ["8", "14"]

    def count(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "count.py", "count", *words]
        return subprocess.run(command, cwd=tmp_path, text=True, capture_output=True, check=False)

    shown = plain(count("--help").stdout)
    assert all(each in shown for each in ("Count the words of a file.", "--longest", "--characters", "The text."))
    for words, message in (
        (("poem.txt", "--longest", "0"), "error: --longest: input should be greater than or equal to 1"),
        (("poem.txt", "--longest", "1"), "error: poem.txt: there is no such line"),
    ):
        refused = count(*words)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert refused.stderr.startswith(message)
