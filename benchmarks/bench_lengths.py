"""`bench.py lengths`: speed and memory of training by the length of the sentences, mixer by mixer."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bench_train import PLAIN, setup_headway
from rounds import (
    SIZES,
    BenchReport,
    Contender,
    Measurement,
    Play,
    check_choices,
    check_output,
    compete,
)

from headway.core.device import give_back_freed_memory
from headway.tensors.precision import DTYPES

N = 5
BASELINE = "attention"
MIXERS: Mapping[str, Mapping[str, Any]] = {
    "ngram": {"kind": "ngram", "n": N},
    "local": {"kind": "local", "n": N},
    BASELINE: {"kind": "attention"},
}
LENGTHS = (100, 1000, 4000)

NOTES = (
    f"all layers of both sides have the mixer, with n={N}; every decoder reads the source by multi-head attention",
    "recomputed: blocks are computed a second time, by training.activation_checkpointing",
    "times the baseline: median over the rounds of tokens/s beside those of attention in the same round",
    "memory: the most that an update takes: weights, gradients, the optimizer's state and activations",
    "a contender gives its freed memory back after each round, since not all of them fit beside each other",
)


def run_bench_lengths(
    size: str, lengths: Sequence[int], precision: str, rounds: int, output: Path | None = None
) -> BenchReport:
    """Measure updates with each of `MIXERS`, also with activations that are computed again, at each length.

    Args:
        size: a name in `SIZES`. Its batches have as many tokens at every length, or one pair.
        lengths: tokens of every source and every target.
        precision: float32 or bf16.
        rounds: turns of each contender.
        output: where to write the report as JSON.

    Raises:
        UserError: an unknown size or precision, or an output that cannot be written.
        RunError: a contender failed.
    """
    check_choices("size", [size], SIZES)
    check_choices("precision", [precision], DTYPES)
    check_output(output)
    measurements: list[Measurement] = []
    for length in lengths:
        contenders = [
            Contender(
                f"{name}{', recomputed' * again}",
                partial(_setup, mixer=mixer, length=length),
                (size, precision, PLAIN, again),
            )
            for again in (True, False)
            for name, mixer in MIXERS.items()
        ]
        measurements += compete(size, f"{length:,}", contenders, rounds)
    return BenchReport(f"training in {precision}, target tokens a second", "length", measurements, {}, NOTES).write(
        output
    )


def _setup(*arguments: Any, **options: Any) -> tuple[Play, dict[str, Any]]:
    """`setup_headway`, whose rounds end without freed memory."""
    play, facts = setup_headway(*arguments, **options)

    def lean(number: int) -> int:
        tokens = play(number)
        give_back_freed_memory()
        return tokens

    give_back_freed_memory()
    return lean, facts
