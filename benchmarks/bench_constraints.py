"""`bench.py constraints`: what the dependency loss and the synchronous constraint cost a training step."""

from collections.abc import Sequence
from pathlib import Path

from bench_train import setup_headway
from rounds import (
    SIZES,
    BenchReport,
    Contender,
    Measurement,
    Size,
    check_choices,
    check_output,
    compete,
)

from headway.losses import ObjectiveConfig
from headway.models import TransformerConfig
from headway.tensors.precision import DTYPES

NOTES = (
    "times the baseline: median over the rounds of tokens/s beside those of the plain Transformer in the same round;"
    " 0.91 is a step that takes 1.10 times as long",
    "constraints: dependency heads in the lowest layers, and the synchronous constraint by the last cross-attention but"
    " one; heads are random",
)


def objectives(size: Size[TransformerConfig]) -> dict[str, ObjectiveConfig]:
    """The contenders; the last is what the others are compared with."""
    synchronous = {"cross_layer": max(1, size.model.decoder.layers - 1)}
    trees = {
        "both constraints": {"dependency": {}, "synchronous": synchronous},
        "dependency": {"dependency": {}},
        "synchronous": {"synchronous": synchronous},
        "plain Transformer": {},
    }
    return {name: ObjectiveConfig.model_validate(tree) for name, tree in trees.items()}


def run_bench_constraints(
    sizes: Sequence[str], precisions: Sequence[str], rounds: int, output: Path | None = None
) -> BenchReport:
    """Measure training at each of `sizes` and `precisions` with and without the constraints.

    Raises:
        UserError: an unknown size or precision, or an output that cannot be written.
        RunError: a contender failed.
    """
    check_choices("size", sizes, SIZES)
    check_choices("precision", precisions, DTYPES)
    check_output(output)
    measurements: list[Measurement] = []
    for size in sizes:
        for precision in precisions:
            contenders = [
                Contender(name, setup_headway, (size, precision, objective))
                for name, objective in objectives(SIZES[size]).items()
            ]
            measurements += compete(size, precision, contenders, rounds)
    return BenchReport("training, target tokens a second", "precision", measurements, {}, NOTES).write(output)
