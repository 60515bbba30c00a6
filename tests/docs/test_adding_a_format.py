"""The page on adding a format does what it says."""

import pytest

from tests.conftest import Command
from tests.docs.pages import ROOT, run_page


@pytest.mark.slow
def test_the_page_runs(tmp_path, monkeypatch, run_headway: Command):
    printed = run_page(ROOT / "docs" / "adding-a-format.md", tmp_path)
    assert "data.train: 6 pairs read, 6 kept" in printed
    assert "data.dev: 3 pairs read, 3 kept" in printed
    with (tmp_path / "numbers.cards").open("a", encoding="utf-8") as file:
        file.write("4 without a back\n")
    monkeypatch.syspath_prepend(tmp_path)
    refused = run_headway("data", "check", tmp_path / "cards.yaml")
    assert refused.code == 2
    assert "numbers.cards:5: this card has no back" in refused.out + refused.err
