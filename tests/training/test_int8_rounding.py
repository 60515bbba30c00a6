"""Training with products rounded to 8 bits: evaluation sees the rounding, weights do not, and resumption is exact."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import headway
from headway.core.errors import UserError
from headway.runs.run import open_run
from headway.tensors.linear import round_to_int8
from headway.training.session import dev_loss
from headway.training.start import open_session
from tests.conftest import Reversal

STILL = {"learning_rate": 1e-30, "schedule": "constant", "warmup": 0}  # no weight changes


def recipe(reversal: Reversal, **training: Any) -> dict[str, Any]:
    older = headway.load_recipe(str(reversal.run / "recipe.yaml"))
    settings = {"updates": 4, "checkpoint_every": 2, "batch_tokens": 64, "int8_rounding": True}
    return {
        "data": {name: getattr(older.data, name).model_dump(mode="json") for name in ("train", "dev")},
        "optimizer": {"learning_rate": 1e-3, "schedule": "constant", "warmup": 0},
        "training": {"from": str(reversal.run)} | settings | training,
    }


def test_it_resumes_exactly(reversal: Reversal, tmp_path: Path) -> None:
    headway.train(recipe(reversal, updates=2), tmp_path / "run")
    headway.train(recipe(reversal), tmp_path / "run", resume=True)
    whole = headway.train(recipe(reversal), tmp_path / "whole")
    plain = headway.train(recipe(reversal, int8_rounding=False), tmp_path / "plain")
    for file in ("model.safetensors", "checkpoints/update-00000004/optimizer.safetensors"):
        kept = (tmp_path / "whole" / file).read_bytes()
        assert (tmp_path / "run" / file).read_bytes() == kept
        assert (tmp_path / "plain" / file).read_bytes() != kept
    assert whole.complete
    assert plain.complete


def test_evaluation_is_rounded_and_weights_are_not(reversal: Reversal, tmp_path: Path) -> None:
    losses = {}
    for name, settings in {
        "plain": {"int8_rounding": False}, "rounded": {}, "average": {"average": {"kind": "ema"}},
    }.items():  # fmt: skip
        given = recipe(reversal, **settings) | {"optimizer": STILL}
        run = headway.train(given, tmp_path / name)
        losses[name] = next(line["dev_loss"] for line in run.history if "dev_loss" in line)
        weights = load_file(tmp_path / name / "model.safetensors")
        assert all(
            torch.equal(each, weights[key]) for key, each in load_file(reversal.run / "model.safetensors").items()
        )
    assert losses["average"] == losses["rounded"] != losses["plain"]
    model = open_run(tmp_path / "rounded").model
    with open_session(headway.load_recipe(given), tmp_path / "average", resume=True) as session:
        found = []
        for rounds in (False, True):
            if rounds:
                round_to_int8(model)
            found.append(dev_loss(model, session.corpora.dev.corpus, session.parallel))
    assert found == pytest.approx([losses["plain"], losses["rounded"]], rel=1e-5)
    assert abs(found[1] / found[0] - 1) > 1e-3


def test_what_would_not_be_rounded_is_refused(reversal: Reversal, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="give lora or int8_rounding"):
        headway.train(recipe(reversal, lora={"rank": 2}), tmp_path / "run")
    tree = recipe(reversal) | {"model": {"kind": "recurrent", "dim": 8}}
    del tree["training"]["from"]
    with pytest.raises(UserError, match=r"training\.int8_rounding: products are rounded in Transformers alone"):
        headway.train(tree, tmp_path / "run")
    assert not (tmp_path / "run").exists()
