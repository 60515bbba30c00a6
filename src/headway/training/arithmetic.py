"""The precision, matrix-product library and threads of a run: chosen when the run begins, and kept when it resumes."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from hashlib import sha256
from operator import attrgetter
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
from headway.core.log import counted, warn
from headway.core.registry import own_code
from headway.core.storage import cache_folder, locked
from headway.processing.text.text_processor import with_languages
from headway.recipe import Recipe, changed_keys
from headway.runs.run_folder import RunFolder, float32_of
from headway.tensors.linear import has_onednn, suited_backend
from headway.tensors.precision import (
    REFUSED,
    Speed,
    bf16_speed,
    compared,
    fitting_precision,
    has_tf32,
    use_float32,
)
from headway.training.batch_size import SIZES, is_sought
from headway.training.trial import Trial

Changes = dict[str, tuple[Any, Any]]  # by key, the old and the new value
AUTO = "auto"  # in a recipe: chosen when the run begins
WAIT = 60.0  # seconds to wait while another process measures
SPEED = TypeAdapter(Speed)
PRODUCTS = 1 << 31  # multiplications of a forward pass that a CPU has time for: a quarter of a second or less


class Arithmetic(NamedTuple):
    """The precision, libraries and threads of a run."""

    precision: str  # float32 or bf16
    bf16_speed: float | None  # relative to float32; None if not measured, 0 if not supported
    backend: str  # the library of float32 products, see `headway.tensors.linear`
    threads: Threads  # of this process
    float32: str  # the float32 mode, see `headway.tensors.precision`

    def text(self) -> str:
        """All choices with their reasons, in words."""
        number, in_float32 = self.threads.number, self.precision == "float32"
        measured = "" if self.bf16_speed is None else f" (bf16 {compared(self.bf16_speed)}, {instruction_set()})"
        by = " by oneDNN" if self.backend == "onednn" and in_float32 else ""
        if self.float32 == "tf32":
            by = " as TF32" if in_float32 else ", the rest as TF32"
        return f"{self.precision}{by}{measured}, {counted(number, 'thread')} ({self.threads.reason})"


def choose_arithmetic(
    recipe: Recipe, manifest: Mapping[str, Any], device: torch.device, processes: int = 1
) -> Arithmetic:
    """The precision, library and threads in the run's manifest, or else the ones that suit this machine.

    The number of threads changes the last bits of sums, so a run keeps its number on the machine that it began on.

    Raises:
        UserError: the recipe asks for bf16, and the device does not support it.
    """
    wanted, kept = recipe.training.precision, manifest.get("precision")
    backend, float32 = _backend(manifest, device), _float32(recipe, manifest, device)
    speed, factor = None, manifest.get("bf16_speed")
    # An explicit bf16 is used, but measured on a CPU, where it may be far slower and deserves a warning.
    if not kept and (wanted == AUTO or (wanted == "bf16" and device.type == "cpu")):
        speed = measured_speed(computing(recipe, float32=float32), device, backend, processes)
        factor = speed.median
    if speed == REFUSED and wanted == "bf16":
        raise UserError(f"bf16 cannot be computed on this {device.type}", where="training.precision", received=wanted)
    precision = kept or fitting_precision(speed or REFUSED) if wanted == AUTO else wanted
    return Arithmetic(precision, factor, backend, _threads(manifest.get("machine", {})), float32)


def _backend(manifest: Mapping[str, Any], device: torch.device) -> str:
    """The library that the run began with, if it is available. Runs older than this choice began with torch."""
    if "machine" not in manifest:  # nothing has been computed yet
        return suited_backend(device, processor())
    return "onednn" if manifest.get("backend") == "onednn" and device.type == "cpu" and has_onednn() else "torch"


def _float32(recipe: Recipe, manifest: Mapping[str, Any], device: torch.device) -> str:
    """How float32 products are computed: the recipe's value, or else the run's, or else TF32 if the device has it."""
    wanted = recipe.training.float32
    if not has_tf32(device):
        return "exact"
    return float32_of(manifest) or "tf32" if wanted == AUTO else wanted


def measured_speed(recipe: Recipe, device: torch.device, backend: str, processes: int = 1) -> Speed:
    """The speed of bf16 on this machine, for training steps of the recipe's model. No random numbers are drawn.

    The result is cached by machine, library, kind of model and size class, so that all runs of a size make the same
    choice, whatever else is running when they begin.
    """
    float32, sought = _float32(recipe, {}, device), is_sought(recipe, device)
    sizes = [size * processes for size in reversed(SIZES)] if sought else [recipe.training.batch_tokens]
    trials = [Trial(computing(recipe, batch_tokens=size), device) for size in sizes]  # the first that fits
    with torch.random.fork_rng([device] if device.type == "cuda" else []), threads_set(1):
        with torch.device("meta"):
            model = trials[0].model()
        weights = sum(parameter.numel() for parameter in model.parameters())
        rows = max(1, trials[0].sentences // processes)
        most = max(2, PRODUCTS // (weights * trials[0].positions)) if device.type == "cpu" else rows
        key = {
            "processor": processor(),
            "instruction_set": [instruction_set(), os.environ.get("ONEDNN_MAX_CPU_ISA")],
            "device": device.type if device.type == "cpu" else accelerator(),
            "torch": torch.__version__,
            "backend": backend,
            "float32": float32,
            "model": type(model).__name__,
            "step": [weights.bit_length(), rows.bit_length(), recipe.training.capture, sought],
        }

        def measure(trial: Trial, *smaller: Trial) -> Speed:
            use_float32(float32, device)
            try:
                return bf16_speed(trial.step(backend), device, max(1, trial.sentences // processes), most)
            except RunError:
                if not smaller:
                    raise
            finally:
                if device.type == "cuda":  # the peak of the run itself is counted
                    torch.cuda.empty_cache()
                    torch.cuda.reset_peak_memory_stats(device)
            return measure(*smaller)

        try:
            return _recorded(key, partial(measure, *trials))
        except RunError as error:
            warn(f"training.precision: bf16 is not compared with float32, as {error}")
            return REFUSED


def _recorded(key: Mapping[str, Any], measure: Callable[[], Speed]) -> Speed:
    """The cached speed for `key`. It is measured if there is no record, or if the cache is not usable."""
    try:
        path = cache_folder() / "precision" / f"{sha256(json.dumps(key).encode()).hexdigest()[:16]}.json"
        with locked(path.with_suffix(".lock"), WAIT):
            try:
                return SPEED.validate_python(read_json(path)["speed"])
            except (UserError, ValidationError, KeyError, TypeError):  # no record, or a damaged one
                speed = measure()
            write_json(path, {"machine": key, "speed": speed})
            return speed
    except (OSError, RunError, UserError):
        return measure()


def _threads(before: Mapping[str, Any]) -> Threads:
    """The number of threads that the run began with, if this machine is the same and no number is set explicitly."""
    chosen, here = choose_threads(), machine()
    known = ("processor", "cores")
    if chosen.fixed or "threads" not in before or any(before.get(key) != here[key] for key in known):
        return chosen
    return Threads(before["threads"], "as the run began")


def computing(recipe: Recipe, **choices: str | int) -> Recipe:
    """A copy of `recipe` with these values in `training`, such as `precision` or `float32`."""
    return recipe.model_copy(update={"training": recipe.training.model_copy(update=choices)})


def chosen(manifest: Mapping[str, Any], recipe: Recipe) -> dict[str, str]:
    """The precision and float32 mode of a run: the recipe's value, or else the manifest's, or else `auto`."""
    made = {"precision": manifest.get("precision"), "float32": float32_of(manifest)}
    named = {key: getattr(recipe.training, key) for key in made}
    return {key: (made[key] or AUTO) if named[key] == AUTO else named[key] for key in made}


def compared_with_run(folder: RunFolder, recipe: Recipe) -> tuple[Recipe, Changes]:
    """The recipe for resuming a run, and its changes: for each key, the run's value and the value in `recipe`.

    It is not a change if `recipe` leaves precision, float32 or the languages open, or names the run's choice. A run
    that has not chosen a precision yet may get one.
    """
    before = folder.read_recipe()
    recipe = recipe.model_copy(update={"text": with_languages(recipe.text, before.text)})
    for key, value in chosen(folder.read_manifest(), before).items():
        wanted = getattr(recipe.training, key)
        if wanted in (AUTO, value):
            recipe = computing(recipe, **{key: getattr(before.training, key)})
        else:
            before = computing(before, **{key: wanted if value == AUTO else value})
    return recipe, changed_keys(before, recipe)


class SharedPrecision:
    """The common precision and float32 mode of runs that are compared, if their recipes leave these open.

    Existing runs determine them, or else a choice that suits all runs on this machine. With a choice for each run,
    models of different sizes would be rounded differently.

    Args:
        runs: the recipes and folders of all runs, whether the folders exist or not.
    """

    def __init__(self, runs: Sequence[tuple[Recipe, Path]]) -> None:
        self._runs = [(recipe, RunFolder(folder)) for recipe, folder in runs]

    def _made(self, key: str) -> str | None:
        """The choice of the first existing run whose recipe left it open, or None."""
        left = ((recipe, folder) for recipe, folder in self._runs if getattr(recipe.training, key) == AUTO)
        made = (chosen(folder.read_manifest(), recipe)[key] for recipe, folder in left)
        return next((choice for choice in made if choice != AUTO), None)

    @cached_property
    def _float32(self) -> str:
        return self._made("float32") or ("tf32" if has_tf32(pick_device()) else AUTO)

    @cached_property
    def _precision(self) -> str:
        if made := self._made("precision"):
            return made
        left = [self._with_float32(recipe) for recipe, _ in self._runs if recipe.training.precision == AUTO]
        settings = attrgetter("batch_tokens", "capture")
        sizes = {(recipe.model.model_dump_json(), settings(recipe.training)): recipe for recipe in left}
        device = pick_device()
        backend = suited_backend(device, processor())
        with own_code([recipe.model_dump(mode="json") for recipe in left]):
            speeds = [measured_speed(recipe, device, backend) for recipe in sizes.values()]
        return "bf16" if all(fitting_precision(speed) == "bf16" for speed in speeds) else "float32"

    def _with_float32(self, recipe: Recipe) -> Recipe:
        return computing(recipe, float32=self._float32) if recipe.training.float32 == AUTO else recipe

    def given(self, recipe: Recipe) -> Recipe:
        """A copy of `recipe` with the precision and float32 mode. Measures the speed if no run has chosen yet."""
        recipe = self._with_float32(recipe)
        return computing(recipe, precision=self._precision) if recipe.training.precision == AUTO else recipe
