"""Learning rates over the updates. Updates count from 1."""

from abc import ABC, abstractmethod
from typing import NamedTuple


class ScheduleContext(NamedTuple):
    """All that a schedule may depend on besides its own options.

    Attributes:
        learning_rate: the recipe's `optimizer.learning_rate`.
        warmup: the recipe's `optimizer.warmup`, in updates.
        dim: D of the model, None where it has none.
        updates: the last update, None where it is not known.
    """

    learning_rate: float
    warmup: int
    dim: int | None = None
    updates: int | None = None


class Schedule(ABC):
    """The learning rate as a function of the update; keyword-only arguments of a subclass are its options."""

    def __init__(self, context: ScheduleContext) -> None:
        self.context = context

    @abstractmethod
    def __call__(self, update: int) -> float:
        """The learning rate of an update."""

    def warm(self, update: int) -> float:
        """The share of the learning rate that linear warm-up allows."""
        return update / self.context.warmup if update < self.context.warmup else 1.0


class InverseSquareRoot(Schedule):
    """Linear warm-up to `learning_rate`, then proportional to update ** -0.5."""

    def __call__(self, update: int) -> float:
        """The learning rate of an update."""
        decayed = (max(self.context.warmup, 1) / update) ** 0.5
        return float(self.context.learning_rate * min(self.warm(update), decayed))


class Noam(Schedule):
    """dim ** -0.5 * min(update ** -0.5, update * warmup ** -1.5), times `learning_rate` (Vaswani et al. 2017, eq. 3).

    Raises ValueError for a model without a `dim`.
    """

    def __init__(self, context: ScheduleContext) -> None:
        super().__init__(context)
        if context.dim is None:
            raise ValueError("noam needs a model.dim, which this model has not")
        self.dim = context.dim

    def __call__(self, update: int) -> float:
        """The learning rate of an update."""
        warmup = self.context.warmup
        rise = update * warmup**-1.5 if warmup else update**-0.5
        return float(self.context.learning_rate * self.dim**-0.5 * min(update**-0.5, rise))


class LinearDecay(Schedule):
    """Linear warm-up to `learning_rate`, then linearly down to zero after the last update.

    Raises ValueError where the last update is not known.
    """

    def __init__(self, context: ScheduleContext) -> None:
        super().__init__(context)
        if context.updates is None:
            raise ValueError("a linear schedule ends at training.updates, which is not given")
        self.updates = context.updates

    def __call__(self, update: int) -> float:
        """The learning rate of an update."""
        left = max(0.0, (self.updates + 1 - update) / max(1, self.updates + 1 - self.context.warmup))
        return self.context.learning_rate * min(self.warm(update), left)


class Constant(Schedule):
    """Linear warm-up to `learning_rate`, which then stays."""

    def __call__(self, update: int) -> float:
        """The learning rate of an update."""
        return self.context.learning_rate * self.warm(update)
