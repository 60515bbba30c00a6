"""A student that is trained once: it translates numbers, from English to German."""

import random
from pathlib import Path

import yaml

NUMBERS = {"one": "eins", "two": "zwei", "three": "drei", "four": "vier", "five": "fünf", "six": "sechs"}
STUDENT = {
    "data": {"train": {"tsv": "train.tsv"}, "dev": {"tsv": "dev.tsv"}},
    "text": {"source": {"language": "en"}, "target": {"language": "de"}},
    "vocabulary": {"kind": "unigram", "size": 32, "shared": True},
    "model": {
        "preset": "student-tiny", "dim": 32, "feed_forward": 64, "heads": 2, "dropout": 0.0, "encoder": {"layers": 1},
        "decoder": {"layers": 1},
    },
    "objective": {"label_smoothing": 0.0},
    "optimizer": {"learning_rate": 1e-2, "schedule": "linear", "warmup": 20},
    "training": {"updates": 300, "batch_tokens": 512, "checkpoint_every": 150},
}  # fmt: skip


def lines(count: int, seed: int) -> list[tuple[str, str]]:
    """Numbers in words, with their translations."""
    draw = random.Random(seed)
    rows = [draw.choices(list(NUMBERS), k=draw.randint(1, 5)) for _ in range(count)]
    return [(" ".join(row), " ".join(NUMBERS[word] for word in row)) for row in rows]


def write_student(folder: Path) -> Path:
    """A recipe and its data; gives the recipe's path."""
    for name, count, seed in (("train", 400, 1), ("dev", 40, 2)):
        rows = "".join(f"{source}\t{target}\n" for source, target in lines(count, seed))
        (folder / f"{name}.tsv").write_text(rows, encoding="utf-8")
    recipe = folder / "student.yaml"
    recipe.write_text(yaml.safe_dump(STUDENT), encoding="utf-8")
    return recipe
