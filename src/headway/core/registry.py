"""Registries: the names of components, where their classes are, and the options of each.

A component is named by a short name or by import path, `my_package.module:Class`. Its class is imported when it is
first asked for; one that is named by import path may be in the current folder. Its options are those of the class's own
`Config`, or of its keyword-only arguments.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from pydantic_core import PydanticUndefined

from headway.core.config import Section, mistake, mistakes_within, validated
from headway.core.errors import UserError, nearest, option

Component = TypeVar("Component")

# Whether names by import path are imported; None where nobody has said so.
_foreign_code = ContextVar[bool | None]("_foreign_code", default=None)
IMPORT_PATH = re.compile(r"[A-Za-z_]\w*(\.\w+)*:[A-Za-z_]\w*")


@contextmanager
def foreign_code(allowed: bool | None) -> Iterator[None]:
    """Within this context, names by import path are imported or refused, whoever asks for them; None changes nothing.

    Without it the names in a recipe are imported, for whoever gives one trusts it, and those in a run are refused.
    """
    token = _foreign_code.set(_foreign_code.get() if allowed is None else allowed)
    try:
        yield
    finally:
        _foreign_code.reset(token)


def leave_given() -> bool:
    """Whether the code that runs name may be imported in this context."""
    return _foreign_code.get() is True


def names_of_a_run() -> AbstractContextManager[None]:
    """Within this context names by import path are refused, unless `foreign_code` has allowed them: runs travel."""
    return foreign_code(leave_given())


def own_code(tree: Any) -> AbstractContextManager[None]:
    """Within this context the code that the raw tree of a recipe names is imported, and that of its own run with it.

    If names are refused already, as the recipe is that of a run, they stay refused.
    """
    return foreign_code(_foreign_code.get() is not False and bool(import_paths(tree)))


def is_foreign(name: str) -> bool:
    """Whether a component is named by import path."""
    return ":" in name


def is_own(component: object) -> bool:
    """Whether the class of a component is a part of headway, whose contract need not be tried."""
    return type(component).__module__.startswith("headway.")


def import_paths(tree: Any) -> set[str]:
    """The texts in a raw tree that look like components named by import path."""
    if isinstance(tree, str):
        return {tree} if IMPORT_PATH.fullmatch(tree) else set()
    inner = tree.values() if isinstance(tree, Mapping) else tree if isinstance(tree, list | tuple) else ()
    return set().union(*map(import_paths, inner))


class Setting(NamedTuple):
    """One option of a component: its name, its type in words, and its default (`REQUIRED` where there is none)."""

    name: str
    type: str
    default: Any


REQUIRED = PydanticUndefined


class _Options(Section):
    """Keyword-only arguments as a section."""

    model_config = ConfigDict(arbitrary_types_allowed=True)


class Registry(Generic[Component]):
    """The components of one kind.

    Args:
        kind: what one of them is called in messages, such as `mixer`.
        base: the import path of the class that all of them derive from.
        homes: the import path of each class by its name.
    """

    def __init__(self, kind: str, base: str, homes: Mapping[str, str]) -> None:
        self.kind, self._base, self._homes = kind, base, dict(homes)

    def __iter__(self) -> Iterator[str]:
        return iter(self._homes)

    def __contains__(self, name: object) -> bool:
        return name in self._homes

    def __len__(self) -> int:
        return len(self._homes)

    def get(self, name: Any, where: str | None = None) -> type[Component]:
        """The class of a registered component, or of one named by import path.

        Args:
            name: the short name, or `my_package.module:Class`.
            where: the recipe key or option that names it, for messages.

        Raises:
            UserError: no such component, module or class; a class of another kind; foreign code where none is allowed.
        """
        if not isinstance(name, str):
            raise UserError(f"the name of a {self.kind} should be text", where=where, received=name)
        if not is_foreign(name):
            if name not in self._homes:
                allowed = [*self._homes, "my_package.module:Class"]
                what = f"unknown {self.kind}{nearest(name, self._homes)}"
                raise UserError(what, where=where, received=name, allowed=allowed)
            return self._import(self._homes[name])
        if _foreign_code.get() is False:
            raise UserError(
                f"loading this would import the {self.kind} {name}, which is not a part of headway",
                where=where,
                allowed=f"{option('allow_code')} where you trust that code",
            )
        try:
            if (here := str(Path.cwd())) not in sys.path:
                sys.path.append(here)  # behind all that is installed; it stays for the processes that begin later
            component = self._import(name)
        except (Exception, SystemExit) as error:  # whatever the code of another does when it is imported
            problem = str(error) if isinstance(error, ImportError) else f"{type(error).__name__}: {error}"
            raise UserError(f"cannot import the {self.kind} ({problem})", where=where, received=name) from error
        base = self._import(self._base)
        if not (isinstance(component, type) and issubclass(component, base)):
            what = f"this is not a subclass of {self._base.replace(':', '.')}"
            raise UserError(what, where=where, received=name)
        return component

    def _import(self, path: str) -> type[Component]:
        module, _, name = path.partition(":")
        component: type[Component] = getattr(importlib.import_module(module), name)
        return component

    def choices(self, name: str) -> list[Setting]:
        """The options of a component, with their defaults. Raises UserError as `get` does."""
        return choices_of(config_of(self.get(name)))

    def config(self, kind: Any) -> type[BaseModel]:
        """The class of a component's options, for validators of recipes. Raises ValidationError, at the key `kind`."""
        try:
            return config_of(self.get(kind))
        except UserError as error:
            wrong = mistake(error.spelled(option), "kind")
            raise ValidationError.from_exception_data(self.kind, [wrong]) from error

    def section(self, options: Mapping[str, Any]) -> BaseModel:
        """The options of a component, its `kind` among them, as its own class has them; for validators of recipes.

        Raises:
            ValidationError: every mistake, with its key.
        """
        if "kind" not in options:
            missing = mistake(f"a {self.kind} needs a kind; allowed: {', '.join(self)}")
            raise ValidationError.from_exception_data(self.kind, [missing])
        config = self.config(options["kind"])
        given = {name: value for name, value in options.items() if name != "kind" or "kind" in config.model_fields}
        try:
            return config.model_validate(given)
        except ValidationError as error:
            raise mistakes_within(error, config) from error

    def options(self, name: str, where: str | None = None) -> list[str]:
        """The names of a component's options. Raises UserError as `get` does."""
        return list(config_of(self.get(name, where)).model_fields)

    def build(
        self,
        config: Mapping[str, Any] | str,
        *arguments: Any,
        defaults: Mapping[str, Any] | None = None,
        where: str | None = None,
    ) -> Component:
        """A component from its recipe entry, such as `{"kind": "attention", "heads": 8}` or just `"attention"`.

        A class with a `Config` is called with `arguments` and that config, any other with `arguments` and its options.

        Args:
            config: `kind` and the options of that kind.
            arguments: what every component of this registry is built with.
            defaults: options that are set for several components; those that this one does not have are left out.
            where: the recipe key, for messages.

        Raises:
            UserError: an unknown kind or option, or options that the component refuses.
        """
        options = {"kind": config} if isinstance(config, str) else dict(config)
        where = self.kind if where is None else where
        if "kind" not in options:
            raise UserError(f"a {self.kind} needs a kind", where=where, received=config, allowed=list(self))
        component = self.get(options.pop("kind"), f"{where}.kind" if where else "kind")
        fields = config_of(component).model_fields
        inherited = {name: value for name, value in (defaults or {}).items() if name in fields}
        return construct(component, inherited | options, *arguments, where=where)


