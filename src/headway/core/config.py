"""The base class of all sections of a recipe, and the validation of sections and options.

Pydantic resolves annotations by name at import, so every file has `from __future__ import annotations`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError
from pydantic_core.core_schema import ErrorType

from headway.core.errors import UserError, check_characters, in_lines, in_one_line, nearest, option, shortened
from headway.core.files import check_apart, check_figure, check_output_file, check_output_folder

# Output paths. They are checked before the work begins.
WRITES_FILE = AfterValidator(check_output_file)
WRITES_FOLDER = AfterValidator(check_output_folder)
WRITES_FIGURE = AfterValidator(check_figure)

# Numbers in recipes and options. All have two bounds, so a typo is reported before it uses up the memory.
Probability = Annotated[float, Field(ge=0, lt=1)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Score = Annotated[float, Field(ge=-1e300, le=1e300)]  # by any metric
Count = Annotated[int, Field(gt=0, le=10**9)]  # of tokens, updates, sentences
Whole = Annotated[int, Field(ge=0, le=10**9)]  # a count that may be 0
Bytes = Annotated[int, Field(ge=0, le=2**50)]
Index = Annotated[int, Field(ge=0, le=10**6)]
Width = Annotated[int, Field(gt=0, le=2**16)]  # of a vector or a window; heads
Layers = Annotated[int, Field(gt=0, le=1000)]


class Section(BaseModel):
    """A section of the recipe: immutable, without unknown keys. True and false are not accepted as numbers."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, serialize_by_alias=True)

    @model_validator(mode="before")
    @classmethod
    def _no_booleans_as_numbers(cls, values: Any) -> Any:
        if isinstance(values, Mapping):
            wrong = [name for name in _numbers_of(cls) if _holds_boolean(values.get(name))]
            if wrong:
                mistakes = [mistake("input should be a number, not true or false", name) for name in wrong]
                raise ValidationError.from_exception_data(cls.__name__, mistakes)
        return values

    @field_validator("*")
    @classmethod
    def _characters(cls, value: Any) -> Any:
        if isinstance(value, str):
            try:
                check_characters(value)  # YAML can hold lone surrogates
            except UserError as error:
                raise ValueError(error.what) from error
        return value

    @model_validator(mode="after")
    def _nothing_read_is_written(self) -> Self:
        written = {name: getattr(self, name) for name in _outputs_of(type(self))}
        if any(written.values()):
            others = (value for name, value in self if name not in written)
            read = chain.from_iterable(value if isinstance(value, tuple) else (value,) for value in others)
            check_apart(written, [path for path in read if isinstance(path, Path)])
        return self


@cache
def _numbers_of(section: type[BaseModel]) -> tuple[str, ...]:
    """The fields that hold numbers, but not booleans."""
    kinds = {name: set(_leaves(field.annotation)) for name, field in section.model_fields.items()}
    return tuple(name for name, types in kinds.items() if types & {int, float} and not types & {bool, Any, object})


@cache
def _outputs_of(section: type[BaseModel]) -> tuple[str, ...]:
    """The fields that name a file to write."""
    marks = WRITES_FILE, WRITES_FIGURE
    return tuple(name for name, field in section.model_fields.items() if any(each in field.metadata for each in marks))


def _leaves(annotation: Any) -> Iterator[Any]:
    """The types in an annotation, without the types of the values of a mapping."""
    inner = get_args(annotation)
    if not inner or get_origin(annotation) in (Literal, dict, Mapping):
        yield annotation
        return
    for part in inner[:1] if get_origin(annotation) is Annotated else inner:
        yield from _leaves(part)


def _holds_boolean(value: Any) -> bool:
    return isinstance(value, bool) or (isinstance(value, list | tuple) and any(map(_holds_boolean, value)))


def named(value: Any, key: str) -> Any:
    """Expand the name of a component without options: `attention` to `{kind: attention}`."""
    if isinstance(value, str):
        return {key: value}
    if isinstance(value, list | tuple):
        return [named(item, key) for item in value]
    return value


def _components(value: Any, key: str) -> Any:
    """As `named`. Raises ValueError if a name is not text."""
    result = named(value, key)
    for item in result if isinstance(result, list) else [result]:
        if isinstance(item, Mapping) and not isinstance(item.get(key, ""), str):
            raise ValueError(f"{key} should be text")
    return result


Component = Annotated[dict[str, Any], BeforeValidator(lambda value: _components(value, "kind"))]
Mixers = Annotated[dict[str, Any] | list[dict[str, Any]], BeforeValidator(lambda value: _components(value, "kind"))]
Components = Annotated[tuple[dict[str, Any], ...], BeforeValidator(lambda value: _components(value, "kind"))]
Metrics = Annotated[tuple[dict[str, Any], ...], BeforeValidator(lambda value: _components(value, "name"))]


