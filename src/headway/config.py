"""What all sections of a recipe share.

Names of annotations are read when the module is imported, so `from __future__ import annotations` stands in each file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from headway.errors import UserError, nearest

Probability = Annotated[float, Field(ge=0, lt=1)]


class Section(BaseModel):
    """A part of the recipe: immutable, and strict about its keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def named(value: Any, key: str) -> Any:
    """A bare name stands for a component without options: `attention` for `{kind: attention}`."""
    if isinstance(value, str):
        return {key: value}
    if isinstance(value, list | tuple):
        return [named(each, key) for each in value]
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


def explain(error: ValidationError, section: type[BaseModel], where: str = "") -> str:
    """Every mistake on a line of its own, with its key in `section`, which itself stands at the key `where`."""
    return "\n".join(_explain(each, section, where) for each in error.errors())


def _explain(error: Any, section: type[BaseModel], above: str) -> str:
    if error["type"] == "explained":  # by a component of its own
        return str(error["ctx"]["text"])
    path, innermost = _keys(error["loc"], section)
    where = ".".join([above, *path] if above else path) or section.__name__.removesuffix("Config").lower()
    if error["type"] == "extra_forbidden":
        names = list(innermost.model_fields)
        return str(UserError(f"unknown key{nearest(path[-1], names)}", where=where, allowed=names))
    if error["type"] == "missing":
        return f"{where}: this key is needed"
    message = error["msg"].removeprefix("Value error, ")
    received = "" if isinstance(error["input"], dict | BaseModel) else f"; received {error['input']!r}"
    return f"{where}: {message[0].lower()}{message[1:]}{received}"


def _keys(loc: Sequence[Any], section: type[BaseModel]) -> tuple[list[str], type[BaseModel]]:
    """The keys of a location, without the kinds that pydantic puts among them, and the section of the last key."""
    keys: list[str] = []
    sections = [section]
    for part in map(str, loc):
        kinds = {kind: each for each in sections if (kind := _kind(each))}
        if len(sections) > 1 and part in kinds:
            sections = [kinds[part]]
            continue
        keys.append(part)
        field = next((each.model_fields[part] for each in sections if part in each.model_fields), None)
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
