"""The choice between float32 and bf16: what is measured, and that it costs little where bf16 is slow."""

import time

import pytest
import torch
from torch import Tensor, nn

from headway.tensors import precision
from headway.tensors.precision import (
    REFUSED,
    bf16_speed,
    compared,
    exact_dtype,
    fitting_precision,
    speed_of,
    trial_linear,
)

CPU = torch.device("cpu")


class Slow(nn.Linear):
    """A layer that takes a known time of the clock below, which stands still beside it, in either precision."""

    def __init__(self, float32: float, bf16: float) -> None:
        super().__init__(8, 8)
        self.float32, self.bf16 = float32, bf16
        self.rows: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        self.rows.append(x.shape[0] * x.shape[1])
        CLOCK.now += self.bf16 if torch.is_autocast_enabled("cpu") else self.float32
        return super().forward(x)


class Clock:
    """Seconds that pass only where someone lets them."""

    now = 0.0

    def thread_time(self) -> float:
        """The time, as the module `time` says it."""
        return self.now


CLOCK = Clock()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock by which precisions are measured."""
    monkeypatch.setattr(precision, "time", CLOCK)
    return CLOCK


class Refusing(nn.Linear):
    """A layer without a kernel for bf16."""

    def forward(self, x: Tensor) -> Tensor:
        if torch.is_autocast_enabled("cpu"):
            raise RuntimeError("could not create a primitive descriptor")
        return super().forward(x)


def test_the_quicker_precision_is_found(clock: Clock) -> None:
    quick, slow = Slow(0.02, 0.005), Slow(0.005, 0.02)
    assert bf16_speed(quick, 8, CPU) == pytest.approx((4, 4))
    assert fitting_precision(bf16_speed(quick, 8, CPU)) == "bf16"
    assert bf16_speed(slow, 8, CPU) == pytest.approx((0.25, 0.25))
    assert fitting_precision(bf16_speed(slow, 8, CPU)) == "float32"


def test_a_hopeless_precision_is_given_up_after_two_passes_of_few_rows(clock: Clock) -> None:
    layer, began = Slow(0.001, 0.15), clock.now
    assert bf16_speed(layer, 8, CPU).median == pytest.approx(0.001 / 0.15)
    assert set(layer.rows) == {precision.FEW_ROWS}
    assert clock.now - began < 3 * layer.bf16


def test_the_time_in_which_kernels_are_made_does_not_count(clock: Clock) -> None:
    class SlowAtFirst(Slow):
        def forward(self, x: Tensor) -> Tensor:
            if torch.is_autocast_enabled("cpu") and self.rows.count(x.shape[0] * x.shape[1]) == 1:
                CLOCK.now += 10
            return super().forward(x)

    assert bf16_speed(SlowAtFirst(0.02, 0.01), 8, CPU) == pytest.approx((2, 2))


def test_passes_take_turns(clock: Clock) -> None:
    """A machine that gets slower from pass to pass slows both down."""

    class Tiring(Slow):
        def forward(self, x: Tensor) -> Tensor:
            self.float32, self.bf16 = 1.1 * self.float32, 1.1 * self.bf16
            return super().forward(x)

    assert bf16_speed(Tiring(0.02, 0.01), 8, CPU) == pytest.approx((2 / 1.1, 2 / 1.1))


@pytest.mark.parametrize(
    ("ratios", "speed", "chosen"),
    [
        ([1.9] * 9, (1.9, 1.9), "bf16"),
        ([1.9, 0.3, 1.9, 2.0, 1.8, 40.0, 1.9, 1.9, 0.2], (1.9, 1.8), "bf16"),  # two of nine were disturbed
        ([1.3, 1.3, 1.3, 1.3, 1.3, 1.1, 1.1, 1.1, 1.3], (1.3, 1.1), "float32"),  # close
        ([0.28, 1.6, 0.5, 1.4, 1.3, 1.5, 0.9, 1.6, 1.5], (1.4, 0.9), "float32"),  # noisy
        ([1.1] * 9, (1.1, 1.1), "float32"),
        ([0.5] * 7 + [9.0] * 2, (0.5, 0.5), "float32"),
    ],
)
def test_the_decision_from_measurements(ratios: list[float], speed: tuple[float, float], chosen: str) -> None:
    assert speed_of(ratios) == speed
    assert fitting_precision(speed_of(ratios)) == chosen


def test_rows_are_those_of_the_batches_up_to_a_limit(clock: Clock) -> None:
    small, large = Slow(0.005, 0.005), Slow(0.005, 0.005)
    bf16_speed(small, 8, CPU, rows=100)
    bf16_speed(large, 8, CPU, rows=100_000)
    assert max(small.rows) == 96
    assert max(large.rows) == precision.MOST_ROWS


def test_a_refused_precision_has_no_speed() -> None:
    assert bf16_speed(Refusing(8, 8), 8, CPU) == REFUSED
    assert fitting_precision(REFUSED) == "float32"


def test_real_products_are_measured_in_a_moment() -> None:
    began = time.thread_time()
    assert 0 < bf16_speed(*trial_linear(64), CPU).median < 1000
    assert time.thread_time() - began < 5  # milliseconds on a processor with bf16


def test_the_trial_of_a_wide_model_stays_small() -> None:
    layer, dim = trial_linear(20_000)
    assert dim == 1024
    assert sum(parameter.numel() for parameter in layer.parameters()) == 1024 * 1025


@pytest.mark.parametrize(
    ("speed", "words"),
    [
        (0.0, "cannot be computed"),
        (0.01, "takes 100.0 times as long as float32"),
        (1.84, "is 1.8 times as fast as float32"),
    ],
)
def test_speeds_in_words(speed: float, words: str) -> None:
    assert compared(speed) == words


def test_sums_are_as_exact_as_the_device_lets_them_be() -> None:
    kinds = ("cpu", "cuda", "mps")
    assert [exact_dtype(torch.device(kind)) for kind in kinds] == [torch.float64, torch.float64, torch.float32]