def construct(component: type[Component], options: Mapping[str, Any], *arguments: Any, where: str) -> Component:
    """A component of a class that is known, called as `Registry.build` does.

    Raises:
        UserError: unknown options, or options that the component refuses.
    """
    section, build = config_of(component), cast("Callable[..., Component]", component)
    checked = validated(section, options, where)
    try:
        if hasattr(component, "Config"):
            return build(*arguments, checked)
        return build(*arguments, **{name: getattr(checked, name) for name in section.model_fields})
    except (ValueError, TypeError) as error:
        raise UserError(str(error), where=where, received=dict(options) or None) from error
    except (LookupError, ArithmeticError, AttributeError) as error:  # whose texts alone say little
        what = f"{component.__name__} cannot be made ({type(error).__name__}: {error})"
        raise UserError(what, where=where, received=dict(options) or None) from error


def config_of(component: type[Any]) -> type[BaseModel]:
    """The options of a class: its `Config`, or a section made from its keyword-only arguments."""
    config = getattr(component, "Config", None)
    if isinstance(config, type) and issubclass(config, BaseModel):
        return config
    return _section_of(component)  # type: ignore[arg-type]  # classes are hashable


@cache
def _section_of(component: type[Any]) -> type[BaseModel]:
    """The section that is made from the keyword-only arguments of a class.

    Optimizers of PyTorch take theirs by position as well; their learning rate is that of the schedule.
    """
    parameters = inspect.signature(component.__init__).parameters.values()
    keys = [key for key in parameters if key.kind is key.KEYWORD_ONLY]
    if component.__module__.startswith("torch.optim."):
        keys += [
            key
            for key in parameters
            if key.kind is key.POSITIONAL_OR_KEYWORD and key.name not in ("self", "params", "lr")
        ]
    try:
        hints = get_type_hints(component.__init__, include_extras=True)
    except NameError as error:
        what = f"the types of this component's options cannot be read ({error})"
        allowed = "names that its module imports when it runs, not for type checkers alone"
        raise UserError(what, where=f"{component.__module__}:{component.__name__}", allowed=allowed) from error
    fields: dict[str, Any] = {
        key.name: (hints.get(key.name, Any), ... if key.default is key.empty else key.default) for key in keys
    }
    return create_model(f"{component.__name__}Options", __base__=_Options, **fields)


