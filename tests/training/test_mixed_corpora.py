"""One model for several directions, from corpora with weights and tags; exact resumption."""

import itertools
from pathlib import Path
from typing import Any

import pytest

import headway
from headway.core.errors import UserError
from headway.recipe import load_recipe
from headway.training.start import check_recipe
from tests.conftest import REVERSAL


def recipe(folder: Path, **training: Any) -> dict[str, Any]:
    words = ["".join(letters) for length in (1, 2, 3) for letters in itertools.product("abc", repeat=length)]
    texts = {"copy": [(word, word) for word in words], "back": [(word, word[::-1]) for word in words[:20]]}
    for name, pairs in texts.items():
        (folder / f"{name}.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairs), encoding="utf-8")
    corpora = [{"tsv": str(folder / f"{name}.tsv"), "weight": 1, "tag": f"<{name}>"} for name in texts]
    dev = [{name: value for name, value in corpus.items() if name != "weight"} for corpus in corpora]
    settings = {"updates": 150, "checkpoint_every": 50, "batch_tokens": 200, "dev_metrics": ["exact_match"]}
    return {
        "data": {"train": corpora, "dev": dev},
        **{name: REVERSAL[name] for name in ("vocabulary", "model", "objective", "optimizer", "decoding")},
        "training": settings | training,
    }


@pytest.mark.slow
def test_a_tag_says_what_to_do(tmp_path: Path, run_headway: Any) -> None:
    headway.train(recipe(tmp_path), tmp_path / "run")
    predictor = headway.load(tmp_path / "run", device="cpu")
    ended = run_headway("predict", tmp_path / "run", stdin="<copy> ab\n<back> ab\n<back> abc\n<copy> cab\n")
    assert ended.out.splitlines() == ["ab", "ba", "cba", "cab"]
    assert predictor.source.tokens(predictor.source.encode("<back> ab").values)[0] == "<back>"


def test_it_resumes_exactly(tmp_path: Path) -> None:
    tree = recipe(tmp_path, updates=3, checkpoint_every=3, dev_metrics=[])
    tree["optimizer"] = tree["optimizer"] | {"schedule": "constant"}
    headway.train(tree, tmp_path / "run")
    tree["training"]["updates"] = 6
    headway.train(tree, tmp_path / "run", resume=True)
    headway.train(tree, tmp_path / "other")
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("run", "other")]
    assert weights[0] == weights[1]


def test_mistakes_are_told_before_anything_is_written(tmp_path: Path) -> None:
    tree = recipe(tmp_path)
    tree["data"]["train"][1]["weight"] = None
    with pytest.raises(UserError, match=r"data.train.1.weight: all corpora of a list have a weight, or none"):
        check_recipe(load_recipe(tree))
    tree = recipe(tmp_path)
    tree["data"]["dev"][0]["weight"] = 2
    with pytest.raises(UserError, match=r"data.dev.0.weight: only what is trained on is sampled"):
        check_recipe(load_recipe(tree))
    tree = recipe(tmp_path)
    tree["data"]["dev"][0]["tag"] = "<other>"
    with pytest.raises(UserError, match=r"data.dev.0.tag: training knows no such tag.*<copy>, <back>"):
        headway.train(tree, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    model, data = {"kind": "tagger", "encoder": "x"}, {"train": {"conllu": "x", "weight": 1.0}}
    tagging = load_recipe({"task": "tagging", "data": data, "model": model, "training": {"updates": 1}})
    with pytest.raises(UserError, match=r"data.train.weight: a model for tagging has no weights of corpora"):
        check_recipe(tagging)
