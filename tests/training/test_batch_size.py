"""`batch_tokens: auto`: the largest batch that fits is found once, said, and kept; weights are as before."""

import json

import numpy as np
import pytest
import torch

from headway.core.errors import UserError
from headway.training import batch_size, start, updates
from headway.training.batch_size import SIZES, largest_batches, largest_fitting, update_fits
from headway.training.parallel import Parallel
from headway.training.start import open_session
from tests.training import toys


@pytest.mark.parametrize(("most", "found"), [(0, SIZES[0]), (1024, 1024), (5000, 4096), (10**9, SIZES[-1])])
def test_the_largest_that_fits_is_found(most, found):
    tried = []

    def fits(tokens):
        tried.append(tokens)
        return tokens <= most

    assert largest_fitting(fits) == found
    assert tried == sorted(set(tried))
    assert all(tokens <= 2 * max(most, SIZES[0]) for tokens in tried)


def test_a_run_keeps_what_was_found(tmp_path, monkeypatch, caplog):
    caplog.set_level("INFO")
    asked = []

    def fits(tokens):
        asked.append(tokens)
        return tokens <= 2048

    with monkeypatch.context() as patch:
        patch.setattr(start, "update_fits", lambda *given: fits)
        patch.setattr(batch_size, "is_sought", lambda recipe, device: True)
        run = toys.run(tmp_path, updates=2, batch_tokens="auto")
    assert asked == [1024, 2048, 4096]
    assert "training.batch_tokens: 2,048 are the most that fit" in caplog.text
    assert json.loads((run / "manifest.json").read_text())["batch_tokens"] == 2048
    resumed = toys.run(tmp_path, updates=4, batch_tokens="auto", resume=True)
    assert json.loads((resumed / "manifest.json").read_text())["batch_tokens"] == 2048
    alone = toys.run(tmp_path, "alone", updates=4, batch_tokens=2048)
    assert (resumed / "model.safetensors").read_bytes() == (alone / "model.safetensors").read_bytes()
    with pytest.raises(UserError, match=r"training\.batch_tokens: 'auto' -> 2048"):
        toys.run(tmp_path, updates=4, batch_tokens=2048, resume=True)


def test_on_a_processor_it_is_the_usual_number(tmp_path):
    run = toys.run(tmp_path, updates=1, batch_tokens="auto")
    assert json.loads((run / "manifest.json").read_text())["batch_tokens"] == 4096


def test_a_trial_leaves_weights_as_they_were_and_sees_the_largest_batches(tmp_path, monkeypatch):
    recipe = toys.recipe(tmp_path, model={"dropout": 0.1})
    with open_session(recipe, tmp_path / "run", resume=False) as session:
        corpus, model = session.corpora.train, session.model
        parallel = Parallel(0, 1, torch.device("cpu"), recipe.training)
        before = {name: each.clone() for name, each in model.state_dict().items()}
        source, target = corpus.widths()
        batch, _ = largest_batches(corpus, 200)
        assert batch.source.shape == (200 // max(source.max(), target.max()), source.max())
        assert batch.target_output.shape[1] == target.max()
        fits = update_fits(recipe, corpus, model, session.step, parallel)
        assert fits(256)

        def full(*given):
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

        monkeypatch.setattr(updates.TrainingStep, "forward", full)
        assert not fits(256)
        monkeypatch.setattr(updates.TrainingStep, "forward", lambda *given: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            fits(256)
        assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items())
        assert all(each.grad is None for each in model.parameters())


def test_the_largest_batches_have_the_longest_rows_and_the_fullest():
    class Corpus:
        def widths(self):
            return np.array([3, 8, 5, 4]), np.array([9, 2, 5, 4])

        def collate(self, indices):
            return indices.tolist()

    assert largest_batches(Corpus(), 20) == [[1, 0], [2, 2, 2, 2]]


def test_a_trial_is_of_all_that_an_update_holds(tmp_path, monkeypatch):
    """The gradients of a batch before it, and the state of the optimizer."""
    recipe = toys.recipe(tmp_path, accumulate=3)
    with open_session(recipe, tmp_path / "run", resume=False) as session:
        held, forward = [], updates.TrainingStep.forward

        def noted(step, batch):
            gradients = any(each.grad is not None for each in step.parameters())
            held.append((gradients, bool(optimizers[-1].state)))
            return forward(step, batch)

        optimizers, build = [], batch_size.build_optimizer
        monkeypatch.setattr(updates.TrainingStep, "forward", noted)
        monkeypatch.setattr(
            batch_size, "build_optimizer", lambda *given: optimizers.append(build(*given)) or optimizers[-1]
        )
        parallel = Parallel(0, 1, torch.device("cpu"), recipe.training)
        assert update_fits(recipe, session.corpora.train, session.model, session.step, parallel)(64)
    assert held == [(False, False), (True, False), *[(False, True), (True, True)] * 3]
