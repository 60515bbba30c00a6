"""A recording in a corpus: the check of data and training keep it, or count it, or name it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from headway.core.errors import UserError
from headway.processing.audio.audio_processor import AudioProcessor
from headway.processing.audio.features import AudioConfig
from headway.recipe import Recipe, parse_recipe
from headway.runs.load import load
from headway.tasks import build_task
from headway.training.loop import train
from tests.processing.audio.tones import write_corpus
from tests.runs.old_runs import copied

SENTENCES = ["low", "mid high", "high low", "mid"]
OLD = "speech_recognition"
_shared: dict[str, Any] = {}


def prepare(folder: Path) -> None:
    """Write sound recordings and the recipe, and load a trained run."""
    case = copied(OLD, folder / OLD)
    tree = yaml.safe_load((case.folder / "recipe.yaml").read_text(encoding="utf-8"))
    training = {"updates": 2, "batch_sentences": 3, "checkpoint_every": 2, "precision": "float32"}
    _shared.update(
        tree=tree | {"training": training}, run=load(case.run, device="cpu"),
        manifest=write_corpus(folder / "corpus", SENTENCES), cache=folder / "cache",
    )  # fmt: skip
    _shared["run"].predict([_shared["manifest"].parent / "train" / "0.wav"])
    train(_recipe(_shared["manifest"], "error"), folder / "warm")


def _recipe(manifest: Path, broken: str) -> Recipe:
    data = {"train": {"tsv": str(manifest)}, "audio": _shared["tree"]["data"]["audio"] | {"broken": broken}}
    return parse_recipe(_shared["tree"] | {"data": data})


def check_corpus(path: Path, *, train: bool) -> None:
    """A corpus of sound recordings and one more."""
    folder = path.parent / "corpus"
    shutil.copytree(_shared["manifest"].parent, folder)
    manifest = folder / "train.tsv"
    with manifest.open("a", encoding="utf-8") as file:
        file.write(f"{path}\tlow\n")
    usable = _is_usable(path)
    lenient = _recipe(manifest, "skip")
    check = build_task(lenient.task).check_data(lenient)
    json.dumps(check.to_json())
    (report,) = check.reports
    values = report.to_json()
    assert values["read"] == len(SENTENCES) + 1
    assert values["kept"] + sum(values["dropped"].values()) == values["read"], "recordings are lost"
    assert len(check.broken["data.train"]) == (not usable), "what cannot be read is not what is counted"
    _check_strict(manifest, usable=usable)
    _check_prediction(path, usable=usable)
    if train:
        from headway.training import loop

        assert loop.train(lenient, path.parent / "run") == 0
        assert (path.parent / "run" / "model.safetensors").is_file()


def _is_usable(path: Path) -> bool:
    config = AudioConfig.model_validate(_shared["tree"]["data"]["audio"])
    try:
        frames = AudioProcessor(config).raw_frames(path)
    except UserError:
        return False
    assert np.isfinite(frames).all(), "frames are no numbers"
    return True


def _check_strict(manifest: Path, *, usable: bool) -> None:
    """The check names what training would end at."""
    strict = _recipe(manifest, "error")
    try:
        build_task(strict.task).check_data(strict).refuse()
        refused = False
    except UserError:
        refused = True
    assert refused != usable, "the check and the reader do not agree"


def _check_prediction(path: Path, *, usable: bool) -> None:
    """An output each, empty where the recording cannot be read."""
    good = _shared["manifest"].parent / "train" / "0.wav"
    outputs = _shared["run"].predict([good, path, good], skip_broken=True, truncate=True)
    assert len(outputs) == 3
    assert (outputs[1].problem is None) == usable, "prediction and the reader do not agree"
    assert outputs[0].text == outputs[2].text
