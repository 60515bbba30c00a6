"""Search finds what exhaustive enumeration finds, scores as re-scoring does, and cares for nothing but its input."""

import itertools
import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from headway.core.errors import NotFiniteError
from headway.core.processes import WAITED_FOR, AbandonedError
from headway.mixers import State
from headway.models import Memory, build_model
from headway.search.beam import Ensemble, beam_search, largest
from headway.search.decoding_options import Ranking
from headway.search.limits import Limits
from headway.search.sampling import Sampling, sample
from headway.tensors.batch import BOS, EOS, PAD, collate
from tests.models import toys

SYMBOLS = (4, 5, 6, 7)  # beside the four special ones


@dataclass(frozen=True)
class History(State):
    tokens: Tensor
    sentence: Tensor


class Table:
    """A search target without any network: the next token depends on sentence, time and last token, through a table."""

    def __init__(self, sentences: int, seed: int = 1, times: int = 8) -> None:
        logits = torch.randn(sentences, times, 8, 8, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        self.table = (2 * logits).log_softmax(-1)
        self.rows, self.gave = 0, list[tuple[Tensor, Tensor]]()

    def start(self, memory: Memory, capacity: int) -> History:
        return History(torch.zeros(len(memory.values), 0, dtype=torch.long), memory.values[:, 0, 0].long())

    def extend(self, tokens: Tensor, state: History):
        self.rows += len(tokens)
        tokens = tokens.squeeze(1)
        time = state.tokens.shape[1]
        scores = self.table[state.sentence, time, tokens]
        return self.given(scores), History(torch.cat([state.tokens, tokens[:, None]], 1), state.sentence)

    def given(self, scores: Tensor) -> Tensor:
        """What the search is given, which it may not write to."""
        self.gave.append((scores, scores.clone()))
        return scores

    def score(self, sentence: int, ids) -> list[float]:
        path = [BOS, *ids, EOS]
        return [float(self.table[sentence, t, path[t], path[t + 1]]) for t in range(len(path) - 1)]


def memory(*sentences: int) -> Memory:
    values = torch.tensor(sentences, dtype=torch.float64)[:, None, None]
    return Memory(values, torch.ones(len(sentences), 1, dtype=torch.bool))


def enumerate_all(table: Table, sentence: int, shortest: int, longest: int, ranking: Ranking):
    """Every output within the limits (the unknown symbol included), best first."""
    found = []
    for length in range(shortest, longest + 1):
        for ids in itertools.product((3, *SYMBOLS), repeat=length):
            found.append((sum(table.score(sentence, ids)) / ranking.penalty(length + 1), ids))
    return sorted(found, reverse=True)


def repeats(ids, size: int) -> bool:
    """Whether some `size` ids in a row come twice."""
    ngrams = [tuple(ids[start : start + size]) for start in range(len(ids) - size + 1)]
    return len(set(ngrams)) < len(ngrams)


@pytest.mark.parametrize("ranking", [Ranking(), Ranking(0.6), Ranking(1.0), Ranking(1.0, "power", "worst")])
@pytest.mark.parametrize(
    ("shortest", "longest", "size"), [(0, 3, 0), (2, 3, 0), (0, 4, 1), (0, 4, 2), (3, 4, 2), (3, 4, 3)]
)
def test_wide_beam_equals_exhaustive_enumeration(ranking, shortest, longest, size):
    """No `size` tokens in a row come twice, where that is not 0."""
    table = Table(2, seed=4)
    found = beam_search(table, memory(0, 1), Limits(shortest, [longest] * 2, (), size), beam=900, ranking=ranking)
    for sentence, hypotheses in enumerate(found):
        every = enumerate_all(table, sentence, shortest, longest, ranking)
        expected = [(score, ids) for score, ids in every if not size or not repeats(ids, size)]
        assert (len(expected) < len(every)) == (size > 0)
        assert len(hypotheses) == len(expected)
        for hypothesis, (score, ids) in zip(hypotheses[:30], expected[:30], strict=True):
            assert hypothesis.ids == ids
            assert hypothesis.score == pytest.approx(score, abs=1e-9)


def greedy(table: Table, sentence: int, longest: int) -> tuple[int, ...]:
    ids, last = [], BOS
    for time in range(longest):
        row = table.table[sentence, time, last].clone()
        row[[PAD, BOS]] = -torch.inf
        last = int(row.argmax())
        if last == EOS:
            break
        ids.append(last)
    return tuple(ids)


@pytest.mark.parametrize("seed", range(5))
def test_beam_of_one_is_greedy(seed):
    table = Table(4, seed=seed)
    found = beam_search(table, memory(0, 1, 2, 3), Limits(0, [6] * 4), beam=1, ranking=Ranking(0.6))
    assert [hypotheses[0].ids for hypotheses in found] == [greedy(table, sentence, 6) for sentence in range(4)]


@pytest.mark.parametrize("beam", [1, 2, 5])
def test_a_hypothesis_scores_as_its_rescoring(beam):
    table = Table(3, seed=7)
    for sentence, hypotheses in enumerate(
        beam_search(table, memory(0, 1, 2), Limits(0, [5] * 3), beam=beam, ranking=Ranking(0.6))
    ):
        assert len(hypotheses) == beam
        assert [h.score for h in hypotheses] == sorted((h.score for h in hypotheses), reverse=True)
        for hypothesis in hypotheses:
            expected = table.score(sentence, hypothesis.ids)
            assert hypothesis.log_probabilities == pytest.approx(expected)
            penalty = Ranking(0.6).penalty(len(expected))
            assert hypothesis.score == pytest.approx(sum(expected) / penalty)


def test_output_does_not_depend_on_the_batch():
    table, limits = Table(4, seed=3), [6, 2, 4, 5]
    together = beam_search(table, memory(0, 1, 2, 3), Limits(1, limits), beam=3)
    for sentence in range(4):
        assert beam_search(table, memory(sentence), Limits(1, [limits[sentence]]), beam=3) == [together[sentence]]
    reverse = beam_search(table, memory(3, 2, 1, 0), Limits(1, limits[::-1]), beam=3)
    assert reverse[::-1] == together


def test_a_search_that_nobody_waits_for_ends_at_its_next_step():
    searches = (
        lambda model: beam_search(model, memory(0), Limits(8, [8]), beam=2),
        lambda model: sample(model, memory(0), Limits(8, [8]), sampling=Sampling(), lines=[1], count=2),
    )
    for search in searches:
        model = Table(1)
        token = WAITED_FOR.set(lambda model=model: len(model.gave) < 3)
        with pytest.raises(AbandonedError):
            search(model)
        WAITED_FOR.reset(token)
        assert len(model.gave) == 3


def test_limits_hold_and_a_finished_sentence_costs_nothing_more():
    table = Table(2, seed=5)
    found = beam_search(table, memory(0, 1), Limits(2, [2, 6]), beam=2)
    assert all(len(hypothesis.ids) == 2 for hypothesis in found[0])
    assert all(2 <= len(hypothesis.ids) <= 6 for hypothesis in found[1])
    assert all(PAD not in h.ids and BOS not in h.ids and EOS not in h.ids for each in found for h in each)
    assert table.rows <= 2 + 2 * 2 * 2 + 2 * 4


def test_forced_prefix_is_kept_and_scored():
    table = Table(2, seed=6)
    found = beam_search(table, memory(0, 1), Limits(0, [5, 5], [[7, 4], []]), beam=3)
    assert all(hypothesis.ids[:2] == (7, 4) for hypothesis in found[0])
    assert len({hypothesis.ids for hypothesis in found[0]}) == 3
    for hypothesis in found[0]:
        assert hypothesis.log_probabilities == pytest.approx(table.score(0, hypothesis.ids))
    assert found[1] == beam_search(table, memory(1), Limits(0, [5]), beam=3)[0]


def test_a_prefix_may_be_longer_than_the_limit():
    table = Table(3, seed=6)
    found = beam_search(table, memory(0, 1, 2), Limits(0, [1, 2, 0], [[7, 4, 5], [4], []]), beam=2)
    assert [hypothesis.ids for hypothesis in found[0]] == [(7, 4, 5)]
    assert found[0][0].log_probabilities == pytest.approx(table.score(0, (7, 4, 5)))
    assert all(1 <= len(hypothesis.ids) <= 2 for hypothesis in found[1])
    assert [hypothesis.ids for hypothesis in found[2]] == [()]


@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_ends_that_are_not_probable_do_not_end_the_search(alpha):
    """A model that is sure of six tokens; at each step the end is among the best four, and not probable."""
    table, written = Table(1, times=14), (4, 5, 6, 4, 5, 6)
    table.table.fill_(math.log(0.01))
    table.table[:, :6, :, EOS], table.table[:, 6:, :, EOS] = math.log(0.02), math.log(0.9)
    for time, token in enumerate(written):
        table.table[:, time, :, token] = math.log(0.9)
    (hypotheses,) = beam_search(table, memory(0), Limits(0, [12]), beam=4, ranking=Ranking(alpha))
    assert hypotheses[0].ids == written
    assert hypotheses[0].log_probability == pytest.approx(7 * math.log(0.9))
    scores = [each.score for each in hypotheses]
    assert scores == sorted(scores, reverse=True)


def test_long_outputs_of_a_model_in_bf16_keep_their_steps():
    table, length = Table(1, times=302), 299
    table.table.fill_(-5.0)
    table.table[:, :length, :, 4] = table.table[:, length:, :, EOS] = -0.01
    table.table = table.table.bfloat16()
    (hypotheses,) = beam_search(table, memory(0), Limits(0, [300]), beam=3)
    assert hypotheses[0].ids == (4,) * length


def draws(table, sampling, count=1, lines=(1, 2), sentences=(0, 1)):
    limits = Limits(0, [6] * len(sentences))
    return sample(table, memory(*sentences), limits, sampling=sampling, lines=lines, count=count)


def test_samples_follow_the_model():
    table = Table(1, seed=8)
    found = draws(table, Sampling(seed=3), count=4000, lines=(1,), sentences=(0,))[0]
    firsts = [hypothesis.ids[0] if hypothesis.ids else EOS for hypothesis in found]
    row = table.table[0, 0, BOS].exp()
    row[[PAD, BOS]] = 0
    for symbol, probability in enumerate((row / row.sum()).tolist()):
        assert firsts.count(symbol) / 4000 == pytest.approx(probability, abs=0.03)
    for hypothesis in found[:50]:
        assert hypothesis.log_probabilities == pytest.approx(table.score(0, hypothesis.ids))


def test_sampling_depends_on_seed_and_line_only():
    table = Table(2, seed=9)
    both = draws(table, Sampling(seed=1), count=3)
    assert draws(table, Sampling(seed=1), count=3) == both
    assert draws(table, Sampling(seed=1), count=3, lines=(2,), sentences=(1,)) == [both[1]]
    assert draws(table, Sampling(seed=2), count=3) != both


def test_top_k_of_one_and_low_temperature_are_greedy():
    table = Table(2, seed=10)
    expected = [greedy(table, sentence, 6) for sentence in range(2)]
    for sampling in (Sampling(top_k=1), Sampling(temperature=1e-4), Sampling(top_p=1e-9)):
        assert [each[0].ids for each in draws(table, sampling)] == expected


def test_top_p_keeps_the_nucleus():
    scores = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log().expand(1000, -1)
    uniform = torch.linspace(0, 0.999, 1000, dtype=torch.float64)
    drawn = Sampling(top_p=0.7).draw(scores, uniform)
    assert set(drawn.tolist()) == {0, 1}
    assert (drawn == 0).double().mean().item() == pytest.approx(0.5 / 0.8, abs=0.01)


@pytest.mark.parametrize("beam", [1, 4])
def test_transformer_hypotheses_score_as_the_whole_target_pass(beam):
    model, batch = toys.model(), toys.batch()
    with torch.inference_mode():
        encoded = model.encode(batch.source, batch.source_mask)
        found = beam_search(model, encoded, Limits(1, [5, 4, 7]), beam=beam, ranking=Ranking(0.6))
        for row, hypotheses in enumerate(found):
            source = batch.source[row][batch.source_mask[row]][:-1].numpy()
            for hypothesis in hypotheses:
                target = np.asarray(hypothesis.ids)
                again = collate([source], [target])
                scores = model(again).logits.log_softmax(-1)[0]
                each = scores.gather(1, again.target_output[0][:, None]).squeeze(1)
                assert hypothesis.log_probabilities == pytest.approx(each.tolist(), abs=1e-9)


def test_ensemble_averages_probabilities():
    one, other, batch = toys.model(seed=1), toys.model(seed=2), toys.batch()
    both = Ensemble([one, other])
    with torch.inference_mode():
        tokens = torch.full((3, 1), BOS)
        scores, state = both.extend(tokens, both.start(both.encode(batch.source, batch.source_mask), 3))
        each = [m.extend(tokens, m.start(m.encode(batch.source, batch.source_mask), 3))[0].exp() for m in (one, other)]
        assert torch.allclose(scores.exp(), (each[0] + each[1]) / 2)
        alone = Ensemble([one])
        limits = Limits(0, [5, 5, 5])
        encoded = one.encode(batch.source, batch.source_mask)
        same = beam_search(alone, alone.encode(batch.source, batch.source_mask), limits, beam=3)
        assert [[h.ids for h in each] for each in same] == [
            [h.ids for h in each] for each in beam_search(one, encoded, limits, beam=3)
        ]
        assert len(state.select(torch.tensor([[0, 1]])).members) == 2


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
@pytest.mark.parametrize("time", [0, 1, 3])
@pytest.mark.parametrize("beam", [1, 3])
def test_scores_that_are_not_finite_are_named(number: float, time: int, beam: int) -> None:
    table = Table(3)
    table.table[1, time:] = (table.table[1, time:] + number).log_softmax(-1)
    limits, given = Limits(4, [4, 4, 4]), memory(0, 1, 2)
    with pytest.raises(NotFiniteError, match="the model's scores are not finite"):
        beam_search(table, given, limits, beam=beam)
    with pytest.raises(NotFiniteError, match="the model's scores are not finite"):
        sample(table, given, limits, sampling=Sampling(), lines=[1, 2, 3], count=beam)


@pytest.mark.parametrize("first", [0, 2])
@pytest.mark.parametrize(("size", "count"), [(9, 7), (640, 11), (1024, 3), (1030, 5), (1039, 1), (4001, 8)])
def test_the_largest_are_found_by_blocks(size: int, count: int, first: int) -> None:
    raw = torch.randn(6, size, generator=torch.Generator().manual_seed(1))
    raw[1] = -torch.inf
    raw[1, ::50] = 1 + raw[0, ::50]
    raw[2, -3:] += 20  # what is left over behind the last block
    raw[3] = 2.0
    raw[4, :2] = 30
    scores = torch.tensor([[0.0, -0.5], [-9.0, -torch.inf], [-1.0, 0.25]])
    sums = (scores.reshape(6, 1) + raw)[:, first:].reshape(3, -1)
    for given in (raw, raw.T.contiguous().T):
        total, values, places = largest(scores, given, count, first)
        assert torch.equal(total.topk(count).values, sums.topk(count).values)
        assert torch.equal(raw.view(3, -1).gather(1, places), values)
        assert torch.equal(scores.gather(1, places // size) + values, total)
        assert (places % size >= first).all()
        assert all(len(set(row)) == len(row) for row in places.tolist())


@pytest.mark.parametrize("beam", [1, 3])
@torch.no_grad()
def test_a_large_vocabulary_is_searched_as_a_small_one(beam: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    model, batch = build_model(toys.config(), toys.SOURCE_SIZE, 1500, False).double().eval(), toys.batch()
    encoded = model.encode(batch.source, batch.source_mask)
    limits = Limits(2, [5, 4, 6])
    found = beam_search(model, encoded, limits, beam=beam)
    monkeypatch.setattr("headway.search.beam.BLOCK", 10**6)
    assert beam_search(model, encoded, limits, beam=beam) == found


def test_greedy_search_copies_a_state_only_to_drop_sentences(monkeypatch):
    sizes, select = [3], History.select
    monkeypatch.setattr(History, "select", lambda self, index: sizes.append(len(index)) or select(self, index))
    beam_search(Table(3), memory(0, 1, 2), Limits(4, [4, 5, 6]), beam=1)
    assert len(sizes) > 1
    assert sizes == sorted(set(sizes), reverse=True)
