"""Runs as they are, without what only training needs: recipe, processors, weights in safetensors, manifest, scores."""

from __future__ import annotations

from pathlib import Path

from headway.device import pick_device
from headway.export.exporter import Answering
from headway.export.parity import answering_of
from headway.predictors.run import Run
from headway.runs.load import load_run
from headway.runs.packing import pack_run, unpack_run
from headway.storage import workspace


def copy_run(run: Run, folder: Path) -> None:
    """Copy what using a run's model needs, and nothing that tells of this machine: the run as its pack holds it."""
    assert run.path is not None
    with workspace(folder.parent) as place:
        pack_run(run.path, place / "run.zip")
        unpack_run(place / "run.zip", folder)


def open_copy(folder: Path) -> Answering:
    """The answers of a copy, loaded as every run is."""
    return answering_of(load_run(folder, pick_device("cpu"), allow_code=True))
