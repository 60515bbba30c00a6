"""Batches: every pair once, little padding, the right ids and masks, a share for each process."""

import hashlib
import tracemalloc
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from headway.corpora.plan import EncodedPairs, Mixture, plan_epoch, split_by_origin
from headway.processing.text.subword_sampling import PairSampler
from headway.tensors.batch import Batch, collate, of_one_update, rows

Lengths = NDArray[np.int32]


def corpus_lengths(pairs: int) -> tuple[Lengths, Lengths]:
    """Lengths that look like those of a translation corpus."""
    random = np.random.default_rng(1)
    source = np.clip(random.lognormal(3.0, 0.6, pairs), 1, 100)
    target = np.clip(source * random.lognormal(0.0, 0.2, pairs), 1, 100)
    return source.astype(np.int32), target.astype(np.int32)


def padding(source: Lengths, target: Lengths, plan: list[NDArray[np.int64]]) -> float:
    """The share of padding in all tokens of both sides."""
    padded = sum(len(batch) * (source[batch].max() + target[batch].max() + 2) for batch in plan)
    return float(1 - (source.sum() + target.sum() + 2 * len(source)) / padded)


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=60),
    st.integers(1, 100),
    st.integers(0, 5),
    st.integers(0, 5),
)
def test_each_pair_is_in_one_batch_within_the_budget(
    lengths: list[tuple[int, int]], batch_tokens: int, seed: int, epoch: int
) -> None:
    source, target = np.array(lengths, dtype=np.int32).reshape(-1, 2).T
    plan = plan_epoch(source + 1, target + 1, batch_tokens, seed, epoch)
    assert sorted(index for batch in plan for index in batch) == list(range(len(lengths)))
    for batch in plan:
        width = max(source[batch].max(), target[batch].max()) + 1
        assert len(batch) * width <= batch_tokens or len(batch) == 1


def test_a_plan_depends_on_its_arguments_alone() -> None:
    source, target = corpus_lengths(3000)

    def plan(seed: int, epoch: int) -> list[list[int]]:
        np.random.default_rng().random()
        return [batch.tolist() for batch in plan_epoch(source + 1, target + 1, 500, seed, epoch)]

    assert plan(1, 2) == plan(1, 2)
    different = [plan(1, 2), plan(1, 3), plan(2, 2), plan(2, 1)]
    composed = [{tuple(sorted(batch)) for batch in part} for part in different]
    for one in range(4):
        for other in range(one):
            assert len(composed[one] & composed[other]) < 0.5 * len(composed[one])  # not only another order
    longest = [int(target[batch].max()) for batch in different[0]]
    assert abs(np.corrcoef(longest, np.arange(len(longest)))[0, 1]) < 0.3  # short and long ones in turn


def test_plans_stay_as_they_are() -> None:
    """Another plan would train other weights from the same recipe, and end in others where training goes on."""
    random, content = np.random.default_rng(7), hashlib.sha256()
    source, target = (random.integers(0, 60, 5000).astype(np.int32) for _ in range(2))
    for epoch in range(3):
        for sentences in (None, 17):
            for batch in plan_epoch(source + 1, target + 1, 700, 3, epoch, sentences):
                content.update(repr(batch.tolist()).encode())
    assert content.hexdigest() == "32231263673397513478f47045cb1dd3fff012d239bb404b1b3483820cfdd2da"


def test_padding_is_below_one_percent() -> None:
    source, target = corpus_lengths(200_000)
    plan = plan_epoch(source + 1, target + 1, 2048, 1, 0)
    assert padding(source, target, plan) < 0.01
    assert len(plan) < 1.05 * np.maximum(source + 1, target + 1).sum() / 2048


