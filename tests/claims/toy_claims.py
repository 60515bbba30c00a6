"""A made file of claims."""

from pathlib import Path
from typing import Any

import yaml

TREE: dict[str, Any] = {
    "title": "Words", "document": "Nobody (2024)", "data": {"about": "made", "prepare": "true"},
    "grid": {
        "recipe": "base.yaml", "seeds": [1], "test": [{"tsv": "test.tsv"}],
        "variants": {"good": {}, "bad": {"model.dim": 8}, "same": {"model.dim": 4}},
    },
    "budgets": {"small": {}, "full": {"as_printed": True, "grid": {"seeds": [1, 2, 3]}}},
    "claims": [
        {"says": "Good is better.", "claim": "good > bad", "paper": {"good": 20.5, "bad": 20}},
        {"says": "Good is even.", "claim": "good = same", "margin": 15},
        {"says": "It is free.", "claim": "good >= bad", "metric": "cpu_seconds"},
    ],
}  # fmt: skip


def write_claims(folder: Path, **changes: Any) -> Path:
    path = folder / "nobody2024-words.yaml"
    path.write_text(yaml.safe_dump(TREE | changes, sort_keys=False))
    return path
