"""Optimizers and learning rate schedules."""

from typing import TYPE_CHECKING

from headway.core.registry import Registry

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from headway.optimizers.schedules import Schedule

__all__ = ["OPTIMIZERS", "SCHEDULES"]

OPTIMIZERS: Registry["Optimizer"] = Registry(
    "optimizer",
    "torch.optim:Optimizer",
    {
        "adam": "headway.optimizers.optimizers:FusedAdam",
        "adamw": "headway.optimizers.optimizers:FusedAdamW",
        "muon": "headway.optimizers.optimizers:MuonWithAdamW",
        "sgd": "headway.optimizers.optimizers:FusedSgd",
        "adadelta": "headway.optimizers.optimizers:ForeachAdadelta",
    },
)

SCHEDULES: Registry["Schedule"] = Registry(
    "schedule",
    "headway.optimizers.schedules:Schedule",
    {
        "inverse_sqrt": "headway.optimizers.schedules:InverseSquareRoot",
        "noam": "headway.optimizers.schedules:Noam",
        "linear": "headway.optimizers.schedules:LinearDecay",
        "cosine": "headway.optimizers.schedules:CosineDecay",
        "constant": "headway.optimizers.schedules:Constant",
        "step": "headway.optimizers.schedules:StepDecay",
        "plateau": "headway.optimizers.schedules:PlateauDecay",
    },
)
