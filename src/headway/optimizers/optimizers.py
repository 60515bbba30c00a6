"""Optimizers, and the `optimizer` section of a recipe with its learning rate schedule."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from inspect import signature
from typing import Annotated, Any

import torch
from pydantic import ConfigDict, Field, ValidationError, field_validator, model_validator
from torch import Tensor, nn
from torch.optim import SGD, Adadelta, Adam, AdamW, Muon, Optimizer

from headway.core.config import Probability, Section, Whole, mistake, mistakes_within
from headway.core.errors import nearest
from headway.optimizers import OPTIMIZERS, SCHEDULES
from headway.optimizers.schedules import Schedule, ScheduleContext

WeightDecay = Annotated[float, Field(ge=0, le=1e6)]


class AdamConfig(Section):
    """The options of Adam and AdamW. `betas`: the decay rates of both moments. `epsilon`: added to the root of the
    second. `weight_decay`: the factor of the weights.
    """

    betas: tuple[Probability, Probability] = (0.9, 0.98)
    epsilon: Annotated[float, Field(gt=0, le=1)] = 1e-9
    weight_decay: WeightDecay = 0.0

    def arguments(self) -> dict[str, Any]:
        """The arguments of the torch optimizer; the learning rate is set before each update."""
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
    """The options of stochastic gradient descent. `momentum`: the decay rate of the sum of gradients. `nesterov`:
    whether momentum is Nesterov's. `weight_decay`: the factor of the weights.
    """

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
        from torch.distributed.tensor import DTensor  # takes a second to import

        given = list(parameters)
        fused = not any(
            isinstance(parameter, DTensor) for parameter in given
        )  # torch has no fused step for sharded parameters
        super().__init__(given, lr=0.0, **config.model_dump(), fused=fused)


class AdadeltaConfig(Section):
    """The options of Adadelta; Zeiler's own method has a learning rate of 1. `rho`: the decay rate of squared gradients
    and updates. `epsilon`: added to both. `weight_decay`: the factor of the weights.
    """

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


class MuonConfig(AdamConfig):
    """The options of Muon, and of AdamW for all other parameters, which has these `betas` and `epsilon`.

    `momentum`: the decay rate of the sum of gradients. `nesterov`: whether momentum is Nesterov's. `steps`: the
    iterations of Newton and Schulz. `adamw_rate`: the learning rate of AdamW, relative to that of Muon.
    """

    momentum: Probability = 0.95
    nesterov: bool = True
    steps: Annotated[int, Field(ge=1, lt=100)] = 5
    adamw_rate: Annotated[float, Field(gt=0, le=1e6)] = 1.0


class MuonWithAdamW(Optimizer):
    """Muon (Jordan et al. 2024) for the linear maps in a model's blocks, AdamW for all else.

    The update of a matrix is orthogonal, scaled by 0.2 sqrt(max(rows, columns)), so one learning rate suits both
    optimizers (Liu et al. 2025).
    """

    Config = MuonConfig

    def __init__(self, groups: Sequence[dict[str, Any]], config: MuonConfig) -> None:
        matrices, others = groups
        if not matrices["params"]:
            raise ValueError("muon is for linear maps in the blocks of a model, of which none learns here")
        muon = Muon(
            matrices["params"], 0.0, config.weight_decay, config.momentum, config.nesterov, ns_steps=config.steps,
            adjust_lr_fn="match_rms_adamw",
        )  # fmt: skip
        self.parts: list[Optimizer] = [muon]
        if others["params"]:
            self.parts.append(AdamW(others["params"], **config.arguments()))
        self.rates = 1.0, config.adamw_rate
        super().__init__([group for part in self.parts for group in part.param_groups], {})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        loss = None if closure is None else closure()
        for part, group, times in zip(self.parts, self.param_groups, self.rates, strict=False):
            part.state, part.param_groups = self.state, [{**group, "lr": group["lr"] * times}]
            part.step()
        return loss


def _for_muon(blocks: Iterable[nn.Module], learning: Iterable[Tensor]) -> list[dict[str, Any]]:
    """Parameter groups for `MuonWithAdamW`: weights of linear maps in `blocks`, and all others in `learning`."""
    linears = {id(part.weight) for block in blocks for part in block.modules() if isinstance(part, nn.Linear)}
    parts: list[list[Tensor]] = [[], []]
    for parameter in learning:
        parts[id(parameter) not in linears].append(parameter)
    return [{"params": part} for part in parts]


class OptimizerConfig(Section):
    """The optimizer and its learning rate schedule.

    `kind`: the name of an optimizer, or `module:Class` of a torch optimizer; its options are further keys of the
    section. `schedule`: the name of a schedule, or `{kind: NAME, ...options}`, which determines the rate of each
    update. `learning_rate`: the rate at the end of the warm-up. `warmup`: the updates of the warm-up; 0 for none.
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
        """Validate the options of the optimizer, and fill in defaults."""
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
        return dict(self.__pydantic_extra__ or {})


def build_optimizer(config: OptimizerConfig, model: nn.Module, blocks: Sequence[nn.Module] = ()) -> Optimizer:
    """Build the optimizer of all trainable parameters of `model`; `blocks` are its hidden layers.

    Raises:
        UserError: options that it refuses.
    """
    learning: Any = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if issubclass(OPTIMIZERS.get(config.kind), MuonWithAdamW):
        learning = _for_muon(blocks, learning)
    return OPTIMIZERS.build({"kind": config.kind, **config.options()}, learning, where="optimizer")


def build_schedule(
    config: OptimizerConfig, *, dim: int | None, updates: int | None, evaluated: bool = True
) -> Schedule:
    """Build the learning rate schedule.

    Args:
        config: the recipe's section.
        dim: D of the model, if it has one.
        updates: the last update, if known.
        evaluated: whether there is a dev corpus to evaluate on.

    Raises:
        UserError: the schedule needs a value that is not known, or refuses its options.
    """
    context = ScheduleContext(config.learning_rate, config.warmup, dim, updates, evaluated)
    return SCHEDULES.build(config.schedule, context, where="optimizer.schedule")