def choices_of(section: type[BaseModel]) -> list[Setting]:
    """The options of a section, `kind` left out."""
    return [
        Setting(field.alias or name, type_in_words(field.annotation), field.get_default(call_default_factory=True))
        for name, field in section.model_fields.items()
        if name != "kind"
    ]


def type_in_words(annotation: Any) -> str:
    """A type as people read it: `int`, `post|pre`, `list of text`, `float or None`."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return type_in_words(inner[0])
    if origin is Literal:
        return "|".join(map(str, inner))
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(map(type_in_words, inner)))
    if origin in (tuple, list, Sequence) and inner[1:] in ((), (...,)):
        return f"list of {type_in_words(inner[0])}"
    if origin is tuple:
        return ", ".join(map(type_in_words, inner))
    names = {NoneType: "None", str: "text", Path: "file"}
    return names.get(annotation) or str(getattr(origin or annotation, "__name__", annotation))


# All registries by the kind of component that they hold, imported when they are first asked for.
CATALOGUE = {
    "mixers": "headway.mixers:MIXERS",
    "positions": "headway.mixers:POSITIONS",
    "cross-attentions": "headway.models:CROSS_ATTENTIONS",
    "feed-forwards": "headway.models:FEED_FORWARDS",
    "norms": "headway.models:NORMS",
    "models": "headway.models:MODELS",
    "losses": "headway.losses:LOSSES",
    "optimizers": "headway.optimizers:OPTIMIZERS",
    "schedules": "headway.optimizers:SCHEDULES",
    "tasks": "headway.tasks:TASKS",
    "metrics": "headway.metrics:METRICS",
    "formats": "headway.formats:FORMATS",
    "segmenters": "headway.processing:SEGMENTERS",
    "vocabularies": "headway.processing:VOCABULARIES",
    "parsers": "headway.parses:PARSERS",
    "exporters": "headway.export:EXPORTERS",
    "importers": "headway.importing:IMPORTERS",
    "engines": "headway.runs.engines:ENGINES",
    "attributions": "headway.predictors.attribution:ATTRIBUTIONS",
    "loggers": "headway.training.loggers:LOGGERS",
}


def registry_of(kind: str) -> Registry[Any]:
    """The registry of a kind of component. Raises UserError for an unknown kind."""
    if kind not in CATALOGUE:
        what = f"unknown kind of component{nearest(kind, CATALOGUE)}"
        raise UserError(what, where=option("kind"), received=kind, allowed=CATALOGUE)
    module, _, name = CATALOGUE[kind].partition(":")
    registry: Registry[Any] = getattr(importlib.import_module(module), name)
    return registry


def listing(kind: str) -> list[str]:
    """The components of a kind, a line each: the name, what it is, and its options with their types and defaults.

    A component whose library is not installed is listed with what is missing.

    Raises:
        UserError: an unknown kind.
    """
    registry = registry_of(kind)
    width = max(map(len, registry))
    lines = []
    for name in registry:
        try:
            what = str(inspect.getdoc(registry.get(name))).splitlines()[0]
            options = ", ".join(
                f"{choice.name}: {choice.type}" + ("" if choice.default is REQUIRED else f" = {_value(choice.default)}")
                for choice in registry.choices(name)
            )
        except ImportError as error:
            what, options = f"(not installed: {error})", ""
        lines.append(f"{name:{width}}  {what}  {options}".rstrip())
    return lines


def _value(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_value, value))}]"
    return value if isinstance(value, str) and value else repr(value)
