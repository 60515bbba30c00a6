"""Sections: every number has two bounds, and true is none."""

import importlib
import pkgutil
import sys
from collections.abc import Iterator
from typing import Annotated, Any, get_args, get_origin

import annotated_types
import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

import headway
from headway.core.config import Section, validated_options
from headway.core.errors import UserError
from headway.core.registry import CATALOGUE, config_of, registry_of
from headway.recipe import parse_recipe
from headway.search.decoding_options import SearchOptions

# Numbers whose bounds a validator says in its own words.
CHECKED_ELSEWHERE = {
    "headway.predictors.predict_options.LabelOptions.threshold",
}


def sections() -> dict[str, type[BaseModel]]:
    """All sections of recipes and options, and the options of all components."""
    for module in pkgutil.walk_packages(headway.__path__, "headway."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    components = {
        f"{kind}.{name}": config_of(registry_of(kind).get(name)) for kind in CATALOGUE for name in registry_of(kind)
    }
    found = {f"{section.__module__}.{section.__name__}": section for section in subclasses(Section)}
    return {name: section for name, section in found.items() if is_declared(section)} | components


def is_declared(section: type[BaseModel]) -> bool:
    """Whether a section stands in a module of headway, and was not made by a test."""
    declared: Any = sys.modules.get(section.__module__)
    for part in section.__qualname__.split("."):
        declared = getattr(declared, part, None)
    return declared is section and section.__module__.startswith("headway.")


def subclasses(section: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for below in section.__subclasses__():
        yield below
        yield from subclasses(below)


def numbers(annotation: Any, marks: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """The marks of every int and float in a type."""
    if get_origin(annotation) is Annotated:
        kind, *more = get_args(annotation)
        yield from numbers(kind, (*marks, *more))
    elif annotation in (int, float):
        yield tuple(inner for mark in marks for inner in (mark.metadata if isinstance(mark, FieldInfo) else [mark]))
    elif get_args(annotation) and get_origin(annotation) is not dict:
        several = len(get_args(annotation)) > 1
        for inner in get_args(annotation):
            if isinstance(inner, type) or get_args(inner):
                yield from numbers(inner, () if several and get_origin(annotation) is tuple else marks)


def test_every_number_has_two_bounds() -> None:
    unbounded, found = [], 0
    for name, section in sections().items():
        for key, field in section.model_fields.items():
            for marks in numbers(field.annotation, tuple(field.metadata)):
                found += 1
                low = any(isinstance(mark, annotated_types.Ge | annotated_types.Gt) for mark in marks)
                high = any(isinstance(mark, annotated_types.Le | annotated_types.Lt) for mark in marks)
                if not (low and high) and f"{name}.{key}" not in CHECKED_ELSEWHERE:
                    unbounded.append(f"{name}.{key}")
    assert found > 100
    assert sorted(set(unbounded)) == []


@pytest.mark.parametrize("given", [{"beam": True}, {"length_penalty": False}])
def test_true_and_false_are_no_numbers(given: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="input should be a number, not true or false"):
        validated_options(SearchOptions, given)


def test_half_of_a_character_is_no_value() -> None:
    """YAML can hold one; no file of a run could."""
    with pytest.raises(UserError, match=r"text\.source\.language: this text holds half of a surrogate pair"):
        parse_recipe({"data": {"train": {"tsv": "a.tsv"}}, "text": {"source": {"language": "\ud83d"}}})
