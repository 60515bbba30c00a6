"""The one stream of what a model reads, and contributions against finite differences."""

import numpy as np
import pytest
import torch

from headway.core.errors import UserError
from headway.inspect.capture import ReadOptions, contributions, log_probability, measure, read
from headway.mixers import Mixed
from headway.models import DecoderOnlyConfig, build_model
from headway.predictors import sequence_predictor
from headway.predictors.output import Example
from headway.predictors.predictor import Run
from headway.predictors.sequence_predictor import SequencePredictor
from tests.models import toys
from tests.predictors.test_captured_attention import untrained
from tests.rounding import rounding

EXAMPLES = [Example("abcd", "dcba", ("dcba",)), Example(" "), Example("ab"), Example("ba", "x")]


def test_known_targets_are_forced_and_others_decoded(predictor: SequencePredictor) -> None:
    captured = list(read(predictor, EXAMPLES, ReadOptions()))
    assert [each.example for each in captured] == EXAMPLES
    assert [len(each.views) for each in captured] == [1, 0, 1, 1]
    forced = predictor.force(["abcd", "ba"], ["dcba", "x"], capture="all")
    (free,) = predictor.predict(["ab"], capture="all")
    for each, prediction in zip((captured[0], captured[3], captured[2]), (*forced, free), strict=True):
        assert each.prediction is not None
        assert each.prediction.text == prediction.text
        assert set(each.views[0]) == set(prediction.attention)
        for name, weights in prediction.attention.items():
            np.testing.assert_allclose(each.views[0][name], weights, atol=rounding())
            assert each.views[0].rows[name] == prediction.attention.rows[name]
            assert each.views[0].columns[name] == prediction.attention.columns[name]
    decoded = [each.text for each in predictor.predict(["abcd", "ab", "ba"])]
    assert [each.hypothesis for each in captured if each.views] == decoded
    assert captured[1].hypothesis is None


def test_outputs_are_the_models_own_where_nothing_is_forced(predictor: SequencePredictor) -> None:
    captured = list(read(predictor, EXAMPLES, ReadOptions(force=False, nbest=2, capture="decoder.*.cross")))
    for each in captured:
        if each.views:
            (prediction,) = predictor.predict([each.example.source], nbest=2)
            assert (each.hypothesis, len(each.prediction.hypotheses)) == (prediction.text, 2)
            assert set(each.views[0]) == {"decoder.1.cross", "decoder.2.cross"}


def test_decoding_can_be_left_out(predictor: SequencePredictor) -> None:
    first, *_ = read(predictor, EXAMPLES, ReadOptions(hypotheses=False))
    assert first.hypothesis is None
    assert first.views


def test_contributions_are_measured_where_a_model_has_them(
    predictor: SequencePredictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sequence_predictor, "ATTENTION", 32)  # several windows
    many = EXAMPLES * 32
    options = ReadOptions(hypotheses=False, contributions=True)
    assert not any(each.contributions for each in read(predictor, many, options))
    summed = list(read(untrained(predictor, "n-grams below"), many, options))
    assert all(bool(each.contributions) == bool(each.views) for each in summed)


def test_a_predictor_that_nothing_is_known_of() -> None:
    with pytest.raises(UserError, match="nothing is known of how runs of this task read"):
        read(object(), [], ReadOptions())


ENCODER = {"layers": 2, "mixer": [{"kind": "ngram", "n": 2, "global_context": True}, "attention"]}
DECODER = {"layers": 2, "mixer": ["attention", {"kind": "ngram", "n": 3, "global_context": "prefix"}]}
STEP = 1e-5


def model():
    return toys.model(encoder=ENCODER, decoder=DECODER)


def scaled(mixer, row, head, position, span, factor):
    """The mixer's forward pass with one contribution to one position multiplied, summed up span by span."""

    def forward(x, mask, *, need_weights=False):
        terms = mixer.contributions(x, mask).contributions.clone()
        terms[row, head, position, span] *= factor
        hidden = mixer.bias + torch.stack(list(terms.unbind(3))).sum(0).transpose(1, 2).flatten(2)
        values = mixer.out_projection(hidden.relu())
        return Mixed(values if mask is None else values * mask[..., None], None)

    return forward


def finite_difference(network, batch, mixer, where, places):
    scores = []
    for factor in (1 + STEP, 1 - STEP):
        mixer.forward = scaled(mixer, *where, factor)
        with torch.no_grad():
            scores.append(log_probability(network, batch, places))
        del mixer.forward
    return (scores[0] - scores[1]) / (2 * STEP)


@pytest.mark.parametrize("places", [None, [1]])
def test_gradient_times_input_is_what_a_contribution_changes(places, monkeypatch):
    monkeypatch.setattr(torch.Tensor, "float", lambda tensor: tensor)  # log probabilities in float64, too
    network, batch = model(), toys.batch()
    found = measure(network, lambda: log_probability(network, batch, places))
    assert list(found) == ["encoder.1.self", "decoder.2.self"]
    sizes = {"encoder.1.self": (3, 2, 7, 4), "decoder.2.self": (3, 2, 7, 4)}
    assert {name: tuple(each.norm.shape) for name, each in found.items()} == sizes
    seen = 0
    for name, mixer in (("encoder.1.self", network.encoder[0].mixer), ("decoder.2.self", network.decoder[1].mixer)):
        for where in [(0, 0, 1, 0), (1, 1, 2, 1), (0, 1, 4, 2), (2, 0, 0, 3), (2, 1, 1, 3), (1, 0, 0, 1)]:
            expected = finite_difference(network, batch, mixer, where, places)
            assert found[name].gradient_input[where].item() == pytest.approx(expected.item(), abs=1e-8)
            seen += bool(abs(expected) > 1e-6)
    assert seen > 6


