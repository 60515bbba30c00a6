"""All registries by the kind of component that they hold, imported when they are first asked for."""

import importlib
from typing import Any

from headway.errors import UserError, nearest, option
from headway.registry import REQUIRED, Registry, Setting

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
    "engines": "headway.runs.engines:ENGINES",
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
    """The components of a kind, a line each: the name, and its options with their types and defaults.

    A component whose library is not installed is listed with what is missing.

    Raises:
        UserError: an unknown kind.
    """
    registry = registry_of(kind)
    width = max(map(len, registry))
    return [f"{name:{width}}  {_options(registry, name)}".rstrip() for name in registry]


def _options(registry: Registry[Any], name: str) -> str:
    try:
        return ", ".join(map(_in_words, registry.choices(name)))
    except ImportError as error:
        return f"(not installed: {error})"


def _in_words(choice: Setting) -> str:
    default = "" if choice.default is REQUIRED else f" = {_value(choice.default)}"
    return f"{choice.name}: {choice.type}{default}"


def _value(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_value, value))}]"
    return value if isinstance(value, str) and value else repr(value)
