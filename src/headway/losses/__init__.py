"""Objectives: what training minimises, summed by name."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from torch import Tensor

from headway.errors import UserError
from headway.losses.cross_entropy import smoothed_cross_entropy
from headway.losses.dependency_loss import DependencyLoss
from headway.losses.objective_config import ObjectiveConfig
from headway.losses.parts import Part
from headway.losses.synchronous import SynchronousLoss
from headway.models import Output
from headway.tensors.batch import TargetBatch

__all__ = ["Loss", "Objective"]


class Loss(NamedTuple):
    """A loss summed over the batch's target tokens, and its parts by name, each summed likewise."""

    total: Tensor
    parts: Mapping[str, Tensor]


@dataclass(frozen=True)
class Objective:
    """The sum of the recipe's objectives. Besides the cross-entropy, each is a `Part`."""

    config: ObjectiveConfig

    @cached_property
    def parts(self) -> dict[str, Part]:
        """What there is beside the cross-entropy, by recipe key."""
        parts: dict[str, Part] = {}
        if self.config.dependency is not None:
            parts["dependency"] = DependencyLoss(self.config.dependency)
        if self.config.synchronous is not None:
            parts["synchronous"] = SynchronousLoss(self.config.synchronous, self.config.synchronous_heads())
        return parts

    @cached_property
    def capture(self) -> tuple[str, ...]:
        """The names of the attention that the model has to give."""
        return tuple(dict.fromkeys(name for part in self.parts.values() for name in part.attention))

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The names of the per-token labels that batches have to carry."""
        return tuple(dict.fromkeys(name for part in self.parts.values() for name in part.labels))

    def check(self, attention: Mapping[str, Tensor]) -> None:
        """Raise UserError where the objectives read what the model, which gave `attention` when asked, has not."""
        for key, part in self.parts.items():
            for name, heads in part.attention.items():
                where = f"objective.{key}"
                if name not in attention:
                    raise UserError(
                        "the model has no such attention (in names, layers count from 0)",
                        where=where,
                        received=name,
                        allowed=sorted(attention),
                    )
                count = attention[name].shape[1]
                if heads is not None and max(heads) >= count:
                    raise UserError(
                        f"{name} has no such head", where=where, received=max(heads), allowed=f"0 to {count - 1}"
                    )

    def __call__(self, output: Output, batch: TargetBatch) -> Loss:
        """The loss of a model's output on a batch."""
        smoothing = self.config.label_smoothing
        loss = smoothed_cross_entropy(output.logits, batch.target_output, batch.target_mask, smoothing)
        parts = {"cross_entropy": loss, **output.losses}
        for part in self.parts.values():
            parts |= part(output, batch)
        return Loss(sum(parts.values(), start=loss.new_zeros(())), parts)
