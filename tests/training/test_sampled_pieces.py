"""Training on sampled pieces: other pieces in each epoch, none on dev, and exact resumption."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import headway
from headway.core.errors import UserError
from headway.recipe import load_recipe
from headway.runs.run_folder import RunFolder
from headway.tensors.batch import Batch, Indices, collate
from headway.training.start import prepare
from headway.training.updates import PlannedUpdate, prepare_update
from tests.conftest import REVERSAL

LINES = ["the cat sat on the mat", "a dog sat on a log", "the dogs chatted on that catalogue", "cats and dogs"]


def recipe(folder: Path, kind: str = "bpe", **training: Any) -> dict[str, Any]:
    rows = "".join(f"{line}\t{line.upper()}\n" for line in LINES * 3)
    for name in ("train", "dev"):
        (folder / f"{name}.tsv").write_text(rows, encoding="utf-8")
    settings = {"updates": 4, "checkpoint_every": 2, "batch_sentences": 4, "subword_sampling": {"alpha": 0.4}}
    return {
        "data": {name: {"tsv": str(folder / f"{name}.tsv")} for name in ("train", "dev")},
        "vocabulary": {"kind": kind, "size": 45 if kind == "bpe" else 26},
        "model": REVERSAL["model"],
        "optimizer": {"learning_rate": 1e-3, "schedule": "constant", "warmup": 0},
        "training": settings | {"dev_metrics": []} | training,
    }


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_pieces_differ_by_epoch_and_dev_has_the_usual_ones(kind: str, tmp_path: Path) -> None:
    tree = recipe(tmp_path, kind)
    (tmp_path / "run").mkdir()
    corpora = prepare(load_recipe(tree), RunFolder(tmp_path / "run"))
    indices = torch.arange(12).numpy()
    usual, first, again, second = (corpora.train.collate(indices, None, epoch) for epoch in (None, 0, 0, 1))
    assert corpora.dev is not None
    dev = corpora.dev.corpus.collate(indices, None, 0)
    assert torch.equal(first.source, again.source)
    assert torch.equal(first.target_output, again.target_output)
    for side, processor in zip(("source", "target_output"), corpora.processors, strict=True):
        batches = [getattr(batch, side).tolist() for batch in (usual, first, second)]
        assert batches[0] != batches[1] != batches[2]
        texts = [[processor.decode(row) for row in batch] for batch in batches]
        assert texts[0] == texts[1] == texts[2]
        assert getattr(dev, side).tolist() == batches[0]


def test_an_update_asks_for_the_pieces_of_its_epoch() -> None:
    asked = list[int]()

    def collated(indices: Indices, generator: torch.Generator, epoch: int) -> Batch:
        asked.append(epoch)
        return collate([np.array([4])], [np.array([4])], indices)

    corpus: Any = SimpleNamespace(collate=collated)
    place: Any = SimpleNamespace(config=SimpleNamespace(seed=1), rank=0, world_size=1, device=torch.device("cpu"))
    prepare_update(corpus, PlannedUpdate(5, 2, [np.array([0])], False), place)
    assert asked == [2]


def test_it_resumes_exactly(tmp_path: Path) -> None:
    headway.train(recipe(tmp_path, updates=2), tmp_path / "run")
    headway.train(recipe(tmp_path), tmp_path / "run", resume=True)
    headway.train(recipe(tmp_path), tmp_path / "whole")
    headway.train(recipe(tmp_path, subword_sampling=None), tmp_path / "without")
    file = "checkpoints/update-00000004/model.safetensors"
    run, whole, without = ((tmp_path / name / file).read_bytes() for name in ("run", "whole", "without"))
    assert run == whole != without


def test_a_vocabulary_without_pieces_is_refused(tmp_path: Path) -> None:
    tree = recipe(tmp_path)
    tree["vocabulary"] = {"kind": "bpe", "size": 45, "target": {"kind": "word", "size": 45}}
    with pytest.raises(UserError, match=r"training.subword_sampling: the vocabulary of the target has no pieces"):
        headway.train(tree, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    tree["training"]["subword_sampling"]["sides"] = "source"
    headway.train(tree, tmp_path / "run")


def test_a_limit_in_words_leaves_room_for_pieces(tmp_path: Path) -> None:
    tree = recipe(tmp_path)
    tree["data"] |= {"count": "words", "max_length": 6}
    (tmp_path / "run").mkdir()
    train = prepare(load_recipe(tree), RunFolder(tmp_path / "run")).train
    indices = torch.arange(12).numpy()
    usual, drawn = (train.collate(indices, None, epoch).counts["target_tokens"] for epoch in (None, 0))
    assert drawn > 1.2 * usual
