"""The tutorial does what it says, on a small language in which a word's translation depends on the next word."""

import csv
import json
from pathlib import Path
from random import Random

import pytest
import yaml

from tests.docs.pages import BLOCK, ROOT, run_page

NOUNS, VERBS = ["inu", "neko", "tori"], ["taberu", "neru", "miru"]
ENGLISH = {"inu": "dog", "neko": "cat", "tori": "bird", "taberu": "eats", "neru": "sleeps", "miru": "looks"}
SMALL = (
    "vocabulary.kind=whitespace model.dim=24 model.feed_forward=32 model.heads=2 training.updates=40"
    " training.checkpoint_every=40 training.batch_tokens=512 training.precision=float32 optimizer.warmup=10"
    " decoding.beam=2"
)


SMALL_GRID = (
    "'seeds=[1, 2]' tune=null model.dim=16 model.feed_forward=32 model.heads=2 training.updates=4"
    " training.checkpoint_every=4 training.batch_tokens=256 optimizer.warmup=1"
)


def write_corpus(folder: Path) -> None:
    random, pairs = Random(1), []
    for _ in range(400):
        words = [word for _ in range(random.randint(1, 3)) for word in (random.choice(NOUNS), random.choice(VERBS))]
        pairs.append((" ".join(words), " ".join(ENGLISH[word] for word in words)))
    for side, suffix in enumerate(("ja", "en")):
        (folder / f"corpus.{suffix}").write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")


@pytest.mark.slow
def test_the_page_runs(tmp_path: Path) -> None:
    write_corpus(tmp_path)
    printed = run_page(
        ROOT / "docs" / "tutorial.md", tmp_path,
        **{"--shares 98 1 1": "--shares 8 1 1", " --output runs/": f" {SMALL} --output runs/",
           "check attention.yaml": f"check attention.yaml {SMALL}",
           "make dates": "make dates train_size=400 dev_size=20 test_size=20",
           "mixers-grid.yaml data": f"mixers-grid.yaml {SMALL_GRID} data"},
    )  # fmt: skip
    assert "train: 176 pairs, dev: 28 pairs, test: 40 pairs\nleft out 98: of train, also in test\n" in printed
    assert "encoder layer 1, self" in printed
    assert "encoder layer 1, self: no weights; largest contributions" in printed
    rows = [line.split() for line in printed.splitlines()]
    difference, low, high = next(map(float, row[3:6]) for row in rows if row[:3] == ["BLEU", "attention", "ngram"])
    assert low <= difference <= high
    with (tmp_path / "figures" / "attention" / "within-encoder.csv").open(newline="") as file:
        found = {(row["attention"], row["head"], row["n"]): float(row["share"]) for row in csv.DictReader(file)}
    assert 0 < found["encoder.1.self", "uniform attention", "4"] < found["encoder.1.self", "mean", "21"] <= 1.0001
    drawn = {path.stem for path in (tmp_path / "figures" / "ngram").iterdir()}
    assert {"contributions-encoder", "contributions-decoder", "relative-position-encoder"} <= drawn
    compared = json.loads((tmp_path / "comparison" / "compare.json").read_text(encoding="utf-8"))
    assert set(compared["variants"]) == {"attention", "local", "ngram", "lowest"}
    assert len(compared["pairs"]) == 6 * 2
    assert "of training are left" in printed
    assert (tmp_path / "ngram.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_the_grid_of_the_page_comes_with_headway() -> None:
    blocks = {block["file"]: block["text"] for block in BLOCK.finditer((ROOT / "docs" / "tutorial.md").read_text())}
    shown = yaml.safe_load(blocks["mixers-grid.yaml"])
    library = yaml.safe_load((ROOT / "recipes" / "dates" / "mixers-grid.yaml").read_text())
    assert shown | {"recipe": ""} == library | {"recipe": ""}
