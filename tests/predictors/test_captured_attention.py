"""Captured attention: of every model, as the fast path used it, whatever the batch, and with its tokens."""

import json
from typing import Any

import numpy as np
import pytest
import torch

from headway.core.errors import UserError
from headway.mixers.attention import Attention
from headway.mixers.dependency_attention import DependencyAttention
from headway.models import Seq2Seq, build_model, model_section
from headway.models.cross_attention import MultiHeadCross
from headway.models.decoder_only import DecoderOnly
from headway.models.recurrent import Recurrent
from headway.predictors.output import Output
from headway.predictors.predictor import Run
from headway.predictors.sequence_predictor import SequencePredictor
from headway.tensors.batch import collate
from tests import reference
from tests.rounding import rounding
from tests.tiers import thinned

LINES = ["abcd", "ba", "abcdabcdab", "c"]
SMALL = {"dim": 8, "feed_forward": 8, "heads": 2, "dropout": 0.0}
RECURRENT = {
    "kind": "recurrent", "dim": 6, "dropout": 0.0, "encoder": {"layers": 1, "hidden": 6},
    "decoder": {"layers": 1, "hidden": 6},
}  # fmt: skip


def stacks(mixer: Any, **changes: Any) -> dict[str, Any]:
    return {**SMALL, "encoder": {"layers": 2, "mixer": mixer}, "decoder": {"layers": 2, "mixer": mixer}, **changes}


# Every mixer with weights, every relative position, and models of every kind.
MODELS: dict[str, dict[str, Any]] = {
    "attention": stacks("attention"),
    "pre-norm": stacks("attention", norm="pre"),
    "local": stacks({"kind": "local", "n": 2}),
    "dependency": stacks({"kind": "dependency", "key_bias": True}),
    "t5": stacks("attention", position="t5"),
    "alibi": stacks("attention", position="alibi"),
    "rotary": stacks("attention", position="rotary"),
    "local, rotary": stacks({"kind": "local", "n": 3}, position="rotary"),
    "n-grams below": stacks([{"kind": "ngram", "n": 2}, "attention"]),
    "nplm below": stacks([{"kind": "nplm", "n": 2}, "attention"]),
    "decoder-only": {"kind": "decoder_only", **SMALL, "decoder": {"layers": 2}},
    "bahdanau": RECURRENT | {"attention": {"score": "additive", "timing": "bahdanau"}},
    "luong": RECURRENT | {"attention": {"score": "general"}},
    "local-m": RECURRENT | {"attention": {"window": "local-m", "width": 1}},
    "monotonic": RECURRENT | {"attention": {"kind": "monotonic", "score": "dot"}},
}


def untrained(predictor: SequencePredictor, name: str, **changes: Any) -> SequencePredictor:
    """One of `MODELS`, in float64 and with larger weights than a new one's, in the place of the predictor's."""
    recipe = predictor.recipe.model_copy(update={"model": model_section(MODELS[name] | changes)})
    torch.manual_seed(3)
    size = len(predictor.source.vocabulary)
    model = build_model(recipe.model, size, size, True).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.4).add_(0.1 * torch.randn_like(parameter))
    return SequencePredictor([Run(recipe, predictor.source, predictor.target, model)], predictor.device)


def predict(own: SequencePredictor, lines: str | list[str] = LINES, **options: Any) -> list[Output]:
    return own.predict(lines, beam=2, max_length=6, min_length=2, **options)


@torch.no_grad()
def used_weights(model: Seq2Seq, source: list[int], target: list[int]) -> dict[str, torch.Tensor]:
    """The weights of a pair, slowly from what the layers read while nothing was captured; a recurrent model's by steps.

    Each is (K, T, S).
    """
    pair = collate([np.array(source)], [np.array(target, dtype=np.int64)])
    if isinstance(model, Recurrent):
        state = model.start(model.encode(pair.source, pair.source_mask), len(target) + 1)
        rows = []
        for token in pair.target_input[0]:
            _, read, state = model.decoder.extend(model.target_embedding(token[None, None]), state)
            rows.append(read.weights[0, 0, 0])
        return {"decoder.1.cross": torch.stack(rows)[None]}
    read: dict[str, tuple[torch.nn.Module, tuple[torch.Tensor, ...]]] = {}
    hooks = []
    for stack in ("encoder", "decoder"):
        for number, layer in enumerate(getattr(model, stack, ()), start=1):
            for part, kind in (("mixer", "self"), ("cross", "cross")):
                if getattr(layer, part) is not None:
                    name = f"{stack}.{number}.{kind}"
                    keep = lambda module, inputs, name=name: read.__setitem__(name, (module, inputs))  # noqa: E731
                    hooks.append(getattr(layer, part).register_forward_pre_hook(keep))
    model(pair)
    memory = model.encode(pair.source, pair.source_mask).values
    for hook in hooks:
        hook.remove()
    found = {name: slow_weights(module, inputs[0], memory) for name, (module, inputs) in read.items()}
    if isinstance(model, DecoderOnly):
        size = len(source) + 1
        found |= {name.replace("self", "cross"): each[:, size:, :size] for name, each in found.items()}
    return {name: each for name, each in found.items() if each is not None}


