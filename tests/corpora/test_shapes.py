"""Few shapes: every pair once, in batches of at most 32 sizes that are the same in all epochs, with little padding."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headway.corpora import shapes as module
from headway.corpora.plan import plan_epoch
from headway.corpora.shapes import MOST, Shape, few_shapes, fitted
from headway.losses import Objective, ObjectiveConfig
from headway.tensors.batch import UNLABELLED, collate, rows
from headway.training.updates import TrainingStep
from tests.corpora.test_plan import corpus_lengths
from tests.losses import toys as labelled
from tests.models import toys
from tests.models.recurrent import toys as recurrent_toys


@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=80),
    st.integers(1, 100),
    st.one_of(st.none(), st.integers(1, 9)),
    st.integers(0, 3),
)
def test_each_pair_is_in_one_batch_that_a_shape_holds(lengths, batch_tokens, sentences, epoch):
    source, target = np.array(lengths, dtype=np.int32).T
    shapes = few_shapes(source, target, batch_tokens, sentences)
    assert len(set(shapes)) == len(shapes) <= MOST
    for shape in shapes:
        most = max(1, batch_tokens // max(shape[1:]))
        assert shape.rows == sentences if sentences else shape.rows <= most
    plan = plan_epoch(source, target, batch_tokens, 1, epoch, sentences, shapes)
    assert sorted(index for batch in plan for index in batch) == list(range(len(lengths)))
    for batch in plan:
        size = Shape(len(batch), source[batch].max(), target[batch].max())
        assert size.fitted(shapes) in shapes


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=2, max_size=20))
def test_the_best_split_is_the_best_of_all(lengths):
    pairs = [(source, target, 1 + place % 3) for place, (source, target) in enumerate(dict.fromkeys(lengths))]

    def cost(part):
        return sum(count for *_, count in part) * (max(each[0] for each in part) + max(each[1] for each in part))

    saved = [0]
    for side in (0, 1):
        for cut in range(1, 9):
            halves = [each for each in pairs if each[side] <= cut], [each for each in pairs if each[side] > cut]
            if all(halves):
                saved.append(cost(pairs) - sum(map(cost, halves)))
    assert module._best_split(np.array(pairs))[0] == max(saved)


def test_padding_is_small_and_shapes_are_those_of_all_epochs():
    source, target = corpus_lengths(30_000)
    source, target = source + 1, target + 1
    shapes = few_shapes(source, target, 4096)

    def sizes(epoch, **options):
        plan = plan_epoch(source, target, 4096, 1, epoch, **options)
        shown = [Shape(len(batch), int(source[batch].max()), int(target[batch].max())) for batch in plan]
        return [shape.fitted(options.get("shapes", ())) for shape in shown]

    def tokens(shown):
        return sum(shape.rows * shape.row for shape in shown)

    any_shapes, few = sizes(0), sizes(0, shapes=shapes)
    assert len(set(any_shapes)) > 5 * MOST
    assert set(few) | set(sizes(1, shapes=shapes)) <= set(shapes)
    assert tokens(few) < 1.08 * tokens(any_shapes)


def test_hardly_a_row_is_spare():
    """The batches of a shape share its pairs evenly, however few they are."""
    source, target = corpus_lengths(10_000)
    shapes = few_shapes(source, target, 25_000)
    plan = plan_epoch(source, target, 25_000, 1, 0, shapes=shapes)
    shown = [Shape(len(batch), int(source[batch].max()), int(target[batch].max())).fitted(shapes) for batch in plan]
    assert sum(shape.rows for shape in shown) <= 10_000 + len(plan)


def test_batches_are_drawn_anew_and_longer_pairs_have_batches_of_their_own():
    source, target = corpus_lengths(2000)
    shapes = few_shapes(source, target, 500)
    source[7] = target[8] = 200  # as words are cut in an epoch
    plans = [plan_epoch(source, target, 500, 1, epoch, shapes=shapes) for epoch in (0, 0, 1)]
    composed = [{tuple(batch) for batch in plan} for plan in plans]
    assert [batch.tolist() for batch in plans[0]] == [batch.tolist() for batch in plans[1]]
    assert len(composed[0] & composed[2]) < 0.1 * len(composed[0])
    for plan in plans:
        assert sorted(np.concatenate(plan)) == list(range(2000))
        assert all(len(batch) * max(source[batch].max(), target[batch].max()) <= 500 for batch in plan)


def test_a_padded_batch_has_the_same_labels_and_nothing_to_learn_in_spare_rows():
    links = [{"links": np.array([[0, 1, 1 << 30]])} for _ in range(3)]
    for batch in (
        labelled.batch(),
        collate([np.array([4, 5])] * 3, [np.array([6])] * 3, labels=links, context=[0, 1, 0]),
    ):
        count, source = batch.source.shape
        target = batch.target_output.shape[1]
        wide = batch.padded(count + 2, source + 3, target + 1)
        assert wide.counts == batch.counts
        assert wide.indices.tolist() == [*batch.indices, batch.indices[0], batch.indices[0]]
        assert not wide.target_mask[count:].any()
        assert torch.equal(wide.source_mask[count], wide.source_mask[0])  # a spare row reads something
        for name, each in wide.labels.items():
            assert (each[count:] == UNLABELLED).all()
            before = batch.labels[name]
            kept = each[:count][tuple(map(slice, before.shape))]
            assert torch.equal(kept, before)
            beyond = each[:count].clone()
            beyond[tuple(map(slice, before.shape))] = 0
            assert (beyond <= 0).all()
        for name in ("source", "source_mask", "target_input", "target_output", "target_mask", "context_mask"):
            before, after = getattr(batch, name), getattr(wide, name)
            if before is not None:
                assert torch.equal(after[:count, : before.shape[1]], before)
                assert not after[:count, before.shape[1] :].any()
        shares = [rows(wide, rank, 2) for rank in range(2)]
        assert sum(len(share.source) for share in shares) == count + 2
        assert sum(int(share.target_mask.sum()) for share in shares) == int(batch.target_mask.sum())


MIXERS = {
    "attention": "attention",
    "forgetting": {"kind": "attention", "forget": True},
    "local": {"kind": "local", "n": 2},
    "ngram": {"kind": "ngram", "n": 2, "global_context": "prefix"},
    "nplm": {"kind": "nplm", "n": 2, "blocks": 2, "block_size": 2},
    "lightconv": {"kind": "lightconv", "width": 3},
    "linear": "linear",
    "delta": "delta",
    "ssru": "ssru",
}


STACK = {"layers": 2}
MODELS = {
    **{name: partial(toys.model, encoder=STACK, decoder={**STACK, "mixer": mixer}) for name, mixer in MIXERS.items()},
    "ngrams in the encoder": partial(
        toys.model, encoder={**STACK, "mixer": {"kind": "ngram", "n": 2, "global_context": True}}
    ),
    "convolutions in the encoder": partial(toys.model, encoder={**STACK, "mixer": MIXERS["lightconv"]}),
    "decoder-only": toys.decoder_only,
    **{cell: partial(recurrent_toys.model, cell=cell, **recurrent_toys.ODD) for cell in ("lstm", "gru", "cho_gru")},
    "labels": labelled.model,
}


@pytest.mark.parametrize("name", MODELS)
def test_padding_changes_no_loss_and_no_gradient(name):
    batch = labelled.batch() if name == "labels" else toys.batch()
    config = {"dependency": {}, "synchronous": {"cross_layer": 2}} if name == "labels" else {}
    model = MODELS[name]().train()
    step = TrainingStep(model, Objective(ObjectiveConfig.model_validate(config)))
    found = []
    for shown in (batch, fitted(batch, [Shape(99, 99, 99), Shape(5, 12, 9)])):
        model.zero_grad()
        loss = step(shown)
        loss.total.backward()
        found.append([loss.total.detach(), loss.unsmoothed, *(each.grad for each in model.parameters())])
    assert shown.source.shape == (5, 12)
    for one, other in zip(*found, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)


def test_other_batches_stay_as_they_are():
    batch = toys.batch()
    assert fitted(batch, ()) is batch
    assert fitted(replace(batch), [Shape(1, 1, 1)]).source.shape == batch.source.shape
