"""Optimizers, and the recipe's section of the optimizer and its learning rate."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import ConfigDict, Field, model_validator
from torch import nn
from torch.optim import Adam, AdamW, Optimizer

from headway.config import Probability, Section, Whole
from headway.errors import UserError, nearest
from headway.optimizers import OPTIMIZERS, SCHEDULES
from headway.optimizers.schedules import Schedule, ScheduleContext
from headway.registry import config_of, validated


class AdamConfig(Section):
    """The options of Adam and AdamW."""

    betas: tuple[Probability, Probability] = (0.9, 0.98)
    epsilon: Annotated[float, Field(gt=0, le=1)] = 1e-9
    weight_decay: Annotated[float, Field(ge=0, le=1e6)] = 0.0

    def arguments(self) -> dict[str, Any]:
        """The options as torch names them; the learning rate is set before each update."""
        return {
            "lr": 0.0,
            "betas": self.betas,
            "eps": self.epsilon,
            "weight_decay": self.weight_decay,
            "fused": True,
        }


class FusedAdam(Adam):
    """Adam (Kingma and Ba 2015)."""

    Config = AdamConfig

    def __init__(self, parameters: Iterable[nn.Parameter], config: AdamConfig) -> None:
        super().__init__(parameters, **config.arguments())


class FusedAdamW(AdamW):
    """AdamW (Loshchilov and Hutter 2019), whose weight decay is decoupled."""

    Config = AdamConfig

    def __init__(self, parameters: Iterable[nn.Parameter], config: AdamConfig) -> None:
        super().__init__(parameters, **config.arguments())


class OptimizerConfig(Section):
    """The optimizer and the learning rate over the updates.

    `kind`: a name in `OPTIMIZERS`, or `module:Class` of a torch optimizer; its own options stand beside the other keys.
    `schedule`: a name in `SCHEDULES`, or `{kind: module:Class, ...options}`; the schedule says what `learning_rate`
    and `warmup` mean.
    """

    model_config = ConfigDict(extra="allow")

    kind: str = "adam"
    learning_rate: Annotated[float, Field(gt=0, le=1e38)] = 7e-4
    schedule: str | dict[str, Any] = "inverse_sqrt"
    warmup: Whole = 4000

    @model_validator(mode="after")
    def _check_components(self) -> OptimizerConfig:
        """Check the options of the optimizer, and give those that are left out their defaults."""
        kind = self.schedule if isinstance(self.schedule, str) else self.schedule.get("kind", "")
        SCHEDULES.get(kind, "optimizer.schedule")
        section, given = config_of(OPTIMIZERS.get(self.kind, "optimizer.kind")), self.__pydantic_extra__
        assert given is not None
        names = [*type(self).model_fields, *section.model_fields]
        for key in given:
            if key not in names:
                raise UserError(f"unknown key{nearest(key, names)}", where=f"optimizer.{key}", allowed=names)
        checked = validated(section, given, "optimizer")
        given.update({name: getattr(checked, name) for name in section.model_fields})
        return self

    def options(self) -> dict[str, Any]:
        """The optimizer's own options."""
        return dict(self.__pydantic_extra__ or {})


def build_optimizer(config: OptimizerConfig, model: nn.Module) -> Optimizer:
    """The optimizer of all parameters of `model`. Raises UserError for options that it refuses."""
    return OPTIMIZERS.build({"kind": config.kind, **config.options()}, model.parameters(), where="optimizer")


def build_schedule(config: OptimizerConfig, *, dim: int | None, updates: int | None) -> Schedule:
    """The learning rate as a function of the update.

    Args:
        config: the recipe's section.
        dim: D of the model, where it has one.
        updates: the last update, where it is known.

    Raises:
        UserError: a schedule that needs what is not known, or options that it refuses.
    """
    context = ScheduleContext(config.learning_rate, config.warmup, dim, updates)
    return SCHEDULES.build(config.schedule, context, where="optimizer.schedule")
