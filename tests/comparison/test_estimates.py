"""How far a run is, by the end of a file that it writes to, or that is damaged."""

from pathlib import Path
from typing import Any

import pytest

from headway.comparison.grid_run import progress_of
from headway.recipe import parse_recipe

RECIPE: dict[str, Any] = {"data": {"train": {"tsv": "train.tsv"}}, "training": {"updates": 10}}


@pytest.mark.parametrize("last", ["", '{"update": 9', "null\n", "1\n", "[]\n", '"x"\n', "{}\n", '{"update": 9}\n'])
def test_lines_that_are_no_entries_are_passed_over(tmp_path: Path, last: str) -> None:
    entry = '{"update": 4, "epoch": 1, "seconds": 2.0, "loss": 3.5}\n'
    (tmp_path / "metrics.jsonl").write_text(entry + last, encoding="utf-8")
    progress = progress_of(tmp_path, parse_recipe(RECIPE))
    assert (progress.update, progress.share, progress.seconds, progress.loss) == (4, 0.4, 2.0, 3.5)
    assert progress.left == pytest.approx(3)
