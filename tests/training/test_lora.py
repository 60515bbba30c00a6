"""Training of low-rank changes: all else stays as it was, resumption is exact, and what is left is a plain run."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import headway
from headway.core.errors import UserError
from headway.runs.run_folder import list_checkpoints
from tests.conftest import Reversal

LORA = {"rank": 2, "alpha": 4, "dropout": 0.1, "linears": ["encoder.1.*", "decoder.*.in_projection"]}


def recipe(reversal: Reversal, **training: Any) -> dict[str, Any]:
    older = headway.load_recipe(str(reversal.run / "recipe.yaml"))
    settings = {"updates": 4, "checkpoint_every": 2, "batch_tokens": 64, "average": {"of": "last", "count": 2}}
    return {
        "data": {"train": older.data.train.model_dump(mode="json")},
        "optimizer": {"learning_rate": 1e-2, "schedule": "constant", "warmup": 0, "weight_decay": 0.1, "kind": "adamw"},
        "training": {"from": str(reversal.run), "lora": LORA} | settings | training,
    }


def test_only_the_changes_are_learned_and_the_run_has_them_merged(reversal: Reversal, tmp_path: Path) -> None:
    headway.train(recipe(reversal), tmp_path / "run")
    before, after = (load_file(path / "model.safetensors") for path in (reversal.run, tmp_path / "run"))
    assert before.keys() == after.keys()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    encoder = [f"encoder.0.{map}" for map in ("mixer.in_projection", "mixer.out_projection")]
    encoder += [f"encoder.0.feed_forward.{map}" for map in ("inner", "outer")]
    decoder = [f"decoder.{layer}.mixer.in_projection" for layer in (0, 1)]
    assert changed == {f"{name}.weight" for name in (*encoder, *decoder)}
    for name in changed:
        assert torch.linalg.matrix_rank((after[name] - before[name]).double(), rtol=1e-4) <= 4  # of two checkpoints
    folders = list_checkpoints(tmp_path / "run" / "checkpoints")
    assert load_file(folders[-1] / "model.safetensors")["encoder.0.mixer.in_projection.low_rank.up"].shape == (96, 2)
    both = [headway.load(tmp_path / "run", device="cpu", average=average) for average in (None, 2)]
    words = reversal.words[:4]
    scores = [[each.score for each in predictor.predict(words, beam=1)] for predictor in both]
    assert scores[0] == scores[1]


def test_it_resumes_exactly(reversal: Reversal, tmp_path: Path) -> None:
    headway.train(recipe(reversal, updates=2), tmp_path / "run")
    headway.train(recipe(reversal), tmp_path / "run", resume=True)
    headway.train(recipe(reversal), tmp_path / "whole")
    for file in ("model.safetensors", "checkpoints/update-00000004/optimizer.safetensors"):
        assert (tmp_path / "run" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()


def test_what_cannot_be_adapted_is_refused_before_anything_is_written(reversal: Reversal, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"training.lora.linears: encoders matches none .*encoder.1.mixer"):
        headway.train(recipe(reversal, lora={"linears": ["encoders"]}), tmp_path / "run")
    tree = recipe(reversal)
    del tree["training"]["from"]
    with pytest.raises(UserError, match=r"training.lora: small changes are learned of trained weights"):
        headway.train(tree, tmp_path / "run")
    assert not (tmp_path / "run").exists()
