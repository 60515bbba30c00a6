"""The choice between float32 and bf16: what is measured, and that it costs little where bf16 is slow; and TF32."""

import pytest
import torch

from headway.tensors import precision
from headway.tensors.precision import (
    FLOAT32,
    REFUSED,
    bf16_speed,
    compared,
    exact_dtype,
    fitting_precision,
    has_tf32,
    speed_of,
    use_float32,
)

CPU = torch.device("cpu")
ALL = 10**9  # rows that there is time for


class Clock:
    """Seconds that pass only where someone lets them."""

    now = 0.0

    def thread_time(self) -> float:
        """The time, as the module `time` says it."""
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock by which precisions are measured."""
    clock = Clock()
    monkeypatch.setattr(precision, "time", clock)
    return clock


class Steps:
    """Steps that take known seconds of a clock, which stands still beside them: some in any case, some for each row."""

    def __init__(self, clock: Clock, float32: tuple[float, float], bf16: tuple[float, float]) -> None:
        self.clock, self.seconds = clock, {"float32": float32, "bf16": bf16}
        self.taken: list[tuple[int, str]] = []

    def __call__(self, rows: int, kind: str) -> None:
        self.taken.append((rows, kind))
        fixed, each = self.seconds[kind]
        self.clock.now += fixed + each * rows


def test_the_quicker_precision_is_found(clock: Clock) -> None:
    quick, slow = Steps(clock, (0, 0.02), (0, 0.005)), Steps(clock, (0, 0.005), (0, 0.02))
    assert bf16_speed(quick, CPU, 8, ALL) == pytest.approx((4, 4))
    assert fitting_precision(bf16_speed(quick, CPU, 8, ALL)) == "bf16"
    assert bf16_speed(slow, CPU, 8, ALL) == pytest.approx((0.25, 0.25))
    assert fitting_precision(bf16_speed(slow, CPU, 8, ALL)) == "float32"


def test_what_rows_do_not_bring_counts_too(clock: Clock) -> None:
    """Products that are four times as fast do not help a step that waits for something else."""
    steps = Steps(clock, (0.060, 0.0001), (0.090, 0.000025))
    assert bf16_speed(steps, CPU, 100, ALL).median == pytest.approx(0.07 / 0.0925)
    assert {rows for rows, _ in steps.taken} == {25, 100}


def test_larger_steps_than_there_is_time_for_are_told_from_smaller_ones(clock: Clock) -> None:
    steps = Steps(clock, (0.1, 0.01), (0.2, 0.002))
    assert bf16_speed(steps, CPU, 1000, 16).median == pytest.approx((0.1 + 10) / (0.2 + 2))
    assert {rows for rows, _ in steps.taken} == {4, 16}
    assert bf16_speed(Steps(clock, (0.1, 0.01), (0.2, 0.002)), CPU, 1000, 2).median == pytest.approx(10.1 / 2.2)


def test_slow_steps_are_few(clock: Clock) -> None:
    quick, slow = Steps(clock, (0, 0.001), (0, 0.001)), Steps(clock, (0, 1.0), (0, 1.0))
    bf16_speed(quick, CPU, 8, ALL)
    bf16_speed(slow, CPU, 8, ALL)
    first = 2 * 2 + 2  # pairs of few rows, and one of all, that make the kernels
    assert len(quick.taken) == first + 2 * precision.PAIRS
    assert len(slow.taken) == first + 2 * precision.FEWEST_PAIRS


def test_a_hopeless_precision_is_given_up_after_two_steps_of_few_rows(clock: Clock) -> None:
    steps = Steps(clock, (0, 0.001), (0, 0.15))
    assert bf16_speed(steps, CPU, 400, 64).median == pytest.approx(0.001 / 0.15)
    assert steps.taken == [(16, "float32"), (16, "bf16")] * 2


def test_the_time_in_which_kernels_are_made_does_not_count(clock: Clock) -> None:
    class SlowAtFirst(Steps):
        def __call__(self, rows: int, kind: str) -> None:
            if (rows, kind) not in self.taken:
                self.clock.now += 10
            super().__call__(rows, kind)

    assert bf16_speed(SlowAtFirst(clock, (0, 0.02), (0, 0.01)), CPU, 8, ALL) == pytest.approx((2, 2))


def test_steps_take_turns(clock: Clock) -> None:
    """A machine that gets slower from step to step slows both down."""

    class Tiring(Steps):
        def __call__(self, rows: int, kind: str) -> None:
            self.seconds = {each: (0, 1.1 * slope) for each, (_, slope) in self.seconds.items()}
            super().__call__(rows, kind)

    assert bf16_speed(Tiring(clock, (0, 0.02), (0, 0.01)), CPU, 8, ALL) == pytest.approx((2 / 1.1, 2 / 1.1))


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


def test_a_refused_precision_has_no_speed() -> None:
    def step(rows: int, kind: str) -> None:
        if kind == "bf16":
            raise RuntimeError("could not create a primitive descriptor")

    assert bf16_speed(step, CPU, 8, ALL) == REFUSED
    assert fitting_precision(REFUSED) == "float32"


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


@pytest.fixture
def settings():
    """Gives torch's settings of float32, as its compiler and cuDNN read them; they are put back."""

    def read() -> tuple[str, bool]:
        return torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32

    before = read()
    yield read
    torch.set_float32_matmul_precision(before[0])
    torch.backends.cudnn.allow_tf32 = before[1]


@pytest.mark.parametrize("kind", FLOAT32)
def test_a_device_with_tf32_multiplies_as_it_is_told(monkeypatch: pytest.MonkeyPatch, settings, kind: str) -> None:
    assert settings() == FLOAT32["cudnn"]  # torch's own
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda device: (8, 0))
    use_float32(kind, torch.device("cuda"))
    assert settings() == FLOAT32[kind]
    with torch.backends.cudnn.flags(enabled=False):  # reads what was set, and raises where that is a mix
        assert torch.backends.cuda.matmul.fp32_precision == ("tf32" if kind == "tf32" else "ieee")
    use_float32("cudnn", torch.device("cuda"))
    assert settings() == FLOAT32["cudnn"]


def test_other_devices_are_left_alone(monkeypatch: pytest.MonkeyPatch, settings) -> None:
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda device: (7, 5))
    for name in ("cpu", "cuda", "mps", "meta"):
        assert not has_tf32(torch.device(name))
        use_float32("tf32", torch.device(name))
    assert settings() == FLOAT32["cudnn"]
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda device: (9, 0))
    assert has_tf32(torch.device("cuda:1"))
