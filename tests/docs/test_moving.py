"""The keys that the page on moving names are keys of a recipe, with values that it may have."""

import re
from pathlib import Path
from typing import Any

import pytest

import headway
from tests.docs.pages import BLOCK, ROOT

PAGE = (ROOT / "docs" / "moving.md").read_text(encoding="utf-8")
BASE: dict[str, Any] = {
    "data": {"train": {"tsv": "train.tsv"}, "dev": {"tsv": "dev.tsv"}},
    "vocabulary": {"target": {"kind": "bpe"}},
    "training": {"updates": 1, "subword_sampling": {}},
}
CELLS = [row.split("|")[2] for row in re.findall(r"^\| `.*\|$", PAGE, re.MULTILINE)]
KEYS = sorted({key for cell in CELLS for key in re.findall(r"`([^`]+)`", cell)})
FOLLOWING = {  # what else a value needs
    "model.kind: recurrent": ["model={kind: recurrent}"],
    "vocabulary.shared: true": ["vocabulary.target=null", "vocabulary.shared=true"],
    "training.best_by: bleu": ["training.dev_metrics=[bleu]", "training.best_by=bleu"],
    "training.loggers: [tensorboard]": ["training.loggers=[tensorboard]"],
}


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    for name in ("train", "dev"):
        (tmp_path / f"{name}.tsv").write_text("a\tb\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return BASE


def test_keys_are_found() -> None:
    assert len(CELLS) > 120
    assert {"model.encoder.layers", "optimizer.schedule: noam", "training.clip_norm: null"} <= set(KEYS)


def test_the_recipe_has_the_keys(base: dict[str, Any]) -> None:
    for key in KEYS:
        name, colon, value = key.partition(": ")
        changes = FOLLOWING.get(key, [f"{name}={value}"] if colon else [])
        found: Any = headway.load_recipe(base, changes).model_dump(mode="json", by_alias=True)
        for part in () if name == "model.preset" else name.split("."):
            assert part in found, key
            found = found[part]


def test_the_recipe_of_the_page_can_be_read(base: dict[str, Any], tmp_path: Path) -> None:
    (text,) = (block["text"] for block in BLOCK.finditer(PAGE) if block["file"] == "base.yaml")
    (tmp_path / "base.yaml").write_text(text, encoding="utf-8")
    for name in ("train.de", "train.en", "valid.de", "valid.en"):
        (tmp_path / name).write_text("a\n", encoding="utf-8")
    recipe = headway.load_recipe("base.yaml")
    assert recipe.training.clip_norm is None
    assert recipe.vocabulary.size == 32_000
