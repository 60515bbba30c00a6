"""Learning rates over the updates, beside their formulas."""

import numpy as np
import pytest

from headway.core.config import validated
from headway.core.errors import UserError
from headway.optimizers.optimizers import OptimizerConfig, build_schedule
from headway.optimizers.schedules import Schedule, TrainingProgress


def rates(*updates, **config):
    schedule = build_schedule(OptimizerConfig(**{"learning_rate": 2.0, "warmup": 4} | config), dim=16, updates=12)
    return [
        schedule(update if isinstance(update, TrainingProgress) else TrainingProgress(update)) for update in updates
    ]


def test_schedules():
    assert rates(1, 2, 4, 16, schedule="inverse_sqrt") == pytest.approx([0.5, 1.0, 2.0, 1.0])
    assert rates(9, schedule="inverse_sqrt", warmup=0) == pytest.approx([2 / 3])
    # Vaswani et al. (2017), equation 3, times learning_rate
    updates = (1, 3, 4, 5, 100)
    expected = [2 * 16**-0.5 * min(update**-0.5, update * 4**-1.5) for update in updates]
    assert rates(*updates, schedule="noam") == pytest.approx(expected)
    assert rates(2, 4, 8, 12, schedule="linear") == pytest.approx([1.0, 2.0, 10 / 9, 2 / 9])
    # Loshchilov and Hutter (2017), equation 5, with one period: from the warm-up's end to the update after the last
    cosine = [1 + np.cos(np.pi * (update - 4) / 9) for update in (4, 5, 8, 12, 13, 20)]
    assert rates(4, 5, 8, 12, 13, schedule="cosine") == pytest.approx(cosine[:-1])
    assert rates(1, 2, 20, schedule="cosine") == pytest.approx([0.5, 1.0, 0.0])
    lowest = {"kind": "cosine", "lowest": 0.1}
    assert rates(4, 8, 13, schedule=lowest) == pytest.approx([2.0, 0.2 + 0.9 * cosine[2], 0.2])
    assert rates(1, 4, 50, schedule="constant") == pytest.approx([0.5, 2.0, 2.0])


class Steps(Schedule):
    """A schedule from outside of the package: halved every so many updates."""

    def __init__(self, context, *, every: int = 2) -> None:
        super().__init__(context)
        self.every = every

    def __call__(self, progress):
        return self.context.learning_rate * 0.5 ** ((progress.update - 1) // self.every)


def test_a_schedule_by_import_path():
    path = f"{__name__}:Steps"
    assert rates(1, 2, 3, 5, schedule=path) == [2.0, 2.0, 1.0, 0.5]
    assert rates(3, 4, schedule={"kind": path, "every": 3}) == [2.0, 1.0]
    with pytest.raises(UserError, match=r"optimizer\.schedule\.evry: unknown key.*'every'"):
        validated(OptimizerConfig, {"schedule": {"kind": path, "evry": 3}}, "optimizer")


def test_steps_at_ends_of_epochs():
    def at(*epochs, **options):
        return rates(
            *(TrainingProgress(9, each) for each in epochs), schedule={"kind": "step"} | options, learning_rate=1.0
        )

    # Luong et al. (2015): ten epochs, halved after the fifth and after each one that follows
    assert at(*range(10)) == [1, 1, 1, 1, 1, 1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32]
    assert at(4.999, 5.999) == [1, 1 / 2]
    # Sutskever et al. (2014): every half epoch
    assert at(4.9, 5, 5.49, 5.5, 7.49, every=0.5) == [1, 1 / 2, 1 / 2, 1 / 4, 1 / 32]
    assert at(0, 2, after=2, factor=0.1) == [1, pytest.approx(0.1)]
    tenths = [5 + batch / 10 for batch in range(10)]  # of an epoch of ten updates
    assert at(*tenths, every=0.1) == [0.5 ** (1 + batch) for batch in range(10)]


def test_a_plateau_lowers_the_rate():
    def after(gains, **options):
        return rates(TrainingProgress(9, 0.0, gains), schedule={"kind": "plateau"} | options, learning_rate=1.0)[0]

    yes, no = True, False
    assert [after(gains) for gains in ([], [yes, no], [yes, no, no], [no, yes, no])] == [1, 1, 1 / 2, 1]
    assert after([yes, no, no, no, no]) == 1 / 4  # counted from the last decay
    assert after([yes, no, no, no, yes, no]) == 1 / 2
    assert after([no] * 9, patience=3, factor=0.1, lowest=0.05) == 0.05
    assert rates(TrainingProgress(1, 0.0, [no] * 2), schedule="plateau") == [0.25]  # a quarter of the warm-up


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ("linear", "ends at training.updates"),
        ("cosine", "ends at training.updates"),
        ("noam", "needs a model.dim"),
        ("plateau", "there is no data.dev"),
    ],
)
def test_what_a_schedule_needs(schedule, message):
    with pytest.raises(UserError, match=rf"optimizer\.schedule: .*{message}"):
        build_schedule(OptimizerConfig(schedule=schedule), dim=None, updates=None, evaluated=False)


class Ending(Schedule):
    """A schedule from outside that gives no rate after the third update."""

    def __init__(self, context, *, then: str) -> None:
        super().__init__(context)
        self.then = then

    def __call__(self, progress):
        return np.float32(1) if progress.update <= 3 else "0.1" if self.then == "text" else float(self.then)


@pytest.mark.parametrize("then", ["-0.1", "nan", "inf", "text"])
def test_what_is_no_rate_is_refused_at_its_update(then):
    schedule = build_schedule(
        OptimizerConfig(schedule={"kind": f"{__name__}:Ending", "then": then}), dim=16, updates=12
    )
    assert schedule.rate(TrainingProgress(3)) == 1
    with pytest.raises(UserError, match=r"optimizer\.schedule: Ending gives no learning rate for update 4; received"):
        schedule.rate(TrainingProgress(4))
