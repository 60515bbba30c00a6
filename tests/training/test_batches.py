"""Batches prepared ahead: the same random numbers as if one thread had done all in turn, errors in their turn."""

import threading
from itertools import islice
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from headway.core.errors import UserError
from headway.models.tagger import TaggerConfig
from headway.tensors.batch import collate
from headway.training import start
from headway.training.checkpoints import TrainingState
from headway.training.parallel import Parallel
from headway.training.start import check_recipe, open_session
from headway.training.updates import ahead, in_time, planned_updates, prepare_update, sizes_of, update_seed
from tests.training import toys
from tests.training.kills import assert_same


class Noisy:
    """A corpus whose sources are drawn anew each time."""

    def plan(self, seed, epoch, **sizes):
        return [np.array([2 * batch, 2 * batch + 1]) for batch in range(3)]

    def collate(self, indices, generator=None, epoch=None):
        drawn = [torch.randint(4, 9, (3,), generator=generator).numpy() for _ in indices]
        return collate(drawn, drawn, indices)


def test_draws_go_on_where_collating_ended(tmp_path):
    config = toys.recipe(tmp_path, accumulate=2).training
    alone = Parallel(0, 1, torch.device("cpu"), config)
    updates = planned_updates(Noisy(), config, TrainingState(update=4), {})
    for update in (prepare_update(Noisy(), plan, alone) for plan, _ in zip(updates, range(3), strict=False)):
        torch.manual_seed(update_seed(config.seed, update.plan.number, 0))
        expected = [Noisy().collate(indices).source for indices in update.plan.indices]
        after = torch.rand(4)
        torch.manual_seed(0)
        update.restore_random_state()
        assert torch.equal(torch.rand(4), after)
        for batch, source in zip(update.batches, expected, strict=True):
            assert torch.equal(batch.source, source)
            assert batch.counts["target_tokens"] == 8 * len(expected)


def test_plans_go_on_where_the_run_stands():
    config = SimpleNamespace(seed=1, accumulate=2)
    updates = planned_updates(Noisy(), config, TrainingState(update=10, epoch=3, batch=2), {})
    found = [next(updates) for _ in range(3)]
    assert [(plan.number, plan.epoch, len(plan.indices), plan.ends_epoch) for plan in found] == [
        (11, 3, 1, True),
        (12, 4, 2, False),
        (13, 4, 1, True),
    ]


def test_the_next_is_made_by_another_thread_while_this_one_is_used():
    made = threading.Event()

    def items():
        yield threading.current_thread()
        made.set()
        yield threading.current_thread()

    taken = ahead(items())
    first = next(taken)
    made.wait()
    assert first is not threading.current_thread()
    assert list(taken) == [first]


def test_no_thread_is_taken_from_cores_that_all_compute(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("headway.training.updates.cores", lambda: 4)

    def maker(threads: int, device: str) -> threading.Thread:
        monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
        taken = in_time((threading.current_thread() for _ in range(1)), torch.device(device))
        return next(taken)

    assert maker(4, "cpu") is threading.current_thread()
    assert maker(3, "cpu") is not threading.current_thread()
    assert maker(4, "meta") is not threading.current_thread()


def test_errors_come_in_their_turn_and_closing_ends_the_thread():
    def items():
        yield 1
        raise KeyError("second")

    taken = ahead(items())
    assert next(taken) == 1
    with pytest.raises(KeyError, match="second"):
        next(taken)
    before = threading.active_count()
    taken = ahead(iter(range(10)))
    next(taken)
    taken.close()
    assert threading.active_count() == before


def test_a_run_in_few_shapes_goes_on_exactly_and_as_one_of_two_processes_would(tmp_path):
    settings = {"shapes": "few", "model": {"dropout": 0.1}, "accumulate": 2}
    alone = toys.run(tmp_path, "alone", **settings)
    toys.run(tmp_path, updates=4, **settings)
    assert_same(alone, toys.run(tmp_path, resume=True, **settings))
    config = toys.recipe(tmp_path, **settings).training
    with open_session(toys.recipe(tmp_path, **settings), alone, resume=True) as session:
        corpus = session.corpora.train
    shapes = sizes_of(corpus, config)["shapes"]
    seen = set()
    for update in islice(planned_updates(corpus, config, TrainingState(), sizes_of(corpus, config)), 30):
        shares = [
            prepare_update(corpus, update, Parallel(rank, 2, torch.device("cpu"), config), shapes).batches
            for rank in range(2)
        ]
        for one, other in zip(*shares, strict=True):
            seen.add((len(one.source) + len(other.source), one.source.shape[1], one.target_input.shape[1]))
            assert one.counts == other.counts
    assert seen <= set(shapes)


def test_few_shapes_are_of_pairs(tmp_path, monkeypatch):
    any_task = SimpleNamespace(
        name="labels", check=lambda recipe: None, mixes_corpora=True, writes="text", reads_text=True
    )
    monkeypatch.setattr(start, "build_task", lambda name: any_task)
    recipe = toys.recipe(tmp_path, shapes="few")
    tagger = recipe.model_copy(update={"model": TaggerConfig(encoder="hf:bert")})
    with pytest.raises(UserError, match=r"training\.shapes: batches of pairs alone"):
        check_recipe(tagger)
