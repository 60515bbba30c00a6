"""A small grid over the reversal of words, for tests."""

from pathlib import Path
from typing import Any

import yaml

from tests.conftest import REVERSAL, write_reversal

TRAINING = {
    "updates": 6, "batch_tokens": 128, "checkpoint_every": 3, "log_every": 1, "dev_metrics": ["exact_match"],
    "precision": "float32",  # other processes would measure which is faster
}  # fmt: skip
MODEL = {"dim": 16, "feed_forward": 16, "heads": 2, "dropout": 0.0, "encoder": {"layers": 1}, "decoder": {"layers": 1}}
GRID: dict[str, Any] = {
    "recipe": "base.yaml",
    "variants": {
        "attention": {},
        "local": {"model.encoder.mixer": {"kind": "local", "n": 3}},
        "ngram": "ngram.yaml",
    },
    "seeds": [1, 2],
    "test": [{"tsv": "test.tsv"}],
    "metrics": ["exact_match", "chrf"],
}


def write_grid(folder: Path, **changes: Any) -> Path:
    """Write the recipes, the data and a grid with changes to it; a key whose value is None is left out."""
    write_reversal(folder)
    lines = (folder / "dev.tsv").read_text().splitlines(keepends=True)
    (folder / "dev.tsv").write_text("".join(lines[:8]))
    (folder / "test.tsv").write_text("".join(lines[8:]))
    optimizer = REVERSAL["optimizer"] | {"warmup": 2}
    base = REVERSAL | {"training": TRAINING, "model": MODEL, "optimizer": optimizer}
    (folder / "base.yaml").write_text(yaml.safe_dump(base))
    ngram = {"base": "base.yaml", "model": {"encoder": {"mixer": {"kind": "ngram", "n": 2}}}}
    (folder / "ngram.yaml").write_text(yaml.safe_dump(ngram))
    path = folder / "grid.yaml"
    tree = {key: value for key, value in (GRID | changes).items() if value is not None}
    path.write_text(yaml.safe_dump(tree, sort_keys=False))
    return path
