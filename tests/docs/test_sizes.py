"""The page on sizes has the rule of `headway new`."""

import re

import pytest
import yaml

from headway.experiments.new import FALL, FEW, PASSES, SIZES
from headway.grids.grid import GridConfig
from tests.docs.pages import BLOCK, ROOT

PAGE = (ROOT / "docs" / "sizes.md").read_text(encoding="utf-8")
ROWS = [
    line.strip("| ").split(" | ") for line in re.findall(r"^\| [\d,]+ \| (?:\d|`transformer).* \|$", PAGE, re.MULTILINE)
]


def test_the_table_is_the_rule() -> None:
    rows = [row for row in ROWS if len(row) == 8]
    assert [int(row[0].replace(",", "")) for row in rows] == list(SIZES)
    for row, (least, size) in zip(rows, SIZES.items(), strict=True):
        assert float(row[2]) == size.model["dropout"]
        assert [int(cell.replace(",", "")) for cell in (row[3], row[5])] == [size.vocabulary, size.batch_tokens]
        assert float(row[6]) == pytest.approx(size.learning_rate)
        assert int(row[7]) == round(PASSES * (FEW / max(least, FEW)) ** FALL)
        named = size.model.get("preset", f"/{size.model.get('feed_forward')}")
        assert named in row[1]


def test_the_grid_can_be_read() -> None:
    (grid,) = (block["text"] for block in BLOCK.finditer(PAGE) if block["file"] == "sizes-grid.yaml")
    assert list(GridConfig.model_validate(yaml.safe_load(grid)).variants) == ["chosen", "narrower", "wider"]