def merge(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A copy of `base` with `changes`, merged recursively."""
    result = dict(base)
    for key, value in changes.items():
        nested = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merge(result[key], value) if nested else value
    return result


Options = TypeVar("Options", bound=BaseModel)


def validated(
    section: type[Options], given: Mapping[str, Any], where: str = "", spell: Callable[[str], str] = str
) -> Options:
    """Build a section from raw values. Raises UserError with the message of `explain`."""
    try:
        return section.model_validate(dict(given))
    except ValidationError as error:
        raise UserError(explain(error, section, where, spell)) from error


def validated_options(section: type[Options], given: Mapping[str, Any]) -> Options:
    """Build the options of a command or function. `model_fields_set` are the options that were set.

    Raises:
        UserError: one line for each mistake. Option names are spelled as flags or keywords when the error is shown.
    """
    return validated(section, given, spell=option)


def explain(
    error: ValidationError, section: type[BaseModel], where: str = "", spell: Callable[[str], str] = str
) -> str:
    """Describe the mistakes, one on each line, with their keys. `where` is the key of the section itself.

    `spell` formats the first key of a mistake.
    """
    return in_lines([_explain(mistake, section, where, spell) for mistake in error.errors()])


def _explain(error: Any, section: type[BaseModel], above: str, spell: Callable[[str], str]) -> str:
    if error["type"] == "explained":  # by the component that raised the error
        return str(error["ctx"]["text"])
    path, innermost = _keys(error["loc"], section)
    spelled = [spell(key) for key in path[:1]] + path[1:]
    where = ".".join([above, *spelled] if above else spelled) or section.__name__.removesuffix("Config").lower()
    if error["type"] == "extra_forbidden":
        names = [field.alias or name for name, field in innermost.model_fields.items()]
        what = f"unknown key{nearest(path[-1], names)}" if names else "unknown key; this has no options"
        return str(UserError(what, where=where, allowed=names or None).args[0])  # options are spelled later
    if error["type"] == "missing":
        return f"{where}: this key is needed"
    message = error["msg"].removeprefix("Value error, ")
    if error["type"] == "literal_error" and isinstance(error["input"], str):
        message += nearest(error["input"], re.findall(r"'([^']*)'", error["ctx"]["expected"]))
    received = "" if isinstance(error["input"], dict | BaseModel) else f"; received {shortened(error['input'])}"
    return f"{where}: {message[0].lower()}{message[1:]}{received}"


# Parts of a location that name a type of a union instead of a key.
MEMBER = re.compile(r"str|int|float|bool|constrained-\w+|\[key\]|(dict|list|tuple|literal|function-\w+)\[.*\]")


def _keys(loc: Sequence[Any], section: type[BaseModel]) -> tuple[list[str], type[BaseModel]]:
    """The keys in a pydantic location, without the names of types, and the section of the last key."""
    keys: list[str] = []
    sections = [section]
    for part in (in_one_line(str(name)) for name in loc):
        if MEMBER.fullmatch(part):
            continue
        fields = {option: option.model_fields["kind"] for option in sections if "kind" in option.model_fields}
        kinds = {field.default: option for option, field in fields.items()}
        if len(sections) > 1 and part in kinds:
            sections = [kinds[part]]
            continue
        keys.append(part)
        field = next((option.model_fields[part] for option in sections if part in option.model_fields), None)
        if field is not None and (below := list(sections_in(field.annotation))):
            innermost, sections = sections[0], below
        else:
            innermost = sections[0]
    return keys, innermost if keys else section


def sections_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """The sections in the type of a field."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from sections_in(inner)


UNKNOWN_KEY = "unknown_key"
OF_PYDANTIC = frozenset(get_args(ErrorType))  # kinds of errors that pydantic creates by name


def mistakes_within(error: ValidationError, section: type[BaseModel]) -> ValidationError:
    """The mistakes in `section`, to raise from the validator of a larger section that does not know its keys."""
    return ValidationError.from_exception_data(error.title, [_within(details, section) for details in error.errors()])


def _within(error: Any, section: type[BaseModel]) -> InitErrorDetails:
    path, innermost = _keys(error["loc"], section)
    if error["type"] == "extra_forbidden":
        names = [field.alias or name for name, field in innermost.model_fields.items()]
        return mistake(f"unknown key{nearest(path[-1], names)}; allowed: {', '.join(names)}", *path)
    if error["type"] == UNKNOWN_KEY:
        return mistake(error["msg"], *path)
    kind, values = error["type"], error.get("ctx", {})
    if kind not in OF_PYDANTIC:  # raised with a custom message
        return InitErrorDetails(
            type=PydanticCustomError(kind, "{message}", values | {"message": error["msg"]}),
            loc=tuple(path),
            input=error["input"],
        )
    return InitErrorDetails(type=kind, loc=tuple(path), input=error["input"], ctx=values)


def mistake(message: str, *path: str) -> InitErrorDetails:
    """An error with this message at the keys of `path`, for `ValidationError.from_exception_data`."""
    kind = PydanticCustomError(UNKNOWN_KEY, "{message}", {"message": message})
    return InitErrorDetails(type=kind, loc=path, input={})
