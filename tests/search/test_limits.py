"""No n-gram comes twice: against loops, with forced beginnings, in samples."""

import itertools

import pytest
import torch

from headway.search.beam import beam_search
from headway.search.limits import Limits, block_repeats
from headway.search.sampling import Sampling, sample
from headway.tensors.batch import BOS, EOS, PAD
from tests.search.test_beam import Table, memory, repeats

V = 9


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("time", [1, 2, 3, 5, 11])
def test_what_is_blocked_equals_the_loops(size, time):
    generator = torch.Generator().manual_seed(10 * size + time)
    history = torch.randint(4, 7, (40, time), generator=generator)
    scores = torch.randn(40, V, generator=generator)
    scores[:, [PAD, BOS]] = -torch.inf
    expected = scores.clone()
    for row, ids in enumerate(history.tolist()):
        ngrams = [ids[start : start + size] for start in range(time - size + 1)]
        for token in range(V):
            if [*ids, token][-size:] in ngrams:
                expected[row, token] = -torch.inf
    blocked = scores.clone()
    Limits(0, [99], (), size).restrict(blocked, torch.zeros(40, dtype=torch.long), time, history)
    assert torch.equal(blocked, expected)
    if time > size:
        assert blocked.isneginf().sum() > 2 * 40


def test_what_is_forced_may_repeat_and_counts_for_the_rest():
    table = Table(1, seed=3)
    (found,) = beam_search(table, memory(0), Limits(6, [6], [[4, 5, 4, 5]], 2), beam=4)
    for hypothesis in found:
        assert hypothesis.ids[:4] == (4, 5, 4, 5)
        pairs = list(itertools.pairwise(hypothesis.ids))
        assert pairs[3] != (5, 4)
        assert pairs[4] not in pairs[:4]


def test_a_row_in_which_nothing_would_be_left_is_free():
    history = torch.tensor([[3, 4, 5, 6, 7], [3, 4, 5, 6, 6]])
    scores = torch.zeros(2, 8)
    scores[:, [PAD, BOS, EOS]] = -torch.inf
    block_repeats(scores, history, 1)
    assert scores.isneginf().tolist() == [[True] * 3 + [False] * 5, [True] * 3 + [True] * 4 + [False]]
    (hypotheses,) = beam_search(Table(1), memory(0), Limits(7, [7], (), 1), beam=2)
    assert all(len(each.ids) == 7 and len(set(each.ids)) == 5 for each in hypotheses)


def test_samples_do_not_repeat_either():
    table = Table(2, seed=9)
    sampling = Sampling(temperature=2.0, seed=1)
    found = sample(table, memory(0, 1), Limits(3, [5, 4], (), 1), sampling=sampling, lines=(1, 2), count=40)
    for sentence, hypotheses in enumerate(found):
        assert len({each.ids for each in hypotheses}) > 10
        for each in hypotheses:
            assert 3 <= len(each.ids) <= (5, 4)[sentence]
            assert not repeats(each.ids, 1)
            assert each.log_probabilities == pytest.approx(table.score(sentence, each.ids))
