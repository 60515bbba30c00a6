"""Toy runs that are trained once: all processes of tests, and later calls on the same source, share them."""

import hashlib
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from headway.cli import main
from headway.core.storage import locked

SOURCE = Path(__file__).parents[1] / "src"
COMPUTES = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA")  # runs differ by the numbers that processors compute
DAY = 86400


def shared_run(cache: Path, name: str, write: Callable[[Path], Path]) -> Path:
    """A folder with the recipe and data that `write` makes there and `run`, trained by the command line.

    It has the hash of the source, of the code that calls and of what numbers depend on in its name. It counts once it
    is whole. Those of older source go after a day.
    """
    known = hashlib.sha256(f"{torch.__version__} {[os.environ.get(each) for each in COMPUTES]}".encode())
    for path in (*sorted(SOURCE.rglob("*.py")), Path(write.__code__.co_filename)):
        known.update(path.read_bytes())
    folder = cache / f"{name}-{known.hexdigest()[:16]}"
    whole = folder / "whole"
    with locked(cache / f"{name}.lock", wait=240):
        if not whole.exists():
            for old in cache.glob(f"{name}-*"):
                if old == folder or time.time() - old.stat().st_mtime > DAY:
                    shutil.rmtree(old)
            folder.mkdir()
            _train(write(folder), folder / "run")
            whole.touch()
    return folder


def _train(recipe: Path, output: Path) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with pytest.raises(SystemExit) as ended:
            main(["train", str(recipe), "--output", str(output)])
    finally:
        torch.set_num_threads(threads)
    assert ended.value.code == 0
