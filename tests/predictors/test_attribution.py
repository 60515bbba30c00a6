"""Attribution: against finite differences and loops in float64, for every model; what must sum up does."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from headway.core.errors import UserError
from headway.predictors.attribution import (
    ATTRIBUTIONS,
    Attribution,
    GradientInput,
    IntegratedGradients,
    Occlusion,
    Question,
    ValueZeroing,
    foils,
    merged,
)
from headway.predictors.sequence_predictor import SequencePredictor
from headway.processing.processor import Words
from headway.tensors.batch import UNKNOWN, collate
from tests import reference
from tests.predictors.test_captured_attention import MODELS, SMALL, stacks, untrained
from tests.rounding import rounding
from tests.tiers import thinned

SOURCE, TARGET = [5, 7, 6, 8], [6, 5, 8]
EXACT = rounding(torch.float64, 10_000)
MORE = {
    "n-grams": stacks({"kind": "ngram", "n": 2}),
    "convolutions": stacks({"kind": "lightconv", "width": 3}),
    "recurrences": stacks("ssru"),
    "linear": stacks("linear"),
    "merged": stacks("attention", decoder={"layers": 2, "cross": "merged"}),
    "depth": stacks("attention", encoder={"layers": 1, "residual": "attention"}),
}
RECURRENT = {"bahdanau", "luong", "local-m", "monotonic"}


@pytest.fixture(autouse=True)
def more_models(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, options in MORE.items():
        monkeypatch.setitem(MODELS, name, options)


def question(predictor: SequencePredictor, name: str, against: list[int] | None = None) -> Question:
    batch = collate([np.array(SOURCE)], [np.array(TARGET)])
    other = None if against is None else torch.tensor([against])
    return Question.of(untrained(predictor, name).models[0], batch, other, UNKNOWN)


def slow_scores(asked: Question, vectors: Tensor, monkeypatch: pytest.MonkeyPatch) -> Tensor:
    """(T,): the log probabilities by the equations, for vectors (C, D)."""
    size, batch = asked.batch.source.shape[1], asked.batch
    sides = iter((vectors[:size], vectors[size:]))

    def embed(tokens: torch.nn.Embedding, ids: Tensor) -> Tensor:
        given, dim = next(sides), tokens.embedding_dim
        positions = torch.stack([reference.sinusoid(position, dim) for position in range(len(given))])
        return (given * dim**0.5 + positions)[None]

    monkeypatch.setattr(reference, "embed", embed)
    logits = reference.transformer(
        asked.model,
        batch.source,
        batch.source_mask,
        batch.target_input,
        batch.target_mask,  # type: ignore[arg-type]
    )
    found = logits[0].log_softmax(-1)
    return torch.stack([found[place, token] for place, token in enumerate([*TARGET, 2])])


def changed(vectors: Tensor, place: int, factor: float) -> Tensor:
    vectors = vectors.clone()
    vectors[place] *= factor
    return vectors


@torch.no_grad()
@pytest.mark.parametrize("name", ["attention", "pre-norm"])
def test_vectors_stand_for_tokens(predictor: SequencePredictor, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = question(predictor, name)
    whole = slow_scores(asked, asked.vectors, monkeypatch)
    torch.testing.assert_close(asked.scores(asked.vectors[None])[0], whole, rtol=0, atol=1e-6)  # float32 positions
    gradient, occlusion = GradientInput()(asked), Occlusion()(asked)
    step = 1e-5
    for place in range(len(asked.vectors)):
        above, below, without = (
            slow_scores(asked, changed(asked.vectors, place, factor), monkeypatch) for factor in (1 + step, 1 - step, 0)
        )
        torch.testing.assert_close(gradient[:, place], (above - below) / (2 * step), rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(occlusion[:, place], whole - without, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", thinned([*MODELS, *MORE], 8))
def test_every_model_is_asked(predictor: SequencePredictor, name: str, caplog: pytest.LogCaptureFixture) -> None:
    asked = question(predictor, name, [7, 7, 7, 7])
    size, count = len(SOURCE) + 1, len(asked.vectors)
    whole, step = asked.scores(asked.vectors[None])[0], 1e-6
    with caplog.at_level(logging.WARNING, "headway"):
        found = {how: ATTRIBUTIONS.get(how)()(asked) for how in ("gradient_input", "occlusion")}
        found["integrated_gradients"] = IntegratedGradients(most_steps=64 if name == "monotonic" else 4096)(asked)
    for place in range(count):
        above, below, without = (
            asked.scores(changed(asked.vectors, place, factor)[None])[0] for factor in (1 + step, 1 - step, 0)
        )
        slow = (above - below) / (2 * step)
        torch.testing.assert_close(found["gradient_input"][:, place], slow, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(found["occlusion"][:, place], whole - without, rtol=0, atol=EXACT)
    difference = whole - asked.scores(torch.zeros_like(asked.vectors)[None])[0]
    missing = (found["integrated_gradients"].sum(1) - difference).abs() / difference.abs().clamp(min=0.1)
    assert (missing <= 0.01).all() == (not caplog.records)
    if name != "monotonic":  # whose choices of a position leap
        assert not caplog.records
    for values in found.values():  # nothing that is written later counts
        for row in range(len(values)):
            assert float(values[row, size + 1 + row :].abs().sum()) < EXACT


def test_steps_are_raised_until_shares_sum_up_or_a_warning_says_that_they_do_not(
    predictor: SequencePredictor, caplog: pytest.LogCaptureFixture
) -> None:
    asked = question(predictor, "pre-norm")
    after, before = asked.scores(torch.stack([asked.vectors, torch.zeros_like(asked.vectors)]))
    with caplog.at_level(logging.WARNING, "headway"):
        rough = IntegratedGradients(steps=4, most_steps=4)(asked)
    assert "integrated gradients: with 4 steps the shares of " in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING, "headway"):
        fine = IntegratedGradients(steps=4)(asked)
    assert not caplog.records
    assert (rough.sum(1) - (after - before)).abs().max() > 10 * (fine.sum(1) - (after - before)).abs().max()
    shares = (torch.arange(2000, dtype=fine.dtype) + 0.5) / 2000  # the midpoints of many steps
    points = shares[:, None, None] * asked.vectors
    gradients = torch.stack([asked.gradients(points, torch.full((2000,), token)).mean(0) for token in range(4)])
    slow = (gradients * asked.vectors).sum(-1)
    finest = IntegratedGradients(tolerance=1e-4, most_steps=1 << 14)(asked)
    torch.testing.assert_close(finest, slow, rtol=0, atol=4e-3)


def test_a_baseline_is_zero_or_the_unknown_token(predictor: SequencePredictor) -> None:
    own = untrained(predictor, "attention")
    asked = question(predictor, "attention")
    occluded = Occlusion(baseline="unknown")(asked)
    whole = own.models[0](asked.batch).logits.log_softmax(-1)
    for place in range(len(SOURCE) + 1):
        source = torch.tensor([[*SOURCE, 2]])
        source[0, place] = UNKNOWN
        other = own.models[0](collate([np.array(SOURCE)], [np.array(TARGET)])).logits * 0
        batch = asked.batch.each_tensor(lambda each, source=source: source if each is asked.batch.source else each)
        other = own.models[0](batch).logits.log_softmax(-1)
        for row, token in enumerate([*TARGET, 2]):
            difference = whole[0, row, token] - other[0, row, token]
            torch.testing.assert_close(occluded[row, place], difference, rtol=0, atol=EXACT)


def test_why_this_and_not_that(predictor: SequencePredictor) -> None:
    own, foil = question(predictor, "attention"), [7, 6, 8, 2]
    contrast = question(predictor, "attention", foil)
    batch = own.batch
    other = Question(
        own.model, batch.each_tensor(lambda each: torch.tensor([foil]) if each is batch.target_output else each),
        None, own.vectors, own.unknown, own.choices,
    )  # fmt: skip
    for how in (GradientInput(), Occlusion()):
        torch.testing.assert_close(how(contrast), how(own) - how(other), rtol=0, atol=EXACT)
    assert not how(contrast)[3].any()  # the end mark is written there, and asked against


def test_a_word_is_compared_where_it_would_go_on() -> None:
    assert foils([5, 6, 7, 2], [5, 6, 8]) == [5, 6, 8, 5]
    assert foils([5, 5, 6, 9, 2], [5, 6, 8]) == [5, 6, 6, 8, 5]
    assert foils([7, 9, 2], [4]) == [4, 4, 4]


def removed(
    weights: Tensor, value: tuple[Tensor, Tensor], heads: int, out: torch.nn.Linear, x: Tensor, j: int
) -> Tensor:
    """(L, D): what position `j` of x (S, D) adds to each query, of weights (K, L, S)."""
    total = torch.zeros(weights.shape[1], out.out_features, dtype=x.dtype)
    size = len(value[0]) // heads
    for head, (weight, bias) in enumerate(reference.heads_of(*value, heads)):
        handed = out.weight[:, head * size : (head + 1) * size] @ reference.linear(weight, bias, x[j])
        for query in range(len(total)):
            total[query] += weights[head, query, j] * handed
    return total


def slow_distance(one: Tensor, other: Tensor) -> Tensor:
    return torch.stack([1 - (a @ b) / (a.norm() * b.norm()) for a, b in zip(one, other, strict=True)])


@torch.no_grad()
@pytest.mark.parametrize("name", ["attention", "pre-norm"])
def test_value_zeroing(predictor: SequencePredictor, name: str) -> None:
    asked = question(predictor, name)
    model: Any = asked.model
    real = torch.ones(1, 5, dtype=torch.bool)

    def own_part(layer: Any, x: Tensor, j: int | None) -> Tensor:
        def mix(y: Tensor) -> Tensor:
            values, weights = reference.attention(layer.mixer, y, real[:, : y.shape[1]])
            if j is None:
                return values
            value = layer.mixer.in_projection.weight[-8:], layer.mixer.in_projection.bias[-8:]
            return values - removed(weights[0], value, 2, layer.mixer.out_projection, y[0], j)

        return reference.residual(layer.mixer_residual, x, mix)

    def cross_part(layer: Any, x: Tensor, memory: Tensor, j: int | None) -> Tensor:
        def read(y: Tensor) -> Tensor:
            values, weights = reference.cross_attention(layer.cross, y, memory, real)
            if j is None:
                return values
            value = layer.cross.memory_projection.weight[-8:], layer.cross.memory_projection.bias[-8:]
            return values - removed(weights[0], value, 2, layer.cross.out_projection, memory[0], j)

        return reference.residual(layer.cross_residual, x, read)

    def fed(layer: Any, x: Tensor) -> Tensor:
        return reference._feed(layer, x, real[:, : x.shape[1]])[0]

    x = reference.embed(model.source_embedding.tokens, asked.batch.source)
    of_source = torch.eye(5, dtype=x.dtype)
    for layer in model.encoder:
        after = fed(layer, own_part(layer, x, None))
        moved = torch.stack([slow_distance(fed(layer, own_part(layer, x, j)), after) for j in range(5)], 1)
        of_source, x = moved / moved.sum(1, keepdim=True) @ of_source, after[None]
    memory = x if name == "attention" else reference.layer_norm(model.encoder_norm, x)
    x = reference.embed(model.target_embedding.tokens, asked.batch.target_input)
    of_all = torch.cat([torch.zeros(4, 5, dtype=x.dtype), torch.eye(4, dtype=x.dtype)], 1)
    for layer in model.decoder:
        middle = own_part(layer, x, None)
        after = fed(layer, cross_part(layer, middle, memory, None))
        own = [
            slow_distance(fed(layer, cross_part(layer, own_part(layer, x, j), memory, None)), after) for j in range(4)
        ]
        crossed = [slow_distance(fed(layer, cross_part(layer, middle, memory, j)), after) for j in range(5)]
        moved = torch.stack([*crossed, *own], 1)
        moved = moved / moved.sum(1, keepdim=True)
        of_all = moved[:, 5:] @ of_all
        of_all[:, :5] += moved[:, :5] @ of_source
        x = after[None]
    torch.testing.assert_close(ValueZeroing()(asked), of_all, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", sorted({*MODELS, *MORE} - RECURRENT - {"nplm below", "depth"}))
def test_values_of_every_stack_are_zeroed(predictor: SequencePredictor, name: str) -> None:
    asked = question(predictor, name)
    shares = ValueZeroing()(asked)
    assert (shares >= 0).all()
    torch.testing.assert_close(shares.sum(1), torch.ones(4, dtype=shares.dtype), rtol=0, atol=1e-9)
    assert max(float(shares[row, 5 + 1 + row :].sum()) for row in range(4)) < 1e-9
    assert min(shares[:, :5].sum(), shares[:, 5:].sum()) > 1e-5


@pytest.mark.parametrize("name", ["luong", "nplm below", "depth"])
def test_a_model_without_such_values_is_refused(predictor: SequencePredictor, name: str) -> None:
    with pytest.raises(UserError, match="value zeroing is of") as raised:
        ValueZeroing()(question(predictor, name))
    assert len(str(raised.value)) < 200
    with pytest.raises(UserError, match="whatever token is written"):
        ValueZeroing()(question(predictor, "attention", [1, 1, 1, 1]))


def test_words_have_the_sums_of_their_tokens() -> None:
    values = np.arange(1, 22, dtype=np.float32).reshape(3, 7)  # x x | EOS, BOS y y; rows y y EOS
    source, target = Words(("ab",), (0, 0)), Words(("cd",), (0, 0))
    values = np.array([[1, 2, 3, 4, 5, 6], [10, 20, 30, 40, 50, 60], [100, 200, 300, 400, 500, 600]], np.float32)
    assert merged(values, source, target, additive=True).tolist() == [[33, 33, 44, 121], [300, 300, 400, 1100]]
    assert merged(values, source, target, additive=False).tolist() == [[16.5, 16.5, 22, 60.5], [300, 300, 400, 1100]]


class First(Attribution):
    """All to the first input."""

    def __call__(self, question: Question) -> Tensor:
        values = torch.zeros(question.length, len(question.vectors))
        values[:, 0] = 1
        return values


def test_outputs_are_attributed(predictor: SequencePredictor) -> None:
    outputs = predictor.predict(["abcd", "", "dcab"])
    views = predictor.attribute(outputs, "occlusion")
    assert len(views) == 3
    assert not views[1]
    view = views[0]
    assert view.rows["occlusion"] == ["▁", "d", "c", "b", "a", "</s>"]
    assert view.columns["occlusion"] == ["▁", "a", "b", "c", "d", "</s>", "<s>", "▁", "d", "c", "b", "a"]
    values = view["occlusion"][0]
    for row, letter in enumerate("dcb", start=1):  # each is read where it stands in the source
        assert view.columns["occlusion"][values[row, :6].argmax()] == letter
    (contrast,) = predictor.attribute(outputs[0], "occlusion", against="a")
    assert [bool(row.any()) for row in contrast["occlusion"][0]] == [True, True, True, True, False, True]
    (forced,) = predictor.force(["abcd"], ["dcba"])
    np.testing.assert_allclose(predictor.attribute(forced, Occlusion())[0]["occlusion"], view["occlusion"], atol=1e-4)
    (said,) = predictor.attribute(forced, "occlusion", words=True)
    assert (said.rows["occlusion"], said.columns["occlusion"]) == (
        ["dcba", "</s>"], ["abcd", "</s>", "<s>", "dcba"],
    )  # fmt: skip
    np.testing.assert_allclose(said["occlusion"].sum(), values.sum(), rtol=1e-4)
    (own,) = predictor.attribute(forced, f"{__name__}:First")
    assert own["First"][0, :, 0].tolist() == [1] * 6
    assert predictor.attribute(forced, {"kind": "occlusion", "baseline": "unknown"})[0]["occlusion"].shape == (1, 6, 12)


def test_mistakes_are_named(predictor: SequencePredictor, tmp_path: Path) -> None:
    outputs = predictor.predict(["ab"])
    with pytest.raises(UserError, match="did you mean 'occlusion'"):
        predictor.attribute(outputs, "oclusion")
    with pytest.raises(UserError, match="does not have this word"):
        predictor.attribute(outputs, against="ü")
    with pytest.raises(UserError, match="does not have this word"):
        predictor.attribute(outputs, against="")
    two = SequencePredictor([*predictor.runs, *predictor.runs], predictor.device)
    with pytest.raises(UserError, match="one model's"):
        two.attribute(outputs)


def test_speech_has_no_token_vectors(predictor: SequencePredictor) -> None:
    from headway.models import build_model, model_section

    config = model_section({**SMALL, "front_end": {"channels": 4}})
    model = build_model(config, 6, 12, False).eval()
    batch = collate([np.zeros((20, 6), np.float32)], [np.array(TARGET)])
    with pytest.raises(UserError, match="vectors of tokens"):
        Question.of(model, batch, None, UNKNOWN)
