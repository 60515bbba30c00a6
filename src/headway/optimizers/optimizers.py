"""Optimizers."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from torch import nn
from torch.optim import Adam, AdamW, Optimizer

from headway.config import Probability, Section


class OptimizerConfig(Section):
    """The optimizer and the learning rate over the updates.

    `inverse_sqrt`: linear warm-up to `learning_rate`, then proportional to update ** -0.5. `noam`: dim ** -0.5 *
    min(update ** -0.5, update * warmup ** -1.5), times `learning_rate`. `linear`: warm-up, then down to zero at the
    last update. `constant`: warm-up, then `learning_rate`.
    """

    kind: Literal["adam", "adamw"] = "adam"
    learning_rate: Annotated[float, Field(gt=0)] = 7e-4
    betas: tuple[Probability, Probability] = (0.9, 0.98)
    epsilon: Annotated[float, Field(gt=0)] = 1e-9
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    schedule: Literal["inverse_sqrt", "noam", "linear", "constant"] = "inverse_sqrt"
    warmup: Annotated[int, Field(ge=0)] = 4000


def build_optimizer(config: OptimizerConfig, model: nn.Module) -> Optimizer:
    """Adam (Kingma and Ba 2015), or AdamW (Loshchilov and Hutter 2019), whose weight decay is decoupled."""
    kind = Adam if config.kind == "adam" else AdamW
    return kind(
        model.parameters(),
        lr=0.0,
        betas=config.betas,
        eps=config.epsilon,
        weight_decay=config.weight_decay,
        fused=True,
    )
