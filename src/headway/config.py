"""The ground of all sections of a recipe.

Names of annotations are read when the module is imported, so `from __future__ import annotations` stands in each file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from headway.errors import UserError, nearest, option

Probability = Annotated[float, Field(ge=0, lt=1)]


class Section(BaseModel):
    """A part of the recipe: immutable, and strict about its keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, serialize_by_alias=True)


def named(value: Any, key: str) -> Any:
    """A bare name stands for a component without options: `attention` for `{kind: attention}`."""
    if isinstance(value, str):
        return {key: value}
    if isinstance(value, list | tuple):
        return [named(item, key) for item in value]
    return value


Component = Annotated[dict[str, Any], BeforeValidator(lambda value: named(value, "kind"))]
Mixers = Annotated[dict[str, Any] | list[dict[str, Any]], BeforeValidator(lambda value: named(value, "kind"))]
Metrics = Annotated[tuple[dict[str, Any], ...], BeforeValidator(lambda value: named(value, "name"))]


def merge(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """`base` with `changes`, section by section."""
    result = dict(base)
    for key, value in changes.items():
        nested = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merge(result[key], value) if nested else value
    return result


Options = TypeVar("Options", bound=BaseModel)


def validated_options(section: type[Options], given: Mapping[str, Any]) -> Options:
    """The options of an action: keywords in Python, flags on the command line. `model_fields_set` are those given.

    Raises:
        UserError: all mistakes, a line a mistake, with their options, which every shell spells in its way.
    """
    try:
        return section.model_validate(dict(given))
    except ValidationError as error:
        raise UserError(explain(error, section, spell=option)) from error


def explain(
    error: ValidationError, section: type[BaseModel], where: str = "", spell: Callable[[str], str] = str
) -> str:
    """All mistakes, a line a mistake, with its key in `section`, which itself stands at the key `where`.

    `spell` writes the first key of a mistake.
    """
    return "\n".join(_explain(mistake, section, where, spell) for mistake in error.errors())


def _explain(error: Any, section: type[BaseModel], above: str, spell: Callable[[str], str]) -> str:
    if error["type"] == "explained":  # by the component that refused it
        return str(error["ctx"]["text"])
    path, innermost = _keys(error["loc"], section)
    spelled = [spell(key) for key in path[:1]] + path[1:]
    where = ".".join([above, *spelled] if above else spelled) or section.__name__.removesuffix("Config").lower()
    if error["type"] == "extra_forbidden":
        names = [field.alias or name for name, field in innermost.model_fields.items()]
        what = f"unknown key{nearest(path[-1], names)}" if names else "unknown key; this has no options"
        return UserError(what, where=where, allowed=names or None).spelled(option)
    if error["type"] == "missing":
        return f"{where}: this key is needed"
    message = error["msg"].removeprefix("Value error, ")
    if error["type"] == "literal_error" and isinstance(error["input"], str):
        message += nearest(error["input"], re.findall(r"'([^']*)'", error["ctx"]["expected"]))
    received = "" if isinstance(error["input"], dict | BaseModel) else f"; received {error['input']!r}"
    return f"{where}: {message[0].lower()}{message[1:]}{received}"


def _keys(loc: Sequence[Any], section: type[BaseModel]) -> tuple[list[str], type[BaseModel]]:
    """The keys of a location, without the kinds that pydantic puts among them, and the section of the last key."""
    keys: list[str] = []
    sections = [section]
    for part in map(str, loc):
        kinds = {kind: option for option in sections if (kind := _kind(option))}
        if len(sections) > 1 and part in kinds:
            sections = [kinds[part]]
            continue
        keys.append(part)
        field = next((option.model_fields[part] for option in sections if part in option.model_fields), None)
        if field is not None and (below := list(_sections_in(field.annotation))):
            innermost, sections = sections[0], below
        else:
            innermost = sections[0]
    return keys, innermost if keys else section


def _kind(section: type[BaseModel]) -> str | None:
    field = section.model_fields.get("kind")
    return field.default if field is not None and isinstance(field.default, str) else None


def _sections_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """The sections that a field's type names."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _sections_in(inner)


UNKNOWN_KEY = "unknown_key"


def mistakes_within(error: ValidationError, section: type[BaseModel]) -> ValidationError:
    """The mistakes of `section`, to be raised by the validator of a larger one that does not know its keys."""
    return ValidationError.from_exception_data(error.title, [_within(details, section) for details in error.errors()])


def _within(error: Any, section: type[BaseModel]) -> InitErrorDetails:
    path, innermost = _keys(error["loc"], section)
    if error["type"] == "extra_forbidden":
        names = [field.alias or name for name, field in innermost.model_fields.items()]
        return mistake(f"unknown key{nearest(path[-1], names)}; allowed: {', '.join(names)}", *path)
    if error["type"] == UNKNOWN_KEY:
        return mistake(error["msg"], *path)
    return InitErrorDetails(type=error["type"], loc=tuple(path), input=error["input"], ctx=error.get("ctx", {}))


def mistake(message: str, *path: str) -> InitErrorDetails:
    """A mistake in words, at the keys of `path`, for `ValidationError.from_exception_data`."""
    kind = PydanticCustomError(UNKNOWN_KEY, "{message}", {"message": message})
    return InitErrorDetails(type=kind, loc=path, input={})
