"""Mixers: the ways in which information moves between positions, built by name."""

import importlib
import inspect
from collections.abc import Mapping
from typing import Any

from headway.errors import UserError, nearest
from headway.mixers.attention import Attention
from headway.mixers.dependency_attention import DependencyAttention
from headway.mixers.local import LocalAttention
from headway.mixers.mixer import Mixed, Mixer, Part, Shares, State
from headway.mixers.ngram import Ngram
from headway.mixers.nplm import Nplm

__all__ = ["MIXERS", "Mixed", "Mixer", "Part", "Shares", "State", "build_mixer", "mixer_class", "options_of"]

MIXERS: dict[str, type[Mixer]] = {
    "attention": Attention,
    "dependency": DependencyAttention,
    "local": LocalAttention,
    "ngram": Ngram,
    "nplm": Nplm,
}


def mixer_class(kind: str, where: str = "mixer") -> type[Mixer]:
    """The class of a registered mixer, or of one named by import path, `my_package.module:Class`.

    Raises:
        UserError: no such mixer, module or class, or a class that is not a Mixer.
    """
    if ":" not in kind:
        if kind not in MIXERS:
            hint = nearest(kind, MIXERS)
            allowed = [*MIXERS, "my_package.module:Class"]
            raise UserError(f"unknown mixer{hint}", where=f"{where}.kind", received=kind, allowed=allowed)
        return MIXERS[kind]
    module_name, _, class_name = kind.partition(":")
    try:
        found = getattr(importlib.import_module(module_name), class_name)
    except (ImportError, AttributeError) as error:
        raise UserError(f"cannot import the mixer ({error})", where=f"{where}.kind", received=kind) from error
    if not (isinstance(found, type) and issubclass(found, Mixer)):
        raise UserError("this is not a subclass of headway.mixers.Mixer", where=f"{where}.kind", received=kind)
    return found


def options_of(mixer: type[Mixer]) -> list[str]:
    """The names of a mixer's own options: its keyword-only arguments."""
    parameters = inspect.signature(mixer.__init__).parameters.values()
    return [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]


def build_mixer(
    config: Mapping[str, Any] | str,
    dim: int,
    causal: bool,
    *,
    defaults: Mapping[str, Any] | None = None,
    where: str = "mixer",
) -> Mixer:
    """Build a mixer from its recipe entry, such as `{"kind": "attention", "heads": 8}` or just `"attention"`.

    Args:
        config: `kind` and the options of that kind.
        dim: D.
        causal: whether positions may only see the past.
        defaults: options that the model sets for all its mixers; those that a mixer does not have are left out.
        where: the recipe key, for messages.

    Raises:
        UserError: an unknown kind or option, or options that the mixer refuses.
    """
    options = {"kind": config} if isinstance(config, str) else dict(config)
    if "kind" not in options:
        raise UserError("a mixer needs a kind", where=where, received=config, allowed=list(MIXERS))
    mixer = mixer_class(str(options.pop("kind")), where)
    names = options_of(mixer)
    for name in options:
        if name not in names:
            raise UserError(f"unknown option{nearest(name, names)}", where=f"{where}.{name}", allowed=names)
    inherited = {name: value for name, value in (defaults or {}).items() if name in names}
    try:
        return mixer(dim, causal, **(inherited | options))
    except (ValueError, TypeError) as error:
        raise UserError(str(error), where=where, received=config) from error
