"""What a stack of layers is made of: its mixers, with the options and positions of the whole model, and the rest."""

from collections.abc import Sequence
from typing import Any

from torch import nn

from headway.errors import UserError
from headway.mixers import MIXERS, Mixer, build_mixer
from headway.mixers.relative import RelativePosition, RelativePositions, is_relative
from headway.models.block import FeedForward
from headway.models.model_config import StackConfig, StackedConfig


def attention_options(config: StackedConfig) -> dict[str, Any]:
    """What the model sets for all its attention, self and cross."""
    return {"heads": config.heads, "head_dim": config.head_dim, "dropout": config.attention_dropout}


def beside_mixer(config: StackedConfig) -> tuple[FeedForward, int, float, str]:
    """What every layer has besides its mixers: a new feed-forward network, D, dropout, norm."""
    return FeedForward(config.dim, config.feed_forward, config.activation), config.dim, config.dropout, config.norm


def stack_mixers(config: StackedConfig, stack: StackConfig, causal: bool, where: str) -> list[Mixer]:
    """The mixers of a stack, lowest first; relative positions are one module for all that can use them.

    Args:
        config: the model.
        stack: its encoder or decoder.
        causal: whether positions may only see the past.
        where: the recipe key of the stack.

    Raises:
        UserError: options that do not exist or fit, or relative positions where no mixer can use them.
    """
    defaults = attention_options(config)
    if is_relative(str(config.position.get("kind")), "model.position"):
        _require_use(config, stack, where)
        defaults["position"] = RelativePositions(config.position, causal, "model.position")
    return [
        build_mixer(options, config.dim, causal, defaults=defaults, where=f"{where}.mixer[{number}]")
        for number, options in enumerate(stack.mixers())
    ]


def _require_use(config: StackedConfig, stack: StackConfig, where: str) -> None:
    kinds = [str(options.get("kind")) for options in stack.mixers()]
    if not any("position" in MIXERS.options(kind, f"{where}.mixer.kind") for kind in kinds):
        raise UserError(
            f"position {config.position['kind']} is a part of attention, which no mixer of this stack has",
            where="model.position",
            received=f"{where}.mixer: {', '.join(dict.fromkeys(kinds))}",
            allowed="sinusoidal, learned or none, or a stack with attention or local in it",
        )


def shared_positions(model: nn.Module) -> Sequence[nn.Module]:
    """The relative positions in `model` that have weights: layers share them, so sharding takes them first."""
    positions = (module for module in model.modules() if isinstance(module, RelativePosition))
    return [module for module in positions if list(module.parameters())]
