"""Beam search with constant shapes and back-pointers finds what a small slow one finds, hypothesis by hypothesis."""

import math
from itertools import chain

import pytest
import torch

import headway.search.beam
from headway.search.beam import Ensemble, beam_search
from headway.search.decoding_options import Ranking
from headway.search.limits import Hypothesis, Limits
from headway.search.sampling import Sampling, sample
from headway.tensors.batch import BOS, EOS, PAD
from tests.models import test_decoder_only as decoder_only
from tests.models import toys
from tests.models.recurrent import toys as recurrent
from tests.rounding import rounding
from tests.search.test_beam import Table, memory
from tests.tiers import thinned


def allowed(token: int, ids: list[int], sentence: int, limits: Limits) -> bool:
    """Whether `token` may follow `ids`."""
    prefix, time = limits.prefix[sentence] if limits.prefix else (), len(ids)
    if time < len(prefix):
        return token == prefix[time]
    if time >= limits.longest[sentence]:
        return token == EOS
    n = limits.no_repeat
    grams = [tuple(ids[start : start + n]) for start in range(time - n + 1)] if n else []
    return not (token in (PAD, BOS) or (token == EOS and time < limits.shortest) or (*ids, token)[-n:] in grams)


def penalty(length: int, ranking: Ranking) -> float:
    """Wu et al. (2016), equation 14, or a power of the length."""
    return length**ranking.exponent if ranking.kind == "power" else ((5 + length) / 6) ** ranking.exponent


def one_sentence(model, state, sentence: int, limits: Limits, beam: int, ranking: Ranking) -> list[Hypothesis]:
    """Beam search over lists, one hypothesis after the other; `state` is that of the one sentence."""
    live, finished = [([], [], 0.0)], []
    scores, state = model.extend(torch.tensor([[BOS]]), state)
    for time in range(limits.longest[sentence] + 1):
        candidates = [
            (total + float(score), parent, token, float(score))
            for parent, (ids, _, total) in enumerate(live)
            for token, score in enumerate(scores[parent])
            if total > -math.inf and allowed(token, ids, sentence, limits)
        ]
        best = sorted(candidates, key=lambda candidate: -candidate[0])[: 2 * beam]
        for total, parent, token, score in best[:beam]:
            if token == EOS:
                ids, logs, _ = live[parent]
                finished.append(Hypothesis(tuple(ids), (*logs, score), total / penalty(time + 1, ranking)))
        finished = sorted(finished, key=lambda hypothesis: -hypothesis.score)[:beam]
        going = [each for each in best if each[2] != EOS][:beam]
        if not going:
            break
        best_alive = going[0][0] / penalty(time + 1, ranking)
        reached = {"best": finished[:1], "worst": finished[-1:], "full": []}[ranking.stop]
        if len(finished) == beam and all(best_alive <= each.score for each in reached):
            break
        parents, tokens = [each[1] for each in going], [[each[2]] for each in going]
        live = [([*live[p][0], token], [*live[p][1], score], total) for total, p, token, score in going]
        scores, state = model.extend(torch.tensor(tokens), state.select(torch.tensor(parents)))
    return finished


def assert_same(found: list[list[Hypothesis]], expected: list[list[Hypothesis]]) -> None:
    assert [[each.ids for each in hypotheses] for hypotheses in found] == [
        [each.ids for each in hypotheses] for hypotheses in expected
    ]
    for one, other in zip(chain.from_iterable(found), chain.from_iterable(expected), strict=True):
        assert one.score == pytest.approx(other.score, abs=rounding())
        assert one.log_probabilities == pytest.approx(other.log_probabilities, abs=rounding())


