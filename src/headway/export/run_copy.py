"""Runs as they are, without what only training needs: recipe, processors, weights in safetensors, manifest, scores."""

from __future__ import annotations

import shutil
from pathlib import Path

from headway.device import pick_device
from headway.export.exporter import Answering
from headway.export.parity import answering_of
from headway.predictors.run import Run
from headway.runs.load import load_run
from headway.runs.run_folder import RunFolder


def copy_run(run: Run, folder: Path) -> None:
    """Copy the parts of a run that using its model needs."""
    assert run.path is not None
    folder.mkdir()
    old, new = RunFolder(run.path), RunFolder(folder)
    for source, target in (
        (old.recipe_file, new.recipe_file),
        (old.weights, new.weights),
        (old.manifest_file, new.manifest_file),
        (old.metrics, new.metrics),
    ):
        if source.is_file():
            shutil.copyfile(source, target)
    shutil.copytree(old.vocabulary, new.vocabulary)


def open_copy(folder: Path) -> Answering:
    """The answers of a copy, loaded as every run is."""
    return answering_of(load_run(folder, pick_device("cpu"), allow_code=True))
