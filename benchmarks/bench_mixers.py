"""`bench.py mixers` and `bench.py steps`: every mixer's time and memory by length, beside self-attention with torch's
fused kernel, and the time and state of a decoding step.

Shapes: B batch, L length, D model, K heads.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from rounds import (
    BenchReport,
    Contender,
    Measurement,
    Play,
    check_choices,
    check_output,
    compete,
    measured_on,
)
from torch import Tensor
from torch.nn import functional as F

from headway.core.device import keep_freed_memory, peak_memory
from headway.mixers import Mixed, MixerState, build_mixer
from headway.mixers.attention import Attention
from headway.mixers.mixer import mapped
from headway.tensors.precision import DTYPES, wait_for

DIM, HEADS, N, WIDTH = 512, 8, 5, 7
BASELINE = "fused attention"
MIXERS: Mapping[str, Mapping[str, Any]] = {
    "ngram": {"kind": "ngram", "n": N, "heads": HEADS},
    "ngram, global": {"kind": "ngram", "n": N, "heads": HEADS, "global_context": True},
    "local": {"kind": "local", "n": N, "heads": HEADS},
    "nplm": {"kind": "nplm", "n": N},
    "lightconv": {"kind": "lightconv", "width": WIDTH, "heads": HEADS},
    "ssru": {"kind": "ssru"},
    **{f"linear, {gate}": {"kind": "linear", "gate": gate, "heads": HEADS} for gate in ("none", "scalar", "vector")},
    **{f"delta, {gate}": {"kind": "delta", "gate": gate, "heads": HEADS} for gate in ("none", "scalar", "vector")},
    "attention": {"kind": "attention", "heads": HEADS},
    BASELINE: {"kind": f"{__name__}:FusedAttention", "heads": HEADS},
}
LENGTHS = (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
TOKENS = 4096  # of a batch, or one sequence where that is longer
FITTED_FROM = 512  # the exponents are those of long sequences
POSITIONS, ROWS, STEPS = (40, 4000), 16, 20  # decoding steps: where, of how many rows, how many a round
PREFIX = 100  # positions that are read at a time

NOTES = (
    f"forward and backward passes of one mixer, D={DIM}, K={HEADS}, n={N} (lightconv: {WIDTH} positions), "
    f"on batches of {TOKENS} tokens; "
    f"'times the baseline' is speed beside self-attention with torch's scaled_dot_product_attention.",
)
STEP_NOTES = (
    f"a decoding step of {ROWS} sentences by a causal mixer, D={DIM}, K={HEADS}, n={N} (lightconv: {WIDTH} positions)",
    "state: what the mixer keeps of a sentence in float32 after so many tokens",
)


class FusedAttention(Attention):
    """Self-attention by torch's scaled_dot_product_attention at every length."""

    def forward(self, x: Tensor, mask: Tensor | None, *, need_weights: bool = False) -> Mixed:
        query, key, value = self._project(x, torch.arange(x.shape[1], device=x.device))
        values = F.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        return self._finish(values, None, mask)


def run_bench_mixers(
    lengths: Sequence[int],
    precision: str,
    rounds: int,
    device: torch.device,
    output: Path | None = None,
    figure: Path | None = None,
) -> BenchReport:
    """Measure every mixer at every length.

    Args:
        lengths: L.
        precision: float32 or bf16.
        rounds: turns of each contender.
        device: where.
        output: where to write the report as JSON.
        figure: where to draw time by length.

    Raises:
        UserError: an unknown precision, or a file that cannot be written.
        RunError: a contender failed.
    """
    check_choices("precision", [precision], DTYPES)
    for path in (output, figure):
        check_output(path)
    passes = [
        measurement
        for length in lengths
        for measurement in _compete(partial(setup_passes, length), f"L {length}", precision, rounds, device, MIXERS)
    ]
    report = BenchReport(
        f"mixers{measured_on(device)}, tokens a second", "setting", passes, {}, [*NOTES, *_growth(passes)]
    ).write(output)
    if figure is not None:
        from headway.pages.charts import Panel, panel_chart

        panel = Panel("", "length", "milliseconds per 1,000 tokens", _lines(passes), logarithmic="xy")
        panel_chart([panel], figure)
    return report


