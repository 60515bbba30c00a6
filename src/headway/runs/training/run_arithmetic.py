"""The precision and the threads of a run: chosen when it begins, kept when it goes on."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from headway.device import Threads, choose_threads, instruction_set, machine
from headway.errors import UserError
from headway.recipe import Recipe
from headway.tensors.precision import bf16_speed, compared, fitting_precision


class Arithmetic(NamedTuple):
    """How a run computes.

    Attributes:
        precision: float32 or bf16.
        bf16_speed: the speed of a step in bf16 here, in times that in float32, where it was measured; 0 where bf16 is
            refused.
        threads: of this process.
    """

    precision: str
    bf16_speed: float | None
    threads: Threads

    def text(self) -> str:
        """Both choices in words, with their reasons."""
        number = self.threads.number
        measured = "" if self.bf16_speed is None else f" (bf16 {compared(self.bf16_speed)}, {instruction_set()})"
        return f"{self.precision}{measured}, {number} thread{'s' * (number > 1)} ({self.threads.reason})"


def choose_arithmetic(recipe: Recipe, manifest: Mapping[str, Any], device: torch.device) -> Arithmetic:
    """The run's own precision and threads where its manifest has them, else those that suit this machine.

    Another number of threads changes the last bits of sums, so a run keeps its number on the machine that it began on.

    Raises:
        UserError: bf16 is asked for where the device refuses it.
    """
    wanted, kept = recipe.training.precision, manifest.get("precision")
    speed = None if (kept or wanted) == "float32" else measured_speed(recipe, device)
    if speed == 0 and "bf16" in (kept, wanted):
        raise UserError(
            f"bf16 cannot be computed on this {device.type}", where="training.precision", received=kept or wanted
        )
    precision = kept or fitting_precision(speed or 0.0) if wanted == "auto" else wanted
    return Arithmetic(precision, speed, _threads(manifest.get("machine", {})))


def measured_speed(recipe: Recipe, device: torch.device) -> float:
    """The speed of a product of the model's shape in bf16, in times that in float32; draws no random numbers."""
    with torch.random.fork_rng(devices=[]):
        layer, dim = recipe.model.trial_layer()
        return bf16_speed(layer, dim, device, recipe.training.batch_tokens)


def _threads(before: Mapping[str, Any]) -> Threads:
    """The number of threads that the run began with, if on a machine like this one and nothing else is asked for."""
    chosen, here = choose_threads(), machine()
    known = ("processor", "cores")
    if chosen.fixed or "threads" not in before or any(before.get(key) != here[key] for key in known):
        return chosen
    return Threads(before["threads"], "as the run began")
