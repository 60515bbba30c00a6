"""A folder with claims in miniature."""

from pathlib import Path

import pytest
import yaml

from tests.grids.grids import write_grid

CLAIMS = {
    "title": "Words", "document": "Nobody (2024)",
    "data": {
        "about": "words", "needs": ["train.tsv"],
        "prepare": "cp $DATA/*.tsv $OUTPUT\ncommand -v headway > $OUTPUT/version",
    },
    "grid": {
        "recipe": "base.yaml", "seeds": [1],
        "variants": {"wide": {}, "narrow": {"model.feed_forward": 8}, "ngram": "ngram.yaml"},
        "test": [{"tsv": "test.tsv"}], "metrics": ["chrf"],
    },
    "budgets": {"small": {}},
    "claims": [{"says": "Wide is better.", "claim": "wide > narrow", "paper": {"wide": 2, "narrow": 1}}],
}  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with recipes, data and claims."""
    folder = tmp_path_factory.mktemp("reproduce")
    write_grid(folder)
    (folder / "data").mkdir()
    for path in folder.glob("*.tsv"):
        path.rename(folder / "data" / path.name)
    (folder / "grid.yaml").unlink()
    (folder / "nobody2024-words.yaml").write_text(yaml.safe_dump(CLAIMS))
    (folder / "claims").mkdir()
    for path in folder.glob("*.yaml"):
        path.rename(folder / "claims" / path.name)
    return folder
