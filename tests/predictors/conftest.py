"""A run that tests share."""

import itertools
import random
from pathlib import Path

import pytest
import yaml

from tests.shared_runs import shared_run

RECIPE = {
    "data": {"train": {"tsv": "train.tsv"}, "dev": {"tsv": "dev.tsv"}},
    "text": {"source": {"language": "en"}, "target": {"language": "en"}},
    "vocabulary": {"kind": "whitespace", "shared": True},
    "model": {
        "kind": "recurrent", "dim": 24, "dropout": 0.0, "cell": "gru",
        "encoder": {"layers": 1, "hidden": 24, "bidirectional": True}, "decoder": {"layers": 1, "hidden": 24},
    },
    "objective": {"label_smoothing": 0.0},
    "optimizer": {"learning_rate": 1e-2, "schedule": "linear", "warmup": 20},
    "training": {"updates": 250, "batch_tokens": 256, "checkpoint_every": 250, "dev_metrics": []},
}  # fmt: skip


@pytest.fixture(scope="session")
def backwards(pytestconfig: pytest.Config) -> Path:
    """A run that has learned to write the words of a sentence backwards, by Luong's attention."""
    return shared_run(pytestconfig.cache.mkdir("runs"), "backwards", _write)


def _write(folder: Path) -> Path:
    sentences = [" ".join(words) for length in (3, 4) for words in itertools.permutations("abcdefg", length)]
    random.Random(1).shuffle(sentences)
    for name, part in (("dev", sentences[:30]), ("train", sentences[30:])):
        rows = [f"{each}\t{' '.join(reversed(each.split()))}\n" for each in part]
        (folder / f"{name}.tsv").write_text("".join(rows), encoding="utf-8")
    for side, column in (("source", 0), ("target", 1)):
        rows = [line.split("\t")[column].strip() for line in (folder / "dev.tsv").read_text().splitlines()]
        (folder / f"dev.{side}").write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    gold = [" ".join(f"{i}-{n - 1 - i}" for i in range(n)) for n in (len(each.split()) for each in sentences[:30])]
    (folder / "gold").write_text("".join(f"{each}\n" for each in gold), encoding="utf-8")
    (folder / "recipe.yaml").write_text(yaml.safe_dump(RECIPE), encoding="utf-8")
    return folder / "recipe.yaml"
