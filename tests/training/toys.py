"""A small training run in this process."""

from pathlib import Path

import torch

from headway.recipe import Recipe, parse_recipe
from headway.training.loop import train
from tests.conftest import REVERSAL, write_reversal


def recipe(folder: Path, model: dict | None = None, optimizer: dict | None = None, **training) -> Recipe:
    if not (folder / "train.tsv").exists():
        write_reversal(folder)
    data = {name: {"tsv": str(folder / f"{name}.tsv")} for name in ("train", "dev")}
    base = {"updates": 6, "batch_tokens": 128, "checkpoint_every": 2, "dev_metrics": []}
    return parse_recipe(
        REVERSAL
        | {"data": data, "training": base | training, "model": REVERSAL["model"] | (model or {})}
        | {"optimizer": REVERSAL["optimizer"] | (optimizer or {})}
    )


def run(folder: Path, name: str = "run", resume: bool = False, **settings) -> Path:
    torch.set_num_threads(1)
    assert train(recipe(folder, **settings), folder / name, resume=resume) == 0
    return folder / name