MODELS = {
    "transformer": lambda: toys.model(seed=2),
    "additive": lambda: toys.model(seed=2, decoder={"layers": 2, "cross": "additive"}),
    "decoder only": lambda: decoder_only.model(seed=2),
    "recurrent": lambda: recurrent.model(**recurrent.VARIANTS["monotonic, bahdanau"]),
    "ensemble": lambda: Ensemble([toys.model(seed=2), toys.model(seed=3)]),
}
LIMITS = [
    Limits(0, [6, 3, 8]),
    Limits(2, [5, 5, 5], (), 2),
    Limits(1, [7, 4, 6], [[5, 4], [], [6]], 1),
]


@pytest.mark.parametrize("limits", LIMITS, ids=["free", "no pair twice", "prefixes"])
@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("name", thinned(MODELS, 2))
@torch.no_grad()
def test_models(name, beam, limits):
    model, batch = MODELS[name](), toys.batch()
    found = beam_search(model, model.encode(batch.source, batch.source_mask), limits, beam=beam, ranking=Ranking(0.6))
    expected = []
    for row in range(3):
        state = model.start(model.encode(batch.source, batch.source_mask), 10).select(torch.tensor([row]))
        expected.append(one_sentence(model, state, row, limits, beam, Ranking(0.6)))
    assert_same(found, expected)


RANKINGS = [Ranking(1.0), Ranking(1.0, "power", "worst"), Ranking(2.0, "power", "full"), Ranking(-1.0, "wu", "worst")]


@pytest.mark.parametrize("ranking", RANKINGS)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("beam", [2, 7])
def test_tables_which_search_leaves_as_they_are(seed, beam, ranking):
    table, limits = Table(4, seed=seed), Limits(1, [6, 2, 4, 7], [[7], [], [], []], 2)
    found = beam_search(table, memory(0, 1, 2, 3), limits, beam=beam, ranking=ranking)
    sample(table, memory(0, 1), Limits(1, [5, 5], (), 1), sampling=Sampling(), lines=(1, 2), count=3)
    assert all(torch.equal(now, before) for now, before in table.gave)
    slow = Table(4, seed=seed)
    assert_same(found, [one_sentence(slow, slow.start(memory(row), 9), row, limits, beam, ranking) for row in range(4)])


@pytest.mark.parametrize("limits", LIMITS, ids=["free", "no pair twice", "prefixes"])
def test_looking_seldom_and_keeping_the_finished_changes_nothing(monkeypatch, limits):
    """As on an accelerator, where each look waits."""
    model, batch = toys.model(seed=2), toys.batch()
    encoded = model.encode(batch.source, batch.source_mask).__class__(
        *(part.detach() for part in vars(model.encode(batch.source, batch.source_mask)).values())
    )
    often = beam_search(model, encoded, limits, beam=3, ranking=Ranking(0.6))
    drawn = sample(model, encoded, limits, sampling=Sampling(), lines=(1, 2, 3), count=2)
    looks = lambda time, device: time % 3 == 2  # noqa: E731
    monkeypatch.setattr(headway.search.beam, "time_to_look", looks)
    monkeypatch.setattr("headway.search.sampling.time_to_look", looks)
    assert_same(beam_search(model, encoded, limits, beam=3, ranking=Ranking(0.6)), often)
    assert sample(model, encoded, limits, sampling=Sampling(), lines=(1, 2, 3), count=2) == drawn


@pytest.mark.slow
@torch.no_grad()
def test_a_compiled_step_is_not_compiled_again_over_a_hundred_positions():
    torch._dynamo.reset()
    model, batch, count = toys.model(dtype=torch.float32), toys.batch(), []

    def backend(graph, inputs):
        count.append(graph)
        return graph

    step = torch.compile(model.extend, backend=backend, fullgraph=True)
    compiled = model.start(model.encode(batch.source, batch.source_mask), 101)
    eager = compiled.select(torch.arange(3))
    for time in range(100):
        tokens = torch.full((3, 1), 4 + time % 4)
        (scores, compiled), (expected, eager) = step(tokens, compiled), model.extend(tokens, eager)
        assert torch.allclose(scores, expected, atol=1e-5)
        if time == 1:
            compiled_so_far = len(count)
    assert len(count) == compiled_so_far <= 2
