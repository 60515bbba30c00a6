"""Moving averages of weights: what checkpoints hold, what is evaluated, and a run that goes on."""

import signal

import pytest
import torch
from safetensors.torch import load_file

from headway.core.errors import UserError
from headway.training import loop, session
from headway.training.loop import train
from tests.training import toys
from tests.training.kills import assert_same

EMA = {"kind": "ema", "decay": 0.3, "of": "last"}
SETTINGS = {"checkpoint_every": 1, "keep_last": 6, "log_every": 1, "optimizer": {"learning_rate": 0.05, "warmup": 1}}


def checkpoint(run, update):
    folder = run / "checkpoints" / f"update-{update:08d}"
    tensors = load_file(folder / "optimizer.safetensors")
    raw = {name.removesuffix("#weight"): value for name, value in tensors.items() if name.endswith("#weight")}
    return load_file(folder / "model.safetensors"), raw


def test_checkpoints_and_the_final_model_hold_the_average(tmp_path, monkeypatch):
    evaluated, evaluate = [], session.evaluate

    def seen(model, *given):
        evaluated.append({name: value.clone() for name, value in model.named_parameters()})
        return evaluate(model, *given)

    monkeypatch.setattr(session, "evaluate", seen)
    run, plain = toys.run(tmp_path, average=EMA, **SETTINGS), toys.run(tmp_path, "plain", **SETTINGS)
    average: dict[str, torch.Tensor] = {}
    for update in range(1, 7):
        held, raw = checkpoint(run, update)
        alone, none = checkpoint(plain, update)
        assert not none
        assert raw.keys() == alone.keys()
        assert all(torch.equal(raw[name], alone[name]) for name in raw)  # training itself is as it was
        if update > 1:  # the first weights are not kept
            decay = min(0.3, (1 + update) / (10 + update))
            average = {name: decay * average[name] + (1 - decay) * raw[name] for name in raw}
            assert all(torch.allclose(held[name], average[name], atol=1e-6) for name in raw)
            assert any((held[name] - raw[name]).abs().max() > 1e-3 for name in raw)
        average = held
        assert all(torch.equal(evaluated[update - 1][name], held[name]) for name in raw)
    final = load_file(run / "model.safetensors")
    assert all(torch.equal(final[name], held[name]) for name in final)


def test_a_run_that_was_stopped_goes_on_with_the_average(tmp_path, monkeypatch):
    settings = {"average": {"kind": "ema"}, "updates": 6, "model": {"dropout": 0.1}, "optimizer": {"kind": "muon"}}
    alone, whole, calls = toys.run(tmp_path, "alone", **settings), loop.make_update, []

    def signalled(*arguments):
        calls.append(1)
        if len(calls) == 3:
            signal.raise_signal(signal.SIGTERM)
        whole(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "make_update", signalled)
        assert train(toys.recipe(tmp_path, **settings), tmp_path / "run") == 128 + signal.SIGTERM
    assert_same(alone, toys.run(tmp_path, resume=True, **settings))


def test_a_decay_is_that_of_a_moving_average(tmp_path):
    with pytest.raises(UserError, match=r"training\.average: .*decay is of kind ema"):
        toys.recipe(tmp_path, average={"decay": 0.9})
