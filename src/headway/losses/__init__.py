"""Losses, and the objective of training, which is their sum."""

from headway.losses.dependency_loss import DependencyConfig
from headway.losses.objective import Loss, Objective, ObjectiveConfig
from headway.losses.parts import LOSSES, LossPart
from headway.losses.synchronous import SynchronousConfig

__all__ = [
    "LOSSES",
    "DependencyConfig",
    "Loss",
    "LossPart",
    "Objective",
    "ObjectiveConfig",
    "SynchronousConfig",
]
