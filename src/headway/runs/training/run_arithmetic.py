"""The precision, the library of products and the threads of a run: chosen when it begins, kept when it goes on."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from headway.device import Threads, choose_threads, instruction_set, machine, processor
from headway.errors import UserError
from headway.log import counted
from headway.recipe import Recipe, changed_keys
from headway.runs.run_folder import RunFolder
from headway.tensors.backends import has_onednn, suited_backend
from headway.tensors.linear import use_backend
from headway.tensors.precision import bf16_speed, compared, fitting_precision

Changes = dict[str, tuple[Any, Any]]  # by key, the value of a run and the one it is to have
AUTO = "auto"  # the recipe's word for a choice when the run begins


class Arithmetic(NamedTuple):
    """How a run computes.

    Attributes:
        precision: float32 or bf16.
        bf16_speed: the speed of a step in bf16 here, in times that in float32, where it was measured; 0 where bf16 is
            refused.
        backend: the library that multiplies in float32, as `headway.tensors.backends` has it.
        threads: of this process.
    """

    precision: str
    bf16_speed: float | None
    backend: str
    threads: Threads

    def text(self) -> str:
        """All choices in words, with their reasons."""
        number = self.threads.number
        measured = "" if self.bf16_speed is None else f" (bf16 {compared(self.bf16_speed)}, {instruction_set()})"
        by = " by oneDNN" if self.backend == "onednn" and self.precision == "float32" else ""
        return f"{self.precision}{by}{measured}, {counted(number, 'thread')} ({self.threads.reason})"


def choose_arithmetic(recipe: Recipe, manifest: Mapping[str, Any], device: torch.device) -> Arithmetic:
    """The run's own precision, library and threads where its manifest has them, else those that suit this machine.

    Another number of threads changes the last bits of sums, so a run keeps its number on the machine that it began on.

    Raises:
        UserError: bf16 is asked for where the device refuses it.
    """
    wanted, kept = recipe.training.precision, manifest.get("precision")
    backend = _backend(manifest, device)
    speed = None if (kept or wanted) == "float32" else measured_speed(recipe, device, backend)
    if speed == 0 and "bf16" in (kept, wanted):
        raise UserError(
            f"bf16 cannot be computed on this {device.type}", where="training.precision", received=kept or wanted
        )
    precision = kept or fitting_precision(speed or 0.0) if wanted == AUTO else wanted
    return Arithmetic(precision, speed, backend, _threads(manifest.get("machine", {})))


def _backend(manifest: Mapping[str, Any], device: torch.device) -> str:
    """The library that the run began with, if it is here; runs from before there was a choice began with torch."""
    if "machine" not in manifest:  # nothing has been computed yet
        return suited_backend(device, processor())
    return "onednn" if manifest.get("backend") == "onednn" and device.type == "cpu" and has_onednn() else "torch"


def measured_speed(recipe: Recipe, device: torch.device, backend: str) -> float:
    """The speed of a product of the model's shape in bf16, in times that in float32; draws no random numbers."""
    with torch.random.fork_rng(devices=[]):
        layer, dim = recipe.model.trial_layer()
        use_backend(layer, backend)
        return bf16_speed(layer, dim, device, recipe.training.batch_tokens)


def _threads(before: Mapping[str, Any]) -> Threads:
    """The number of threads that the run began with, if on a machine like this one and nothing else is asked for."""
    chosen, here = choose_threads(), machine()
    known = ("processor", "cores")
    if chosen.fixed or "threads" not in before or any(before.get(key) != here[key] for key in known):
        return chosen
    return Threads(before["threads"], "as the run began")


def with_precision(recipe: Recipe, precision: str) -> Recipe:
    """`recipe` with this precision."""
    training = recipe.training.model_copy(update={"precision": precision})
    return recipe.model_copy(update={"training": training})


def compared_with_run(folder: RunFolder, recipe: Recipe) -> tuple[Recipe, Changes]:
    """A recipe for a run that is there, and its changes: the keys with the run's own values and those of `recipe`.

    A precision that `recipe` leaves open, or that the run has chosen, is no change. While the run has chosen none, it
    can be given one.
    """
    before = folder.read_recipe()
    chosen = folder.read_manifest().get("precision", before.training.precision)
    if recipe.training.precision in (AUTO, chosen):
        recipe = with_precision(recipe, before.training.precision)
    else:
        before = with_precision(before, recipe.training.precision if chosen == AUTO else chosen)
    return recipe, changed_keys(before, recipe)
