"""The precision, the library of products and the threads of a run: chosen when it begins, kept when it goes on."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import torch
from pydantic import TypeAdapter, ValidationError

from headway.core.device import (
    Threads,
    accelerator,
    choose_threads,
    instruction_set,
    machine,
    pick_device,
    processor,
    threads_set,
)
from headway.core.documents import read_json
from headway.core.errors import RunError, UserError
from headway.core.files import write_json
from headway.core.log import counted
from headway.core.registry import foreign_code, import_paths
from headway.core.storage import cache_folder, locked
from headway.recipe import Recipe, changed_keys
from headway.runs.run_folder import RunFolder
from headway.tensors.linear import has_onednn, suited_backend, use_backend
from headway.tensors.precision import REFUSED, Speed, bf16_speed, compared, fitting_precision

Changes = dict[str, tuple[Any, Any]]  # by key, the value of a run and the one it is to have
AUTO = "auto"  # the recipe's word for a choice when the run begins
WAIT = 60.0  # seconds for another process that measures
SPEED = TypeAdapter(Speed)


class Arithmetic(NamedTuple):
    """How a run computes."""

    precision: str  # float32 or bf16
    bf16_speed: float | None  # of a step here, in times that in float32, where it was looked up; 0 where it is refused
    backend: str  # the library that multiplies in float32, as `headway.tensors.linear` has it
    threads: Threads  # of this process

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
    if speed == REFUSED and "bf16" in (kept, wanted):
        raise UserError(
            f"bf16 cannot be computed on this {device.type}", where="training.precision", received=kept or wanted
        )
    precision = kept or fitting_precision(speed or REFUSED) if wanted == AUTO else wanted
    return Arithmetic(precision, speed and speed.median, backend, _threads(manifest.get("machine", {})))


def _backend(manifest: Mapping[str, Any], device: torch.device) -> str:
    """The library that the run began with, if it is here; runs from before there was a choice began with torch."""
    if "machine" not in manifest:  # nothing has been computed yet
        return suited_backend(device, processor())
    return "onednn" if manifest.get("backend") == "onednn" and device.type == "cpu" and has_onednn() else "torch"


def measured_speed(recipe: Recipe, device: torch.device, backend: str) -> Speed:
    """The speed of bf16 here, for products of the model's shape, as it was measured once; draws no random numbers.

    The cache keeps a record a machine, library and size class, so that all runs of a size decide alike, whatever else
    the machine does when they begin.
    """
    with torch.random.fork_rng(devices=[]), threads_set(1):
        layer, dim = recipe.model.trial_layer()
        weights, rows = sum(each.numel() for each in layer.parameters()), recipe.training.batch_sizes()["batch_tokens"]
        use_backend(layer, backend)
        key = {
            "processor": processor(),
            "instruction_set": [instruction_set(), os.environ.get("ONEDNN_MAX_CPU_ISA")],
            "device": device.type if device.type == "cpu" else accelerator(),
            "torch": torch.__version__,
            "backend": backend,
            "layer": type(layer).__name__,
            "size": [weights.bit_length(), rows.bit_length()],
        }
        return _recorded(key, lambda: bf16_speed(layer, dim, device, rows))


def _recorded(key: Mapping[str, Any], measure: Callable[[], Speed]) -> Speed:
    """The record of a key; measured where there is none, or the cache cannot be used."""
    try:
        path = cache_folder() / "precision" / f"{sha256(json.dumps(key).encode()).hexdigest()[:16]}.json"
        with locked(path.with_suffix(".lock"), WAIT):
            try:
                return SPEED.validate_python(read_json(path)["speed"])
            except (UserError, ValidationError, KeyError, TypeError):  # none yet, or a damaged one
                speed = measure()
            write_json(path, {"machine": key, "speed": speed})
            return speed
    except (OSError, RunError, UserError):
        return measure()


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


class SharedPrecision:
    """The precision of runs that are compared, where their recipes leave it open: that of runs which are there, else
    what suits all of them here.

    If each chose for itself, models of different sizes would be rounded differently.

    Args:
        runs: the recipes and folders of all runs, made or not.
    """

    def __init__(self, runs: Sequence[tuple[Recipe, Path]]) -> None:
        self._open = [(recipe, RunFolder(folder)) for recipe, folder in runs if recipe.training.precision == AUTO]

    @cached_property
    def _chosen(self) -> str:
        for known in (folder.read_manifest().get("precision") for _, folder in self._open):
            if known:
                return str(known)
        sizes = {(recipe.model.model_dump_json(), recipe.training.batch_tokens): recipe for recipe, _ in self._open}
        device = pick_device()
        with foreign_code(any(import_paths(recipe.model_dump(mode="json")) for recipe, _ in self._open)):
            speeds = [measured_speed(recipe, device, suited_backend(device, processor())) for recipe in sizes.values()]
        return "bf16" if all(fitting_precision(speed) == "bf16" for speed in speeds) else "float32"

    def given(self, recipe: Recipe) -> Recipe:
        """`recipe` with a precision; measures where no run has one yet."""
        return with_precision(recipe, self._chosen) if recipe.training.precision == AUTO else recipe
