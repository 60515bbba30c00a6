"""The one stream of what a model reads: every example, in its order, with the attention behind the right output."""

import numpy as np
import pytest

from headway.errors import UserError
from headway.predictors.output import Example
from headway.predictors.sequence_predictor import SequencePredictor
from headway.runs.inspect.capture import TOGETHER, ReadOptions, read
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


def test_contributions_are_measured_where_a_model_has_them(predictor: SequencePredictor) -> None:
    many = EXAMPLES * TOGETHER
    options = ReadOptions(hypotheses=False, contributions=True)
    assert not any(each.contributions for each in read(predictor, many, options))
    summed = list(read(untrained(predictor, "n-grams below"), many, options))
    assert all(bool(each.contributions) == bool(each.views) for each in summed)


def test_a_predictor_that_nothing_is_known_of() -> None:
    with pytest.raises(UserError, match="nothing is known of how runs of this task read"):
        read(object(), [], ReadOptions())
