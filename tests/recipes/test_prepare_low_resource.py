"""The preparation of Tanaka with few pairs, in miniature: back-translation and distillation with tiny models."""

import json
from pathlib import Path

import pytest

from headway.recipe import load_recipe
from tests.preparation import RECIPES, prepare, write

FOLDER = RECIPES / "tanaka" / "low-resource"
SCRIPT = FOLDER / "prepare.sh"
TINY = [
    "model.dim=8", "model.feed_forward=8", "model.heads=2", "model.encoder.layers=1", "model.decoder.layers=1",
    "vocabulary.kind=whitespace", "training.updates=1", "training.checkpoint_every=1", "training.dev_metrics=[]",
    "decoding.max_length=2",
]  # fmt: skip


@pytest.mark.slow
def test_what_each_recipe_reads_is_made(tmp_path: Path) -> None:
    data, output = tmp_path / "tanaka", tmp_path / "output"
    for side in ("ja", "en"):
        write(data / f"train.{side}", "".join(f"{side} {number % 50} .\n" for number in range(25_100)))
        write(data / f"dev.{side}", f"{side} 1 .\n")
    ended = prepare(SCRIPT, data, "60", output, *TINY, seconds=300)
    assert ended.returncode == 0, ended.stderr
    sizes = {name: len((output / name).read_text().splitlines()) for name in ("train.ja", "test.en", "mono.en")}
    assert sizes == {"train.ja": 60, "test.en": 2000, "mono.en": 23_000}
    for name, read in {"backtranslated": 23_000, "distilled": 60}.items():
        assert json.loads((output / name / "manifest.json").read_text())["counts"]["read"] == read
    for name in ("plain", "sampled", "backtranslated", "distilled"):
        recipe = load_recipe(FOLDER / f"{name}.yaml", [f"data.folder={output}"])
        corpora = recipe.data.train if isinstance(recipe.data.train, tuple) else (recipe.data.train,)
        assert all(Path(path).is_file() for corpus in corpora for path in (corpus.source, corpus.target))


def test_pairs_that_the_text_of_one_language_needs_are_refused(tmp_path: Path) -> None:
    ended = prepare(SCRIPT, tmp_path, "25001", tmp_path)
    assert ended.returncode == 2
    assert "25001 pairs; at most 25000" in ended.stderr
