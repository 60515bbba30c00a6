"""Options are declared once: Python, the recipe and JSON know the same ones."""

import inspect
from collections import Counter
from typing import Any

import pytest
from pydantic import ValidationError

from headway.core.errors import UserError
from headway.predictors.label_predictor import LabelPredictor
from headway.predictors.predict_options import LabelOptions, PredictOptions, TreeOptions, checked_options
from headway.predictors.predictor import Predictor
from headway.predictors.sequence_predictor import SequencePredictor, TreePredictor
from headway.recipe import Recipe
from headway.search.decoding_options import SearchOptions


def test_the_recipe_has_the_options_of_search() -> None:
    assert Recipe.model_fields["decoding"].annotation is SearchOptions
    assert set(SearchOptions.model_fields) < set(PredictOptions.model_fields)


def test_each_option_has_a_description_and_one_declaration() -> None:
    for kind in (PredictOptions, TreeOptions, LabelOptions):
        assert all(field.description for field in kind.model_fields.values())
        declared = Counter(name for base in kind.__mro__ for name in vars(base).get("__annotations__", {}))
        assert {name for name in kind.model_fields if declared[name] != 1} == set()


def test_json_makes_options() -> None:
    options = PredictOptions.model_validate_json('{"beam": 2, "capture": ["decoder.*"], "prefixes": ["a", ""]}')
    assert options.given() == {"beam": 2, "capture": ("decoder.*",), "prefixes": ("a", "")}
    assert options == PredictOptions(beam=2, capture=("decoder.*",), prefixes=("a", ""))
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        PredictOptions.model_validate_json('{"beams": 2}')
    assert LabelOptions.model_validate_json('{"threshold": "dev"}').threshold == "dev"


def test_what_is_none_is_not_given() -> None:
    recipe = SearchOptions(beam=7, max_length=9)
    options = checked_options(PredictOptions, None, {"beam": None, "max_length": None, "min_length": 3})
    assert options.search(recipe) == SearchOptions(beam=7, max_length=9, min_length=3)


def test_a_length_by_the_source_takes_the_place_of_the_recipes_longest() -> None:
    recipe = SearchOptions(max_length=9)
    assert PredictOptions(max_length_offset=3).search(recipe) == SearchOptions(max_length_offset=3)
    assert PredictOptions(max_length_ratio=2.0).search(recipe) == SearchOptions(max_length_ratio=2.0)
    assert PredictOptions(max_length_ratio=2.0, max_length=4).search(recipe).max_length == 4


@pytest.mark.parametrize(
    ("recipe", "given", "message"),
    [
        ({}, {"seed": 3}, "seed: alone, this option does nothing; allowed: beside sample or kind"),
        ({}, {"top_k": 3, "kind": "beam"}, "top_k: alone, this option does nothing; allowed: beside sample or kind"),
        ({}, {"samples": 3}, "samples: alone, this option does nothing; allowed: beside kind"),
        ({"kind": "mbr"}, {"sample": True, "utility": "bleu"}, "utility: alone, this option does nothing"),
        ({"kind": "mbr", "samples": 2}, {"nbest": 3}, "nbest: more outputs than there are samples; received 3"),
        ({"kind": "mbr"}, {"kind": "beam", "nbest": 5}, "nbest: more outputs than the beam has; received 5"),
    ],
)
def test_options_of_drawing_need_what_draws(recipe: dict[str, Any], given: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as error:
        PredictOptions(**given).search(SearchOptions(**recipe))
    assert str(error.value).startswith(message)


def test_a_recipe_of_least_risk_draws_as_it_is_told() -> None:
    options = PredictOptions(temperature=0.5, samples=8, nbest=8)
    assert options.search(SearchOptions(kind="mbr", utility="bleu")).model_dump().items() >= {
        "kind": "mbr", "samples": 8, "utility": "bleu",
    }.items()  # fmt: skip
    assert options.sampling.temperature == 0.5


def test_keywords_come_before_options() -> None:
    options = checked_options(TreeOptions, PredictOptions(beam=2, nbest=2), {"beam": 3, "format": "linear"})
    assert isinstance(options, TreeOptions)
    assert options.given() == {"beam": 3, "nbest": 2, "format": "linear"}
    assert checked_options(PredictOptions, options.model_copy(), {}) is not None


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        (PredictOptions, {"min_length": 3, "max_length": 2}, "min_length: the shortest output is longer than"),
        (PredictOptions, {"top_p": 0}, "top_p: input should be greater than or equal to 0.001; received 0"),
        (PredictOptions, {"tagged": True}, "tagged: unknown option of predict"),
        (TreeOptions, {"format": "tsv"}, "format: input should be 'brackets', 'linear' or 'drawing'"),
        (LabelOptions, {"threshold": 1.5}, "threshold: this is no threshold; received 1.5; allowed: a probability"),
        (LabelOptions, {"threshold": "high"}, "threshold: this is no threshold; received 'high'"),
        (LabelOptions, {"batch_tokens": 0}, "batch_tokens: input should be greater than 0"),
    ],
)
def test_mistakes_name_the_key(kind: type[PredictOptions], given: dict[str, object], message: str) -> None:
    with pytest.raises(UserError) as error:
        checked_options(kind, None, given)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize("kind", [SequencePredictor, TreePredictor, LabelPredictor])
def test_the_signature_of_predict_has_every_option(kind: type[Predictor[Any, Any]]) -> None:
    parameters = inspect.signature(kind.predict).parameters
    assert not any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())
    assert list(parameters)[:4] == ["self", "inputs", "options", "first_line"]
    assert list(parameters)[4:] == list(kind.Options.model_fields)
    for name, field in kind.Options.model_fields.items():
        assert (parameters[name].default, parameters[name].annotation) == (field.default, field.annotation)
    assert kind.predict.__doc__
