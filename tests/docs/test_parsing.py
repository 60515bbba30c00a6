"""The page on parsing does what it says."""

import pytest

from tests.docs.pages import ROOT, run_page


@pytest.mark.slow
def test_the_page_runs(tmp_path):
    page = ROOT / "docs" / "parsing.md"
    printed = run_page(page, tmp_path)
    trees = (tmp_path / "toys.trees").read_text(encoding="utf-8")
    assert trees.splitlines()[1] == "(S (NP (NP (DT a) (NN cat)) (PP (IN in) (NP (NNP Rome)))) (VP (VBD slept)) (. .))"
    assert (tmp_path / "said.trees").read_text(encoding="utf-8") == trees
    assert "the dog saw a cat .\nS ─┬─ NP ─┬─ DT the\n" in printed
    scores = [line.split()[1::3] for line in printed.splitlines() if line.startswith("said ")]
    assert scores == [["100.00", "100.00", "100.00"], ["100.00"]]
    assert (tmp_path / "run" / "report.html").read_text(encoding="utf-8").count("─┬─ NP") >= 4
    shown = page.read_text(encoding="utf-8").split("```\n\n    S ─")[1].splitlines()[:6]
    assert [line.split()[-1] for line in printed.splitlines()[-7:-1]] == [line.split()[-1] for line in shown]