def test_larger_corpora_are_sorted_in_random_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = corpus_lengths(200_000)
    monkeypatch.setattr("headway.corpora.plan.SORTED_TOGETHER", 30_000)

    def plan(epoch: int) -> list[NDArray[np.integer]]:
        return plan_epoch(source + 1, target + 1, 2048, 1, epoch)

    tracemalloc.start()
    batches = plan(0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30 * len(source)  # sorted as a whole, they take more than 45 bytes a pair
    np.testing.assert_array_equal(np.sort(np.concatenate(batches)), np.arange(len(source)))
    assert all(max(source[batch].max(), target[batch].max()) < 2048 // len(batch) for batch in batches)
    assert padding(source, target, batches) < 0.06  # in such small parts
    again = plan(0)
    assert len(again) == len(batches)
    for one, other in zip(batches, again, strict=True):
        np.testing.assert_array_equal(one, other)
    assert {tuple(batch) for batch in batches}.isdisjoint(tuple(batch) for batch in plan(1))
    longest = [int(target[batch].max()) for batch in batches]
    assert abs(np.corrcoef(longest, np.arange(len(longest)))[0, 1]) < 0.1  # parts do not come one after the other


def test_no_row_is_wasted() -> None:
    twos = np.full(10, 2, dtype=np.int32)
    assert sorted(len(batch) for batch in plan_epoch(twos, twos, 8, 1, 0)) == [2, 4, 4]


def test_collate() -> None:
    batch = collate([np.array([7, 8, 9], np.uint16), np.array([7], np.uint16)], [np.array([5]), np.array([6, 7])])
    assert batch.source.tolist() == [[7, 8, 9, 2], [7, 2, 0, 0]]
    assert batch.source_mask.tolist() == [[True] * 4, [True, True, False, False]]
    assert batch.target_input.tolist() == [[1, 5, 0], [1, 6, 7]]
    assert batch.target_output.tolist() == [[5, 2, 0], [6, 7, 2]]
    assert batch.target_mask.tolist() == [[True, True, False], [True] * 3]
    assert batch.indices.tolist() == [0, 1]
    ids = (batch.source, batch.target_input, batch.target_output)
    assert {tensor.dtype for tensor in ids} == {torch.int64}
    assert {batch.source_mask.dtype, batch.target_mask.dtype} == {torch.bool}


def test_collate_without_targets_or_text() -> None:
    batch = collate([np.array([], np.int64), np.array([4])], None)
    assert batch.source.tolist() == [[2, 0], [4, 2]]
    assert batch.target_input.shape == batch.target_output.shape == batch.target_mask.shape == (2, 0)
    assert collate([np.array([])], [np.array([])]).target_input.tolist() == [[1]]


class Toy(EncodedPairs):
    """Pair i has the source i, i and the target i."""

    def source(self, index: int) -> NDArray[np.uint16]:
        return np.array([index, index], dtype=np.uint16)

    def target(self, index: int) -> NDArray[np.uint16]:
        return np.array([index], dtype=np.uint16)

    def labels(self, index: int) -> dict[str, NDArray[np.int32]]:
        return {"source_kinds": np.array([index % 2, -1]), "target_kinds": np.array([index % 3 - 1])}


def toy_batch(size: int) -> Batch:
    return Toy().collate(np.arange(10, 10 + size))


def test_collate_pairs_and_move() -> None:
    batch = Toy().collate(np.array([9, 4]))
    assert batch.source.tolist() == [[9, 9, 2], [4, 4, 2]]
    assert batch.target_output.tolist() == [[9, 2], [4, 2]]
    assert batch.indices.tolist() == [9, 4]
    moved = batch.to("meta")
    tensors = [part for part in (*vars(moved).values(), *moved.labels.values()) if isinstance(part, torch.Tensor)]
    assert len(tensors) == 7
    assert {part.device.type for part in tensors} == {"meta"}
    assert moved.indices.tolist() == [9, 4]


def test_labels_are_padded_and_counted() -> None:
    batch = Toy().collate(np.array([9, 4]))
    assert {name: part.tolist() for name, part in batch.labels.items()} == {
        "source_kinds": [[1, -1, -1], [0, -1, -1]], "target_kinds": [[-1, -1], [0, -1]],
    }  # fmt: skip
    assert batch.counts == {"source_kinds": 2, "target_kinds": 1, "target_tokens": 4}
    assert {part.dtype for part in batch.labels.values()} == {torch.int64}
    both = of_one_update([batch, toy_batch(3)])
    assert [part.counts for part in both] == [{"source_kinds": 5, "target_kinds": 3, "target_tokens": 10}] * 2
    assert collate([np.array([4])], [np.array([5])]).labels == {}


@pytest.mark.parametrize(("size", "world_size"), [(7, 3), (2, 3), (1, 4), (5, 1)])
def test_rows_share_a_batch(size: int, world_size: int) -> None:
    batch = toy_batch(size)
    parts = [rows(batch, rank, world_size) for rank in range(world_size)]
    real = [part for part in parts if part.target_mask.any()]
    assert len(real) == min(size, world_size)
    for rank, part in enumerate(real):
        for name, value in (vars(batch) | batch.labels).items():
            if name not in ("labels", "counts") and value is not None:
                shared = (vars(part) | part.labels)[name]
                np.testing.assert_array_equal(shared, value[rank::world_size])
        assert part.counts == batch.counts
    for part in parts[len(real) :]:
        assert part.source.tolist() == batch.source[:1].tolist()
        assert part.source_mask.all()
        assert not part.target_mask.any()
        assert all((values == -1).all() for values in part.labels.values())
    assert batch.target_mask.all()


def test_batches_of_so_many_sentences() -> None:
    lengths = np.array([3, 9, 1, 4, 4, 2, 8])
    plan = plan_epoch(lengths, lengths, 1, 1, 0, batch_sentences=3)
    assert sorted(map(len, plan)) == [1, 3, 3]
    assert sorted(index for batch in plan for index in batch.tolist()) == list(range(7))
    assert [batch.tolist() for batch in plan] == [b.tolist() for b in plan_epoch(lengths, lengths, 99, 1, 0, 3)]


class Longer(PairSampler):
    """Repeats the ids of every third pair four times, those of other pairs in other epochs."""

    def __init__(self) -> None:
        super().__init__((None, None), 1, 100)

    def sample(self, ids: Sequence[int], side: int, epoch: int, index: int) -> Sequence[int]:
        return list(ids) * (4 if (index + epoch) % 3 == 0 else 1)


@pytest.mark.parametrize("mixed", [False, True])
def test_sampled_pieces_are_planned_by_their_own_lengths(mixed: bool) -> None:
    corpus = Toy()
    corpus.source_lengths, corpus.target_lengths = np.full(90, 2), np.full(90, 1)
    corpus.sampler = Longer()
    if mixed:
        corpus.mixture = Mixture([np.arange(30), np.arange(30, 90)], [0.5, 0.5])
    for epoch in (0, 1):
        plan = corpus.plan(1, epoch, batch_tokens=27)
        batches = [corpus.collate(indices, epoch=epoch) for indices in plan]
        assert all(batch.source.numel() <= 27 and batch.source_mask.all() for batch in batches)
        assert sum(map(len, plan)) == 90
        assert {batch.source.shape[1] for batch in batches} == {3, 9}
        assert [part.tolist() for part in corpus.plan(1, epoch, batch_tokens=27)] == [part.tolist() for part in plan]


def test_shares_are_exact_and_pairs_are_used_equally() -> None:
    mixture = Mixture([np.arange(40), np.arange(40, 47)], [1.0, 3.0])
    epochs = [mixture.chosen(5, epoch) for epoch in range(60)]
    counts = np.bincount(np.concatenate(epochs), minlength=47)
    assert counts.sum() == 60 * 47
    assert counts[:40].sum() == 60 * 47 // 4
    for part in (counts[:40], counts[40:]):
        assert part.max() - part.min() <= 1
    assert all(abs(int((epoch >= 40).sum()) - 47 * 3 / 4) <= 1 for epoch in epochs)


def test_an_epoch_is_a_function_of_seed_and_epoch() -> None:
    first, second = (Mixture([np.arange(9), np.arange(9, 30)], [0.3, 0.7]) for _ in range(2))
    for epoch in range(4):
        first.chosen(1, epoch)
    assert np.array_equal(first.chosen(1, 7), second.chosen(1, 7))
    assert not np.array_equal(first.chosen(1, 7), first.chosen(2, 7))
    assert not np.array_equal(first.chosen(1, 7), first.chosen(1, 8))


@pytest.mark.parametrize("seed", [1, 2])
def test_within_a_pass_no_pair_comes_twice(seed: int) -> None:
    mixture = Mixture([np.arange(10), np.arange(10, 20)], [1, 1])
    epoch = mixture.chosen(seed, 3)
    assert len(set(epoch.tolist())) == len(epoch) == 20


def test_positions_by_origin() -> None:
    parts = split_by_origin(np.array([1, 3, 4, 5, 9]), [3, 3, 9])
    assert [part.tolist() for part in parts] == [[0, 1], [], [2, 3, 4]]
