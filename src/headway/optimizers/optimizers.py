"""Optimizers, and the recipe's section of the optimizer and its learning rate."""

from __future__ import annotations

from collections.abc import Iterable
from inspect import signature
from typing import Annotated, Any

from pydantic import ConfigDict, Field, ValidationError, field_validator, model_validator
from torch import nn
from torch.optim import SGD, Adadelta, Adam, AdamW, Optimizer

from headway.core.config import Probability, Section, Whole, mistake, mistakes_within
from headway.core.errors import nearest
from headway.optimizers import OPTIMIZERS, SCHEDULES
from headway.optimizers.schedules import Schedule, ScheduleContext

WeightDecay = Annotated[float, Field(ge=0, le=1e6)]


class AdamConfig(Section):
    """The options of Adam and AdamW."""

    betas: tuple[Probability, Probability] = (0.9, 0.98)
    epsilon: Annotated[float, Field(gt=0, le=1)] = 1e-9
    weight_decay: WeightDecay = 0.0

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


class SgdConfig(Section):
    """The options of stochastic gradient descent, which is plain by default."""

    momentum: Probability = 0.0
    nesterov: bool = False
    weight_decay: WeightDecay = 0.0

    @model_validator(mode="after")
    def _nesterov_has_momentum(self) -> SgdConfig:
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov is a kind of momentum: set momentum")
        return self


class FusedSgd(SGD):
    """Stochastic gradient descent, with momentum by option (Sutskever et al. 2013)."""

    Config = SgdConfig

    def __init__(self, parameters: Iterable[nn.Parameter], config: SgdConfig) -> None:
        from torch.distributed.tensor import DTensor  # which takes a second to import

        given = list(parameters)
        fused = not any(isinstance(parameter, DTensor) for parameter in given)  # torch has no fused step of shards
        super().__init__(given, lr=0.0, **config.model_dump(), fused=fused)


class AdadeltaConfig(Section):
    """The options of Adadelta; Zeiler's own method has a learning rate of 1."""

    rho: Probability = 0.95
    epsilon: Annotated[float, Field(gt=0, le=1)] = 1e-6
    weight_decay: WeightDecay = 0.0


class ForeachAdadelta(Adadelta):
    """Adadelta (Zeiler 2012)."""

    Config = AdadeltaConfig

    def __init__(self, parameters: Iterable[nn.Parameter], config: AdadeltaConfig) -> None:
        super().__init__(
            parameters, lr=0.0, rho=config.rho, eps=config.epsilon, weight_decay=config.weight_decay, foreach=True
        )


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

    @field_validator("schedule")
    @classmethod
    def _check_schedule(cls, schedule: str | dict[str, Any]) -> str | dict[str, Any]:
        SCHEDULES.section({"kind": schedule} if isinstance(schedule, str) else schedule)
        return schedule

    @model_validator(mode="after")
    def _check_options(self) -> OptimizerConfig:
        """Check the options of the optimizer, and give those that are left out their defaults."""
        section, given = OPTIMIZERS.config(self.kind), self.__pydantic_extra__
        assert given is not None
        closure = signature(OPTIMIZERS.get(self.kind).step).parameters.get("closure")
        if closure is not None and closure.default is closure.empty:
            what = "this optimizer computes losses by itself, several for an update; allowed: one that needs no closure"
            raise ValidationError.from_exception_data(self.kind, [mistake(what, "kind")])
        names = [*type(self).model_fields, *section.model_fields]
        unknown = [
            mistake(f"unknown key{nearest(key, names)}; allowed: {', '.join(names)}", key)
            for key in given
            if key not in names
        ]
        if unknown:
            raise ValidationError.from_exception_data(self.kind, unknown)
        try:
            checked = section.model_validate(dict(given))
        except ValidationError as error:
            raise mistakes_within(error, section) from error
        given.update({name: getattr(checked, name) for name in section.model_fields})
        return self

    def options(self) -> dict[str, Any]:
        """The optimizer's own options."""
        return dict(self.__pydantic_extra__ or {})


def build_optimizer(config: OptimizerConfig, model: nn.Module) -> Optimizer:
    """The optimizer of all parameters of `model` that learn. Raises UserError for options that it refuses."""
    learning = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return OPTIMIZERS.build({"kind": config.kind, **config.options()}, learning, where="optimizer")


def build_schedule(
    config: OptimizerConfig, *, dim: int | None, updates: int | None, evaluated: bool = True
) -> Schedule:
    """The learning rate as a function of the progress.

    Args:
        config: the recipe's section.
        dim: D of the model, where it has one.
        updates: the last update, where it is known.
        evaluated: whether there is a dev corpus to evaluate on.

    Raises:
        UserError: a schedule that needs what is not known, or options that it refuses.
    """
    context = ScheduleContext(config.learning_rate, config.warmup, dim, updates, evaluated)
    return SCHEDULES.build(config.schedule, context, where="optimizer.schedule")
