"""A made file of claims, and a pack of it."""

import json
import zipfile
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
ABOUT = {
    "claims": "nobody2024-words", "budget": "small", "machine": "a machine", "commit": "abc1234", "date": "2026-01-01",
    "data": {"test.tsv": "0" * 64}, "tests": {},
}  # fmt: skip
MEASURED = {"commands": ["headway"], "machine": "two cores", "seeds": [1, 2], "commit": "def5678", "date": "2026-01-02"}
FOUND = {
    "says": "Good is better.", "claim": "good > bad", "difference": 3.0, "low": 1.0, "high": 5.0, "values": [4.0, 1.0],
    "finding": "holds", "needs": "", "regime": "plateau",
}  # fmt: skip
SCORES = {"good": 4.0, "same": 3.5, "bad": 1.0}
PAIRS = [("bad", "good", "better"), ("same", "bad", "worse"), ("same", "good", "none")]
COMPARISON = {
    "variants": {name: {"chrf": {"mean": mean, "sd": 0.1}, "parameters": 7} for name, mean in SCORES.items()},
    "pairs": [{"a": a, "b": b, "metric": "chrf", "verdict": verdict} for a, b, verdict in PAIRS],
    "metrics": {"chrf": {"signature": "a signature", "higher_is_better": True}},
}
RECORD: dict[str, Any] = {"title": "Words", "measured": MEASURED, "claims": [FOUND], "comparison": COMPARISON}


def write_claims(folder: Path, **changes: Any) -> Path:
    path = folder / "nobody2024-words.yaml"
    path.write_text(yaml.safe_dump(TREE | changes, sort_keys=False))
    return path


def packed(path: Path, record: Any = RECORD, about: Any = ABOUT, **claims: Any) -> Path:
    """Write a pack with this record (None: without one), description, and changes to the claim file."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("paper.json", json.dumps(about))
        archive.writestr("claims/nobody2024-words.yaml", yaml.safe_dump(TREE | claims, sort_keys=False))
        if record is not None:
            archive.writestr("record.json", json.dumps(record))
    return path
