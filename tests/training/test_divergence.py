"""Training that diverges is named as such, with dev and without, and leaves no checkpoint that is not finite."""

import json

import pytest
import torch
from safetensors.torch import load_file

from headway.core.errors import NotFiniteError, RunError
from headway.runs.run_folder import list_checkpoints
from headway.training import session
from headway.training.loop import train
from headway.training.parallel import Parallel
from tests.training import toys


def lines(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def constant(rate):
    return {"optimizer": {"learning_rate": rate, "schedule": "constant", "warmup": 0}, "checkpoint_every": 1}


def test_with_dev_the_loss_is_named(tmp_path, caplog):
    recipe = toys.recipe(tmp_path, **constant(1e30), updates=20, dev_metrics=["exact_match"], best_by="exact_match")
    with pytest.raises(RunError, match="3 such updates in a row: training has diverged"):
        train(recipe, tmp_path / "run")
    assert "update 1: the loss on dev is not finite; training may be diverging" in caplog.text
    evaluations = [line for line in lines(tmp_path / "run") if "dev_loss" in line]
    assert evaluations[0]["dev_loss"] is None
    assert evaluations[0]["dev"] == {}


def test_the_last_updates_of_an_accelerator_are_read_before_training_is_complete(tmp_path, monkeypatch):
    monkeypatch.setattr(Parallel, "reading_waits", True)
    rare = {"updates": 6, "checkpoint_every": 100, "log_every": 100}
    with pytest.raises(RunError, match="3 such updates in a row: training has diverged"):
        train(toys.recipe(tmp_path, **constant(1e30) | rare), tmp_path / "run")
    train(toys.recipe(tmp_path, **constant(1e-3) | rare), tmp_path / "sound")
    (window,) = (line for line in lines(tmp_path / "sound") if "loss" in line)
    assert window["update"] == 6
    assert window["target_tokens"] > 0


def test_weights_that_are_not_finite_are_never_checkpointed(tmp_path):
    recipe = toys.recipe(tmp_path, **constant(1e38), updates=20)
    with pytest.raises(RunError, match="training has diverged"):
        train(recipe, tmp_path / "run")
    for folder in list_checkpoints(tmp_path / "run" / "checkpoints"):
        assert all(tensor.isfinite().all() for tensor in load_file(folder / "model.safetensors").values())


def test_weights_spoilt_by_a_finite_loss_are_named(tmp_path, monkeypatch):
    from headway.training import loop

    def spoil(optimizer, gradients, rate):
        with torch.no_grad():
            optimizer.param_groups[0]["params"][0].view(-1)[0] = float("nan")

    monkeypatch.setattr(loop, "make_update", spoil)
    with pytest.raises(RunError, match=r"update 1: 1 of \d+ weights are not finite \(first: .*no checkpoint is made"):
        train(toys.recipe(tmp_path, **constant(1e-3)), tmp_path / "run")
    assert list_checkpoints(tmp_path / "run" / "checkpoints") == []


def test_scores_of_search_that_are_not_finite_end_no_training(tmp_path, monkeypatch, caplog):
    calls, whole = [], session.scores_of

    def scores(*arguments):
        calls.append(1)
        if len(calls) == 2:
            raise NotFiniteError("no")
        return whole(*arguments)

    monkeypatch.setattr(session, "scores_of", scores)
    run = toys.run(tmp_path, dev_metrics=["exact_match"], patience=5, best_by="exact_match")
    assert "update 4: the scores of search on dev are not finite" in caplog.text
    evaluations = [line for line in lines(run) if "dev_loss" in line]
    assert [line["dev"].keys() for line in evaluations] == [{"exact_match"}, set(), {"exact_match"}]
    assert 4 not in json.loads((run / "manifest.json").read_text())["averaged_updates"]