def run_bench_steps(precision: str, rounds: int, device: torch.device, output: Path | None = None) -> BenchReport:
    """Measure a decoding step of every causal mixer after few and after many tokens, and the bytes of its state.

    Args:
        precision: float32 or bf16.
        rounds: turns of each contender.
        device: where.
        output: where to write the report as JSON.

    Raises:
        UserError: an unknown precision, or a file that cannot be written.
        RunError: a contender failed.
    """
    check_choices("precision", [precision], DTYPES)
    check_output(output)
    causal = {
        name: options for name, options in MIXERS.items() if not options.get("global_context") and name != BASELINE
    }
    steps = [
        measurement
        for position in POSITIONS
        for measurement in _compete(partial(setup_steps, position), f"{position:,}", precision, rounds, device, causal)
    ]
    return BenchReport(f"decoding steps{measured_on(device)}", "tokens", steps, {}, STEP_NOTES).write(output)


def _compete(
    setup: Callable[..., Any],
    setting: str,
    precision: str,
    rounds: int,
    device: torch.device,
    mixers: Mapping[str, Mapping[str, Any]],
) -> list[Measurement]:
    contenders = [Contender(name, setup, (name, precision, str(device))) for name in mixers]
    return compete(precision, setting, contenders, rounds)


def batch_size(length: int) -> int:
    """Sequences of a batch."""
    return max(1, TOKENS // length)


def setup_passes(length: int, name: str, precision: str, device: str) -> tuple[Play, dict[str, Any]]:
    """Forward and backward passes of a mixer that sees both sides."""
    keep_freed_memory()
    torch.manual_seed(1)
    mixer = build_mixer(MIXERS[name], DIM, causal=False).to(device)
    x = torch.randn(batch_size(length), length, DIM, device=device, requires_grad=True)
    inputs = [x, *mixer.parameters()]

    def play(number: int) -> int:
        with torch.autocast(x.device.type, torch.bfloat16, enabled=precision == "bf16"):
            values = mixer(x, None).values
        torch.autograd.grad(values, inputs, torch.ones_like(values))
        wait_for(x.device)
        return x.shape[0] * length

    before = peak_memory(x.device)
    play(0)
    peak = peak_memory(x.device) - before
    return play, {"precision": precision, "length": length, "bytes_per_sequence": peak / batch_size(length)}


def setup_steps(position: int, name: str, precision: str, device: str) -> tuple[Play, dict[str, Any]]:
    """Decoding steps of a causal mixer, all from the same state: a state is a value."""
    keep_freed_memory()
    torch.manual_seed(1)
    mixer = build_mixer(MIXERS[name], DIM, causal=True).to(device)
    x = torch.randn(ROWS, DIM, device=device)
    with torch.inference_mode(), torch.autocast(x.device.type, torch.bfloat16, enabled=precision == "bf16"):
        state: MixerState = mixer.initial_state(ROWS, position + 1)
        for read in range(0, position, PREFIX):  # little memory at a time, as all contenders wait beside each other
            _, state = mixer.extend(x[:, None].expand(-1, min(PREFIX, position - read), -1), state)

    @torch.inference_mode()
    def play(number: int) -> int:
        with torch.autocast(x.device.type, torch.bfloat16, enabled=precision == "bf16"):
            for _ in range(STEPS):
                mixer.extend(x[:, None], state)
        wait_for(x.device)
        return STEPS * ROWS

    play(0)
    kept = list[Tensor]()
    mapped(state, kept.append, Tensor)
    size = sum(each.numel() * each.element_size() for each in kept if each.is_floating_point())
    return play, {"precision": precision, "state": size / ROWS / 2**10}


def _lines(passes: Sequence[Measurement]) -> dict[str, list[tuple[float, float]]]:
    """Milliseconds per 1,000 tokens by length, for each mixer."""
    lines: dict[str, list[tuple[float, float]]] = {name: [] for name in MIXERS}
    for measurement in passes:
        lines[measurement.contender].append((measurement.facts["length"], 1e6 / median(measurement.speeds)))
    return lines


def _growth(passes: Sequence[Measurement]) -> list[str]:
    """With which power of the length time and memory of one sequence grow, by least squares."""
    notes = []
    for name in MIXERS:
        long = [
            measurement
            for measurement in passes
            if measurement.contender == name and measurement.facts["length"] >= FITTED_FROM
        ]
        if len(long) >= 3:
            lengths = [math.log(measurement.facts["length"]) for measurement in long]
            seconds = [math.log(measurement.facts["length"] / median(measurement.speeds)) for measurement in long]
            memory = [math.log(max(1.0, measurement.facts["bytes_per_sequence"])) for measurement in long]
            time_power, memory_power = (float(np.polyfit(lengths, values, 1)[0]) for values in (seconds, memory))
            notes.append(
                f"{name}: from {FITTED_FROM} on, time grows as L^{time_power:.2f}, memory as L^{memory_power:.2f}"
            )
    return notes
