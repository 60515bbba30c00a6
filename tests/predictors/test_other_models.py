"""Prediction and reports know no model but the contract: a decoder-only model, with attention and without, learned."""

import numpy as np
import pytest
import torch

from headway.core.errors import UserError
from headway.models import build_model, model_section
from headway.predictors.output import Example
from headway.predictors.predictor import Run
from headway.predictors.sequence_predictor import SequencePredictor
from headway.tasks.task import outputs_of
from headway.training.start import check_recipe


def untrained(predictor: SequencePredictor, **changes: object) -> SequencePredictor:
    """A decoder-only model in the place of the predictor's."""
    base = {"kind": "decoder_only", "dim": 16, "feed_forward": 16, "heads": 2, "decoder": {"layers": 2}}
    recipe = predictor.recipe.model_copy(update={"model": model_section(base | changes)})
    torch.manual_seed(1)
    size = len(predictor.source.vocabulary)
    model = build_model(recipe.model, size, size, True).eval()
    return SequencePredictor([Run(recipe, predictor.source, predictor.target, model)], predictor.device)


NGRAM = {"decoder": {"layers": 1, "mixer": {"kind": "ngram", "n": 3}}}


def test_attention_over_the_whole_sequence_is_cut_to_it(predictor: SequencePredictor) -> None:
    own = untrained(predictor)
    assert own.attention_names() == [f"decoder.{layer}.{kind}" for layer in (1, 2) for kind in ("self", "cross")]
    for said in own.predict(["ab", "abcdabcd"], capture=("decoder.1.*",), max_length=5):
        source, target = len(said.source_tokens) + 1, len(said.tokens) + 1
        whole, read = said.attention["decoder.1.self"], said.attention["decoder.1.cross"]
        assert whole.shape == (2, source + target, source + target)
        np.testing.assert_allclose(whole.sum(-1), 1, atol=1e-5)
        np.testing.assert_array_equal(read, whole[:, source:, :source])


def test_a_report_shows_what_attention_there_is(predictor: SequencePredictor) -> None:
    pairs = [Example("abc")]
    (example,) = outputs_of(untrained(predictor), pairs)
    assert set(example.attention) == {"decoder.1.cross", "decoder.2.cross"}
    (example,) = outputs_of(untrained(predictor, **NGRAM), pairs)
    assert example.attention == {}


def test_attention_that_is_not_there_is_an_error_that_names_what_is(predictor: SequencePredictor) -> None:
    with pytest.raises(UserError, match=r"capture: .*; received 'encoder\.\*'; allowed: decoder\.1\.self, decoder"):
        untrained(predictor).predict(["ab"], capture=("encoder.*",))
    with pytest.raises(UserError, match="allowed: none; it has no attention"):
        untrained(predictor, **NGRAM).predict(["ab"], capture=("*",))


def test_learned_positions_bound_source_and_output_together(predictor: SequencePredictor) -> None:
    own = untrained(predictor, position="learned", max_position=12)
    (said,) = own.predict(["abcd"], min_length=5)  # 5 pieces, two marks, and 5 pieces more
    assert (len(said.tokens), said.at_limit) == (5, True)
    (full,) = own.predict(["abcdabcda"])  # 10 pieces and two marks leave no position to an output
    assert (full.text, full.at_limit) == ("", True)
    with pytest.raises(UserError, match=r"line 1: the shortest output is longer than the longest output.* up to 5"):
        own.predict(["abcd"], min_length=6)
    with pytest.raises(UserError, match=r"line 2: this prefix is longer .*received '7 tokens'; allowed: up to 6"):
        own.predict(["ab", "abc"], prefixes=["", "abcabc"])
    for options in ({}, {"max_source_length": 11}):
        with pytest.raises(
            UserError,
            match=r"line 1: .* too long; received '11 tokens'; allowed: up to 10; truncate cuts longer ones$",
        ):
            own.predict(["abcdabcdab"], **options)
    assert own.predict(["abcdabcdab"], max_source_length=11, truncate=True)[0].truncated


def test_learned_positions_bound_a_source_whatever_is_asked_for(predictor: SequencePredictor) -> None:
    own = untrained(predictor, kind="transformer", encoder={"layers": 1}, position="learned", max_position=12)
    with pytest.raises(
        UserError,
        match=r"line 2: .* too long; received '12 tokens'; allowed: up to 11; truncate cuts longer ones$",
    ):
        own.predict(["ab", "abcdabcdabc"], max_source_length=20)
    assert own.predict(["abcdabcdabc"], max_source_length=20, truncate=True)[0].truncated


@pytest.mark.parametrize(("kind", "most"), [("transformer", 11), ("decoder_only", 5)])
def test_a_recipe_keeps_sentences_within_the_learned_positions(
    predictor: SequencePredictor, kind: str, most: int
) -> None:
    model = model_section({"kind": kind, "dim": 16, "heads": 2, "position": "learned", "max_position": 12})
    recipe = predictor.recipe.model_copy(update={"model": model})
    with pytest.raises(UserError, match=rf"data\.max_length: .*received 100; allowed: up to {most}, or a higher"):
        check_recipe(recipe)
    data = recipe.data.model_copy(update={"max_length": most})
    check_recipe(recipe.model_copy(update={"data": data}))
