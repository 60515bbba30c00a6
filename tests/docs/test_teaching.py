"""The commands of the page on teaching run, in miniature."""

import json
from pathlib import Path

from tests.docs.pages import BLOCK, ROOT, run_page

SMALL = (
    "'seeds=[1, 2]' tune=null model.dim=16 model.feed_forward=32 model.heads=2 training.updates=4"
    " training.checkpoint_every=4 training.batch_tokens=256 optimizer.warmup=1"
)


def test_the_page_runs(tmp_path: Path) -> None:
    (tmp_path / "class").mkdir()
    (tmp_path / "hidden.txt").write_text("the cat sat on the mat\ntwo birds sang all day\n", encoding="utf-8")
    for name, text in (("anna", "the cat sat on a mat\nbirds sang all day\n"), ("ben", "a cat\nbirds sang\n")):
        (tmp_path / "class" / f"{name}.txt").write_text(text, encoding="utf-8")
    tutorial = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    (grid,) = (block["text"] for block in BLOCK.finditer(tutorial) if block["file"] == "mixers-grid.yaml")
    (tmp_path / "mixers-grid.yaml").write_text(grid, encoding="utf-8")
    changes = {
        "make dates": "make dates train_size=400 dev_size=20 test_size=20",
        "mixers-grid.yaml data": f"mixers-grid.yaml {SMALL} data",
    }
    run_page(ROOT / "docs" / "teaching.md", tmp_path, **changes)
    assert (tmp_path / "comparison" / "compare.html").is_file()
    compared = json.loads((tmp_path / "shared-task" / "compare.json").read_text(encoding="utf-8"))
    assert list(compared["variants"]) == ["anna", "ben"]