def test_norms_are_of_what_the_mixer_reads():
    network, batch = model(), toys.batch()
    found = measure(network, lambda: log_probability(network, batch))["encoder.1.self"]
    mixer = network.encoder[0].mixer
    x = network.source_embedding(batch.source)
    assert torch.allclose(found.norm, mixer.contributions(x, batch.source_mask).contributions.norm(dim=-1), atol=1e-12)
    assert [span.name for span in found.spans] == ["-1", "0", "+1", "global"]
    assert (found.norm.transpose(1, 2)[~batch.source_mask] == 0).all()


def test_nothing_is_left_behind_and_outputs_are_the_same():
    network, batch = model(), toys.batch()
    before = network(batch).logits
    with torch.inference_mode():
        measured = measure(network, lambda: log_probability(network, batch))
    assert not measured["encoder.1.self"].norm.requires_grad
    assert torch.equal(network(batch).logits, before)
    assert all(parameter.grad is None for parameter in network.parameters())
    assert measure(toys.model(), lambda: log_probability(toys.model(), batch)) == {}


@pytest.mark.parametrize("position", ["sinusoidal", "learned", "t5", "alibi", "rotary"])
def test_what_a_model_keeps_from_prediction_is_no_hindrance(position):
    mixers = {"layers": 2, "mixer": ["ngram", "attention"]}
    network, batch = toys.model(position=position, encoder=mixers, decoder=mixers), toys.batch()
    with torch.inference_mode():
        network(batch, capture=("*",))
    assert set(measure(network, lambda: log_probability(network, batch))) == {"encoder.1.self", "decoder.1.self"}


def test_frozen_weights_have_contributions_too():
    network, batch = model(), toys.batch()
    learned = measure(network, lambda: log_probability(network, batch))["decoder.2.self"]
    network.requires_grad_(False)
    frozen = measure(network, lambda: log_probability(network, batch))["decoder.2.self"]
    assert torch.equal(learned.gradient_input, frozen.gradient_input)


@pytest.fixture
def ngrams(predictor: SequencePredictor) -> SequencePredictor:
    """An untrained model with n-grams on the trained run's vocabulary."""
    changes = {"encoder": ENCODER, "decoder": DECODER}
    torch.manual_seed(3)
    size = len(predictor.source.vocabulary)
    network = build_model(toys.config(**changes), size, size, True).eval()
    return _with_model(predictor, network)


def _with_model(predictor: SequencePredictor, network) -> SequencePredictor:
    return SequencePredictor([Run(predictor.recipe, predictor.source, predictor.target, network)], predictor.device)


def test_texts_have_their_tokens_beside(ngrams):
    lines, targets = ["ab", "dcba", "", "c"], ["ba", "abcd", "a", ""]
    found = contributions(ngrams, lines, targets)
    encoder, decoder = ([each[name] for each in found] for name in ("encoder.1.self", "decoder.2.self"))
    assert [each.tokens for each in encoder][:2] == [["▁", "a", "b", "</s>"], ["▁", "d", "c", "b", "a", "</s>"]]
    assert [each.tokens for each in decoder][1:] == [["<s>", "▁", "a", "b", "c", "d"], ["<s>", "▁", "a"], ["<s>"]]
    for each in (*encoder, *decoder):
        assert each.norm.shape == each.gradient_input.shape == (2, len(each.tokens), len(each.spans))
    alone = contributions(ngrams, lines[:1], targets[:1])[0]["encoder.1.self"]
    np.testing.assert_allclose(alone.norm, encoder[0].norm, atol=rounding())
    np.testing.assert_allclose(alone.gradient_input, encoder[0].gradient_input, atol=rounding())


def test_chosen_tokens_add_up_to_all(ngrams):
    each = [contributions(ngrams, ["abc", "d"], ["cba", "d"], positions=[place])[0] for place in range(5)]
    together = contributions(ngrams, ["abc", "d"], ["cba", "d"])[0]
    for name in together:
        total = sum(found[name].gradient_input for found in each)
        np.testing.assert_allclose(total, together[name].gradient_input, atol=1e-5)
    first = each[0]["decoder.2.self"].gradient_input
    assert (first[:, 1:] == 0).all()
    assert (first[:, 0] != 0).any()


def test_a_decoder_only_model_reads_both_as_one_sequence(predictor):
    config = DecoderOnlyConfig.model_validate(
        {"kind": "decoder_only", "dim": 8, "feed_forward": 10, "heads": 2, "dropout": 0.0,
         "decoder": {"layers": 1, "mixer": {"kind": "ngram", "n": 2}}}
    )  # fmt: skip
    torch.manual_seed(3)
    network = build_model(config, len(predictor.source.vocabulary), len(predictor.target.vocabulary), True).eval()
    found = contributions(_with_model(predictor, network), ["ab", "c"], ["ba", "c"])
    assert found[0]["decoder.1.self"].tokens == ["▁", "a", "b", "</s>", "<s>", "▁", "b", "a"]
    assert found[1]["decoder.1.self"].norm.shape == (2, 6, 2)


def test_what_cannot_be_measured(predictor, ngrams):
    assert contributions(predictor, ["ab"], ["ba"]) == [{}]
    with pytest.raises(UserError, match=r"positions: no target has such a token; .* allowed: 0 to 3"):
        contributions(ngrams, ["a"], ["ba"], positions=[4])
