"""Mixers, which move information between positions, and the positions that they and embeddings read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headway.core.registry import Registry
from headway.mixers.mixer import Contributions, Decomposable, Mixed, Mixer, MixerState, Span, State

if TYPE_CHECKING:
    from headway.mixers.positions import Position

__all__ = [
    "MIXERS",
    "POSITIONS",
    "Contributions",
    "Decomposable",
    "Mixed",
    "Mixer",
    "MixerState",
    "Span",
    "State",
    "build_mixer",
]

MIXERS: Registry[Mixer] = Registry(
    "mixer",
    "headway.mixers.mixer:Mixer",
    {
        "attention": "headway.mixers.attention:Attention",
        "delta": "headway.mixers.delta_rule:DeltaRule",
        "dependency": "headway.mixers.dependency_attention:DependencyAttention",
        "lightconv": "headway.mixers.lightconv:LightConv",
        "linear": "headway.mixers.linear_attention:LinearAttention",
        "local": "headway.mixers.local:LocalAttention",
        "ngram": "headway.mixers.ngram:Ngram",
        "nplm": "headway.mixers.nplm:Nplm",
        "ssru": "headway.mixers.ssru:Ssru",
    },
)
POSITIONS: Registry[Position] = Registry(
    "position",
    "headway.mixers.positions:Position",
    {
        "sinusoidal": "headway.mixers.positions:Sinusoidal",
        "learned": "headway.mixers.positions:Learned",
        "none": "headway.mixers.positions:NoPosition",
        "t5": "headway.mixers.relative:T5Bias",
        "alibi": "headway.mixers.relative:Alibi",
        "rotary": "headway.mixers.relative:Rotary",
    },
)


def build_mixer(
    config: Mapping[str, Any] | str,
    dim: int,
    causal: bool,
    *,
    defaults: Mapping[str, Any] | None = None,
    where: str | None = None,
    **options: Any,
) -> Mixer:
    """Build a mixer from its recipe entry, `{"kind": "ngram", "n": 4}`, or from its kind and options: `"ngram", n=4`.

    Args:
        config: `kind` and the options of that kind, or the kind alone.
        dim: D.
        causal: whether positions may only see the past.
        defaults: options that the model sets for all its mixers; those that a mixer does not have are ignored.
        where: the recipe key, for messages; without it, messages name options by their keyword.
        options: further options of that kind.

    Raises:
        UserError: an unknown kind or option, or options that the mixer refuses.
    """
    by_keyword = isinstance(config, str)
    entry = {"kind": config} if isinstance(config, str) else dict(config)
    where = ("" if by_keyword else "mixer") if where is None else where
    return MIXERS.build(entry | options, dim, causal, defaults=defaults, where=where)
