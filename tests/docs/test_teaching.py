"""The commands of the page on teaching run, in miniature."""

import json
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, run_page

GRID = "headway compare mixers-grid.yaml data.folder=data/dates --output comparison\n"


@pytest.mark.slow
def test_the_page_runs(tmp_path: Path) -> None:
    (tmp_path / "class").mkdir()
    (tmp_path / "hidden.txt").write_text("the cat sat on the mat\ntwo birds sang all day\n", encoding="utf-8")
    for name, text in (("anna", "the cat sat on a mat\nbirds sang all day\n"), ("ben", "a cat\nbirds sang\n")):
        (tmp_path / "class" / f"{name}.txt").write_text(text, encoding="utf-8")
    tutorial = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    assert GRID in tutorial  # whose test makes it
    changes = {"make dates": "make dates train_size=400 dev_size=20 test_size=20", GRID: ""}
    run_page(ROOT / "docs" / "teaching.md", tmp_path, **changes)
    assert (tmp_path / "dates" / "transformer.yaml").is_file()
    compared = json.loads((tmp_path / "shared-task" / "compare.json").read_text(encoding="utf-8"))
    assert list(compared["variants"]) == ["anna", "ben"]
