"""Learning rate schedules. Updates count from 1."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from numbers import Real
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from headway.core.config import Count
from headway.core.errors import UserError

Factor = Annotated[float, Field(gt=0, lt=1)]
Share = Annotated[float, Field(ge=0, lt=1)]


class TrainingProgress(NamedTuple):
    """The progress of training at an update. It is the same in a resumed run.

    Attributes:
        update: the number of the update.
        epochs: the passes over the corpus before it; 2.5 is the middle of the third.
        gains: for each evaluation before it, whether it was the best so far, by score or, on ties, by loss.
    """

    update: int
    epochs: float = 0.0
    gains: Sequence[bool] = ()


class ScheduleContext(NamedTuple):
    """The values that a schedule may depend on besides its own options.

    Attributes:
        learning_rate: the recipe's `optimizer.learning_rate`.
        warmup: the recipe's `optimizer.warmup`, in updates.
        dim: D of the model, None if it has none.
        updates: the last update, None if it is not known.
        evaluated: whether there is a dev corpus to evaluate on.
    """

    learning_rate: float
    warmup: int
    dim: int | None = None
    updates: int | None = None
    evaluated: bool = True


class Schedule(ABC):
    """The learning rate as a function of training progress; keyword-only arguments of a subclass are its options."""

    def __init__(self, context: ScheduleContext) -> None:
        self.context = context

    @abstractmethod
    def __call__(self, progress: TrainingProgress) -> float:
        """The learning rate of an update."""

    def rate(self, progress: TrainingProgress) -> float:
        """The learning rate of an update. Raises UserError if a foreign schedule does not return a valid one."""
        rate: Any = self(progress)
        if not (isinstance(rate, Real) and 0 <= float(rate) < math.inf):
            what = f"{type(self).__name__} gives no learning rate for update {progress.update:,}"
            raise UserError(what, where="optimizer.schedule", received=rate, allowed="a finite number from 0 on")
        return float(rate)

    def warm(self, update: int) -> float:
        """The factor of the learning rate during linear warm-up, 1 after it."""
        return update / self.context.warmup if update < self.context.warmup else 1.0


class InverseSquareRoot(Schedule):
    """Linear warm-up to `learning_rate`, then proportional to update ** -0.5."""

    def __call__(self, progress: TrainingProgress) -> float:
        decayed = (max(self.context.warmup, 1) / progress.update) ** 0.5
        return float(self.context.learning_rate * min(self.warm(progress.update), decayed))


class Noam(Schedule):
    """dim ** -0.5 * min(update ** -0.5, update * warmup ** -1.5), times `learning_rate` (Vaswani et al. 2017, eq. 3).

    Raises ValueError for a model without a `dim`.
    """

    def __init__(self, context: ScheduleContext) -> None:
        super().__init__(context)
        if context.dim is None:
            raise ValueError("noam needs a model.dim, which this model has not")
        self.dim = context.dim

    def __call__(self, progress: TrainingProgress) -> float:
        update, warmup = progress.update, self.context.warmup
        rise = update * warmup**-1.5 if warmup else update**-0.5
        return float(self.context.learning_rate * self.dim**-0.5 * min(update**-0.5, rise))


class LinearDecay(Schedule):
    """Linear warm-up to `learning_rate`, then linearly down to zero after the last update.

    Raises ValueError if the last update is not known.
    """

    def __init__(self, context: ScheduleContext) -> None:
        super().__init__(context)
        if context.updates is None:
            raise ValueError("this schedule ends at training.updates, which is not given")
        self.updates = context.updates

    def left(self, update: int) -> float:
        return max(0.0, (self.updates + 1 - update) / max(1, self.updates + 1 - self.context.warmup))

    def __call__(self, progress: TrainingProgress) -> float:
        return self.context.learning_rate * min(self.warm(progress.update), self.left(progress.update))


class CosineDecay(LinearDecay):
    """Linear warm-up to `learning_rate`, then down half a cosine (Loshchilov and Hutter 2017, eq. 5, without restarts).

    Args:
        context: the values that it depends on.
        lowest: the share of `learning_rate` that is reached after the last update.

    Raises ValueError if the last update is not known.
    """

    def __init__(self, context: ScheduleContext, *, lowest: Share = 0.0) -> None:
        super().__init__(context)
        self.lowest = lowest

    def __call__(self, progress: TrainingProgress) -> float:
        half = (1 - math.cos(math.pi * min(1.0, self.left(progress.update)))) / 2
        share = self.lowest + (1 - self.lowest) * half
        return self.context.learning_rate * min(self.warm(progress.update), share)


class Constant(Schedule):
    """Linear warm-up to `learning_rate`, which then stays."""

    def __call__(self, progress: TrainingProgress) -> float:
        return self.context.learning_rate * self.warm(progress.update)


class StepDecay(Schedule):
    """Linear warm-up to `learning_rate`, which is multiplied by `factor` at some ends of epochs.

    Luong et al. (2015) halve it after the fifth epoch and after each following epoch, Sutskever et al. (2014) after the
    fifth and after each following half epoch (`every: 0.5`).

    Args:
        context: the values that it depends on.
        after: the epochs before the first decay.
        every: the epochs between two decays.
        factor: of each decay.
    """

    def __init__(
        self,
        context: ScheduleContext,
        *,
        after: Annotated[float, Field(ge=0, le=1e9)] = 5.0,
        every: Annotated[float, Field(ge=1e-3, le=1e9)] = 1.0,
        factor: Factor = 0.5,
    ) -> None:
        super().__init__(context)
        self.after, self.every, self.factor = after, every, factor

    def __call__(self, progress: TrainingProgress) -> float:
        # In floating point, a multiple of 0.1 may be a little less than that.
        beyond = (progress.epochs - self.after) / self.every + 1e-9
        decays = 1 + int(beyond) if beyond >= 0 else 0
        return float(self.context.learning_rate * self.warm(progress.update) * self.factor**decays)


class PlateauDecay(Schedule):
    """Linear warm-up to `learning_rate`, which is multiplied by `factor` where evaluations bring no better score.

    The score is that of `training.best_by`; on ties the one with the lower loss on dev is better.

    Args:
        context: the values that it depends on.
        patience: the consecutive evaluations without a better score, since the last decay, that trigger a decay.
        factor: of each decay.
        lowest: the share of `learning_rate` that it never falls below.

    Raises ValueError if there is no evaluation.
    """

    def __init__(
        self,
        context: ScheduleContext,
        *,
        patience: Count = 2,
        factor: Factor = 0.5,
        lowest: Share = 0.0,
    ) -> None:
        super().__init__(context)
        if not context.evaluated:
            raise ValueError("a plateau is one of the scores on dev, and there is no data.dev")
        self.patience, self.factor, self.lowest = patience, factor, lowest

    def __call__(self, progress: TrainingProgress) -> float:
        decays = waiting = 0
        for gained in progress.gains:
            waiting = 0 if gained else waiting + 1
            if waiting == self.patience:
                decays, waiting = decays + 1, 0
        share = max(self.lowest, self.factor**decays)
        return float(self.context.learning_rate * self.warm(progress.update) * share)