def slow_weights(module: Any, x: torch.Tensor, memory: torch.Tensor) -> torch.Tensor | None:
    real = torch.ones(x.shape[:2], dtype=torch.bool)
    if isinstance(module, MultiHeadCross):
        return reference.cross_attention(module, x, memory, torch.ones(memory.shape[:2], dtype=torch.bool))[1][0]
    if not isinstance(module, Attention):
        return None
    weights = reference.attention(module, x, real)[1][0]
    if isinstance(module, DependencyAttention):
        weights[: module.dependency_heads] = reference.dependency_weights(module, x, real)[0]
    return weights


def ids_of(own: SequencePredictor, tokens: list[str]) -> list[int]:
    pieces = own.target.tokens(range(len(own.target.vocabulary)))
    return [pieces.index(token) for token in tokens]


@pytest.mark.parametrize("name", thinned(MODELS, 3))
def test_what_is_captured_is_what_was_used(predictor: SequencePredictor, name: str) -> None:
    """In a batch of uneven lines as alone, and equal to loops over what the layers read while capture was off."""
    own = untrained(predictor, name)
    for said in predict(own, capture="all"):
        expected = used_weights(own.models[0], own.source.encode(said.source).values, ids_of(own, said.tokens))
        assert set(said.attention) == set(expected) == set(own.attention_names())
        for each, weights in said.attention.items():
            np.testing.assert_allclose(weights, expected[each].numpy(), atol=rounding(), err_msg=each)


@pytest.mark.parametrize("name", thinned(MODELS, 3, 1))
def test_capture_changes_no_output(predictor: SequencePredictor, name: str) -> None:
    own = untrained(predictor, name)
    for off, on in zip(predict(own, nbest=2), predict(own, nbest=2, capture="all"), strict=True):
        assert off.hypotheses == on.hypotheses
        assert off.attention == {}
    targets = ["dcba", "ab", "bababa", ""]
    for off, on in zip(own.force(LINES, targets), own.force(LINES, targets, capture="all"), strict=True):
        (one,), (other,) = off.hypotheses, on.hypotheses
        assert (one.text, one.tokens) == (other.text, other.tokens)
        np.testing.assert_allclose(one.log_probabilities, other.log_probabilities, atol=rounding())


@pytest.mark.parametrize("name", thinned(MODELS, 3, 2))
def test_rows_are_distributions_over_the_tokens_beside_them(predictor: SequencePredictor, name: str) -> None:
    own = untrained(predictor, name)
    for said in predict(own, capture="all"):
        for kind, attention in said.captured.items():
            layers, heads, rows, columns = attention.weights.shape
            assert (layers, rows, columns) == (len(attention.layers), len(attention.rows), len(attention.columns))
            assert (attention.weights >= 0).all()
            if kind != "decoder.cross" or name != "decoder-only":
                np.testing.assert_allclose(attention.weights.sum(-1), 1, atol=1e-5)
            for place, layer in enumerate(attention.layers):
                stack, _, part = kind.partition(".")
                assert heads == len(said.attention[f"{stack}.{layer}.{part}"])
                np.testing.assert_array_equal(attention.weights[place], said.attention[f"{stack}.{layer}.{part}"])


