"""`headway doctor`: check this installation, list missing packages, and run a self-test."""

import platform
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import metadata, requires, version
from pathlib import Path

import psutil
from packaging.requirements import Requirement

from headway.core.device import choose_threads, machine, pick_device
from headway.core.log import silenced
from headway.core.version import VERSION
from headway.predictors.sequence_predictor import SequencePredictor
from headway.recipe import parse_recipe
from headway.runs.load import load
from headway.tensors.linear import suited_backend
from headway.tensors.precision import compared, fitting_precision
from headway.training.arithmetic import measured_speed
from headway.training.loop import train

SELF_TEST_UPDATES = 200
PRESET = "transformer-small"  # the model whose training steps compare precisions


def missing_by_extra() -> dict[str, list[str]]:
    """For each extra of the package, its distributions that are not installed, or too old."""
    requirements = [Requirement(text) for text in requires("headway") or []]

    def missing(extra: str) -> list[str]:
        wanted = [each for each in requirements if each.marker and each.marker.evaluate({"extra": extra})]
        others = [name for each in wanted if each.name == "headway" for other in each.extras for name in missing(other)]
        own = [each.name for each in wanted if each.name != "headway" and not _installed(each)]
        return sorted({*own, *others})

    return {name: missing(name) for name in metadata("headway").get_all("Provides-Extra") or []}


def _installed(requirement: Requirement) -> bool:
    try:
        return requirement.specifier.contains(version(requirement.name), prereleases=True)
    except ImportError:
        return False


def memory() -> str:
    """The machine's free and total memory, as text."""
    sizes = psutil.virtual_memory()
    return f"{sizes.available / 2**30:.1f} GiB free of {sizes.total / 2**30:.1f} GiB"


def self_test() -> str:
    """Train a tiny model to reverse words, and decode with it. Returns a report. Raises RuntimeError on failure."""
    words = [f"{a}{b}{c}" for a in "abcd" for b in "abcd" for c in "abcd"]
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "train.tsv").write_bytes("".join(f"{word}\t{word[::-1]}\n" for word in words).encode())
        stack = {"layers": 1}
        recipe = {
            "data": {"train": {"tsv": str(folder / "train.tsv")}},
            "vocabulary": {"kind": "char", "shared": True},
            "model": {"dim": 32, "feed_forward": 64, "heads": 2, "dropout": 0.0, "encoder": stack, "decoder": stack},
            "optimizer": {"learning_rate": 1e-2, "schedule": "linear", "warmup": 10},
            "training": {"updates": SELF_TEST_UPDATES, "batch_tokens": 512, "checkpoint_every": SELF_TEST_UPDATES},
        }
        with silenced():
            train(parse_recipe(recipe), folder / "run", trial=True)
        predictor = load(folder / "run")
        assert isinstance(predictor, SequencePredictor)
        outputs = [prediction.text for prediction in predictor.predict(words)]
    right = sum(text == word[::-1] for text, word in zip(outputs, words, strict=True))
    result = (
        f"{right} of {len(words)} words reversed after {SELF_TEST_UPDATES} updates, {time.monotonic() - began:.1f} s"
    )
    if right < 0.9 * len(words):
        raise RuntimeError(result)
    return result


def run_doctor(write: Callable[[str], None]) -> int:
    """Write the findings, one per line. Returns 0 if the self-test passed, 1 if not."""
    facts, threads, device = machine(), choose_threads(), pick_device()
    recipe = parse_recipe({"data": {"train": {"tsv": "-"}}, "model": PRESET, "training": {"updates": 1}})
    backend = suited_backend(device, facts["processor"])
    speed = measured_speed(recipe, device, backend)
    lines = {
        "headway": f"{VERSION} in {Path(__file__).parents[1]}",
        "python": f"{platform.python_version()} on {facts['system']}",
        "torch": f"{facts['torch']}, accelerator: {facts['accelerator'] or 'none'}",
        "processor": f"{facts['processor']}, {facts['cores']} cores, {facts['instruction_set']}",
        "threads": f"{threads.number} would be used now ({threads.reason})",
        "precision": f"{fitting_precision(speed)} suits training a {PRESET} (bf16 {compared(speed.median)})",
        "products": f"{backend} multiplies in float32",
        "memory": memory(),
    }
    for name, value in lines.items():
        write(f"{name:12}{value}")
    for extra, names in missing_by_extra().items():
        state = "complete" if not names else f"lacks {', '.join(names)}: pip install 'headway[{extra}]'"
        write(f"{'[' + extra + ']':12} {state}")
    try:
        write(f"{'self-test':12}passed: {self_test()}")
    except RuntimeError as error:
        write(f"{'self-test':12}FAILED: {error}")
        return 1
    return 0
