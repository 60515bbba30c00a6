"""Size a model to match the number of parameters of another."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from headway.core.errors import UserError
from headway.mixers import MIXERS
from headway.models.components import model_section
from headway.models.model import ModelConfig
from headway.models.stacks import MatchConfig, StackedConfig

LARGEST = 1 << 16

Build = Callable[[ModelConfig], nn.Module]


def count_parameters(model: nn.Module) -> int:
    """The number of trainable parameters; shared ones count once."""
    return sum(parameter.numel() for parameter in model.parameters())


def matched(config: StackedConfig, build: Build) -> StackedConfig:
    """Return `config` with the size that `match_parameters` requests, or unchanged if it requests none.

    Args:
        config: the model.
        build: builds a model from a section, with the same vocabularies for both models.

    Raises:
        UserError: no size comes close enough, or no mixer has the option to be sized.
    """
    match = config.match_parameters
    if match is None:
        return config

    def count(section: ModelConfig) -> int:
        with torch.device("meta"):
            return count_parameters(build(section))

    def count_with(size: int) -> int:
        """The number of parameters with a size; 0 if it is not allowed, such as heads of 1 with rotary positions."""
        try:
            return count(_with_size(config, match, size))
        except UserError:
            return 0

    goal = match.to if isinstance(match.to, int) else count(other_model(match.to))
    low, high = 1, 2
    while high < LARGEST and count_with(high) < goal:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count_with(middle) < goal else (low, middle)
    counts = {size: parameters for size in (low, high) if (parameters := count_with(size))}
    if not counts:
        count(_with_size(config, match, high))  # raises the error that occurs with every size
    size = min(counts, key=lambda size: abs(counts[size] - goal))
    if abs(counts[size] - goal) > match.within * goal:
        raise UserError(
            f"no {match.by} gives {goal:,} parameters to within {100 * match.within:g} %",
            where="model.match_parameters",
            received=", ".join(f"{count:,} parameters with {match.by} {size}" for size, count in counts.items()),
            allowed="another number, or sizing another of feed_forward, head_dim, n and hidden (by)",
        )
    return _with_size(config, match, size)


def other_model(to: Any) -> ModelConfig:
    """The model whose number of parameters is the goal. Raises UserError if it is no sequence-to-sequence model."""
    where = "model.match_parameters.to"
    try:
        other = model_section(to)
    except UserError as error:
        raise UserError(str(error), where=where) from error
    if not isinstance(other, ModelConfig):
        raise UserError("the parameters of this kind of model cannot be matched", where=where, received=other.kind)
    return other


def _with_size(config: StackedConfig, match: MatchConfig, size: int) -> StackedConfig:
    if match.by == "feed_forward":
        given = config.feed_forward
        sized = size if isinstance(given, int) else {**given, "hidden": size}
        return config.model_copy(update={"feed_forward": sized, "match_parameters": None})
    stacks, sized_any = {}, False
    for name in config.stacks():
        stack, mixers = getattr(config, name), []
        for mixer in stack.mixers():
            has = match.by in MIXERS.options(str(mixer["kind"]), f"model.{name}.mixer.kind")
            sized_any = sized_any or has
            mixers.append(mixer | {match.by: size} if has else mixer)
        stacks[name] = stack.model_copy(update={"mixer": mixers})
    if not sized_any:
        raise UserError(f"no mixer of this model has a {match.by}", where="model.match_parameters.by")
    return config.model_copy(update=stacks | {"match_parameters": None})