def test_nothing_more_is_computed_where_nothing_is_captured(
    predictor: SequencePredictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = untrained(predictor, "attention")
    calls: list[bool] = []
    forward = type(own.models[0]).forward
    monkeypatch.setattr(
        type(own.models[0]), "forward", lambda *given, **named: (calls.append(True), forward(*given, **named))[1]
    )
    own.predict(LINES, beam=2)
    assert calls == []
    own.force(LINES, LINES, capture="all")
    assert calls == [True]  # weights and scores come from one pass


def test_axes_name_what_is_written_in_rows_and_what_is_read_in_columns(predictor: SequencePredictor) -> None:
    (said,) = predictor.predict("abc", capture="all")
    source, written, read = ["▁", "a", "b", "c", "</s>"], ["▁", "c", "b", "a", "</s>"], ["<s>", "▁", "c", "b", "a"]
    captured = said.captured
    assert list(captured) == ["encoder.self", "decoder.self", "decoder.cross"]
    assert (captured["encoder.self"].rows, captured["encoder.self"].columns) == (source, source)
    assert (captured["decoder.self"].rows, captured["decoder.self"].columns) == (written, read)
    assert (captured["decoder.cross"].rows, captured["decoder.cross"].columns) == (written, source)
    assert (captured["decoder.cross"].layers, captured["encoder.self"].layers) == ((1, 2), (1,))
    (both,) = predict(untrained(predictor, "decoder-only"), "abc", capture="all")
    whole = both.captured["decoder.self"]
    assert whole.rows == [*source, *both.tokens, "</s>"]
    assert whole.columns == [*source, "<s>", *both.tokens]


def test_layers_without_weights_are_left_out(predictor: SequencePredictor) -> None:
    (said,) = predict(untrained(predictor, "n-grams below"), "ab", capture="all")
    assert {kind: each.layers for kind, each in said.captured.items()} == {
        "encoder.self": (2,), "decoder.self": (2,), "decoder.cross": (1, 2),
    }  # fmt: skip
    own = untrained(predictor, "decoder-only", decoder={"layers": 1, "mixer": {"kind": "ngram", "n": 2}})
    (said,) = predict(own, "ab", capture="all")
    assert (said.attention, said.captured) == ({}, {})


@pytest.mark.parametrize(
    ("capture", "names"),
    [
        ("*.cross", {"decoder.1.cross", "decoder.2.cross"}),
        ("encoder.*,decoder.2.self", {"encoder.1.self", "decoder.2.self"}),
        (["decoder.1.*"], {"decoder.1.self", "decoder.1.cross"}),
        ((), set()),
    ],
)
def test_capture_takes_patterns(predictor: SequencePredictor, capture: Any, names: set[str]) -> None:
    (said,) = predictor.predict("abc", capture=capture)
    assert set(said.attention) == names


def bertviz_shows(arguments: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """What bertviz's `head_view` makes of its arguments: a stack of each kind, and a token for each row and column."""
    sides = {"attention": ("tokens", "tokens"), "encoder_attention": ("encoder_tokens", "encoder_tokens"),
             "decoder_attention": ("decoder_tokens", "decoder_tokens"),
             "cross_attention": ("decoder_tokens", "encoder_tokens")}  # fmt: skip
    shapes = {}
    for name, (rows, columns) in sides.items():
        if name in arguments:
            assert all(layer.ndim == 4 and len(layer) == 1 for layer in arguments[name])
            whole = torch.stack([layer.squeeze(0) for layer in arguments[name]])
            assert whole.shape[2:] == (len(arguments[rows]), len(arguments[columns]))
            json.dumps(whole.tolist())
            shapes[name] = tuple(whole.shape)
    assert all(isinstance(token, str) for rows, _ in sides.values() for token in arguments.get(rows, ()))
    return shapes


def test_bertviz_gets_tensors_and_tokens_as_they_are_read(predictor: SequencePredictor) -> None:
    (said,) = predictor.predict("abc", capture="all")
    arguments = said.to_bertviz()
    assert bertviz_shows(arguments) == {
        "encoder_attention": (1, 2, 5, 5), "decoder_attention": (2, 2, 5, 5), "cross_attention": (2, 2, 5, 5),
    }  # fmt: skip
    assert arguments["encoder_tokens"] == ["▁", "a", "b", "c", "</s>"]
    assert arguments["decoder_tokens"] == ["<s>", "▁", "c", "b", "a"]
    np.testing.assert_array_equal(arguments["cross_attention"][1][0].numpy(), said.attention["decoder.2.cross"])


def test_bertviz_of_other_models(predictor: SequencePredictor) -> None:
    (said,) = predict(untrained(predictor, "decoder-only"), "abc", capture="all")
    length = len(said.source_tokens) + len(said.tokens) + 2
    assert bertviz_shows(said.to_bertviz()) == {"attention": (2, 2, length, length)}
    assert said.to_bertviz()["tokens"] == ["▁", "a", "b", "c", "</s>", "<s>", *said.tokens]
    (said,) = predict(untrained(predictor, "luong"), "abc", capture="all")
    assert bertviz_shows(said.to_bertviz()) == {"cross_attention": (1, 1, len(said.tokens) + 1, 5)}


def test_what_cannot_be_stacked_or_shown(predictor: SequencePredictor) -> None:
    mixers = [{"kind": "attention", "heads": heads} for heads in (2, 4)]
    (said,) = predict(untrained(predictor, "attention", encoder={"layers": 2, "mixer": mixers}), "ab", capture="all")
    for ask in (lambda: said.captured, said.to_bertviz):
        with pytest.raises(
            UserError, match=r"different numbers of heads.*'encoder\.1\.self': 2, 'encoder\.2\.self': 4"
        ):
            ask()
    with pytest.raises(UserError, match="to_bertviz: there is no attention to show"):
        predictor.predict("ab")[0].to_bertviz()
