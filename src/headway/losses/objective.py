"""The objective of training, a sum of named losses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from torch import Tensor

from headway.core.config import Component, Probability, Section
from headway.core.errors import UserError
from headway.losses.cross_entropy import CrossEntropy, CrossEntropyConfig
from headway.losses.dependency_loss import DependencyConfig, DependencyLoss, check_sides
from headway.losses.parts import LOSSES, LossPart
from headway.losses.synchronous import SynchronousConfig, SynchronousLoss
from headway.models import Output
from headway.models.model import Axes
from headway.tensors.batch import TargetBatch


class ObjectiveConfig(Section):
    """The objective of training: cross-entropy with label smoothing (Szegedy et al. 2016), and optional further losses.

    `label_smoothing`: the share of the probability that is spread over the whole vocabulary. `dependency`: the loss of
    dependency heads. `synchronous`: the loss of synchronous attention. `losses`: further losses, a list of kinds with
    their options, such as `{kind: my_package.module:Class, weight: 0.5}`.
    """

    label_smoothing: Probability = 0.1
    dependency: DependencyConfig | None = None
    synchronous: SynchronousConfig | None = None
    losses: tuple[Component, ...] = ()


class Loss(NamedTuple):
    """A loss summed over the target tokens of a batch, and the sums of its parts by name.

    `unsmoothed` is the sum of the cross-entropy without label smoothing, reported beside the loss on dev.
    """

    total: Tensor
    parts: Mapping[str, Tensor]
    unsmoothed: Tensor


@dataclass(frozen=True)
class Objective:
    """The sum of the recipe's losses."""

    config: ObjectiveConfig

    @cached_property
    def cross_entropy(self) -> CrossEntropy:
        return CrossEntropy(CrossEntropyConfig(label_smoothing=self.config.label_smoothing))

    @cached_property
    def parts(self) -> dict[str, LossPart]:
        """The losses other than the cross-entropy, by recipe key. Raises UserError if one cannot be built."""
        parts: dict[str, LossPart] = {}
        if self.config.dependency is not None:
            parts["dependency"] = DependencyLoss(self.config.dependency)
        if self.config.synchronous is not None:
            parts["synchronous"] = SynchronousLoss(self.config.synchronous)
        for index, options in enumerate(self.config.losses):
            parts[f"losses[{index}]"] = LOSSES.build(options, where=f"objective.losses[{index}]")
        taught = {part.config.layer: part.config.heads for part in parts.values() if isinstance(part, DependencyLoss)}
        return {
            key: replace(part, taught=taught.get(part.config.layer)) if isinstance(part, SynchronousLoss) else part
            for key, part in parts.items()
        }

    @cached_property
    def capture(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for part in self.parts.values() for name in part.attention))

    @cached_property
    def labels(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for part in self.parts.values() for name in part.labels))

    def check(self, attention: Mapping[str, Tensor], axes: Callable[[str], Axes]) -> None:
        """Raise UserError if a loss reads attention that the model does not have, or that is over other tokens.

        Args:
            attention: all attention of the model, by name.
            axes: returns the tokens that an attention is over.
        """
        for key, part in self.parts.items():
            for name, heads in part.attention.items():
                where = f"objective.{key}"
                if name not in attention:
                    raise UserError(
                        "the model has no such attention",
                        where=where,
                        received=name,
                        allowed=sorted(attention),
                    )
                if isinstance(part, DependencyLoss):
                    check_sides(name, axes(name), where)
                count = attention[name].shape[1]
                if heads is not None and max(heads) > count:
                    raise UserError(
                        f"{name} has no such head", where=where, received=max(heads), allowed=f"1 to {count}"
                    )

    def __call__(self, output: Output, batch: TargetBatch) -> Loss:
        """The loss of a model's output on a batch. A part with the name of another is prefixed with its recipe key."""
        smoothed, unsmoothed = self.cross_entropy.sums(output, batch)
        losses: dict[str, Any] = {"cross_entropy": smoothed}
        given = {"model": output.losses} | {
            key: _checked(key, part, part(output, batch)) for key, part in self.parts.items()
        }
        for key, named in given.items():
            losses |= {f"{key}.{name}" if name in losses else name: loss for name, loss in named.items()}
        first = next(iter(losses.values()))
        return Loss(sum(losses.values(), start=first.new_zeros(())), losses, unsmoothed)


def _checked(key: str, part: LossPart, given: Any) -> Mapping[str, Tensor]:
    """Return the sums of a loss by name. Raises UserError if a foreign loss returns anything else."""
    named = given if isinstance(given, Mapping) else {"": given}
    if named is given and all(isinstance(loss, Tensor) and loss.dim() == 0 for loss in given.values()):
        return given
    kinds = {
        name: f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
        for name, loss in named.items()
    }
    received = ", ".join(f"{name} {kind}".strip() for name, kind in kinds.items())
    what = f"{type(part).__name__} gives something else than a loss does"
    allowed = "a dict of names and sums over the batch, tensors without axes"
    raise UserError(what, where=f"objective.{key}", received=received, allowed=allowed)
