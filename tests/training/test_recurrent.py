"""Hard attention goes on exactly where it was: its moving average is kept with the weights."""

from pathlib import Path

import pytest
from safetensors.torch import load_file

from headway.recipe import Recipe, parse_recipe
from headway.training.loop import train
from tests.conftest import REVERSAL, write_reversal
from tests.tiers import thinned

MODEL = {
    "kind": "recurrent", "dim": 8, "dropout": 0.2, "encoder": {"layers": 2, "hidden": 8},
    "decoder": {"layers": 2, "hidden": 8},
}  # fmt: skip


def recipe(folder: Path, attention: dict[str, object], updates: int) -> Recipe:
    data = {name: {"tsv": str(folder / f"{name}.tsv")} for name in ("train", "dev")}
    training = {"updates": updates, "batch_tokens": 128, "checkpoint_every": 2, "dev_metrics": ["exact_match"]}
    optimizer = {"learning_rate": 1e-2, "schedule": "constant", "warmup": 0}
    sections = {"data": data, "model": MODEL | {"attention": attention}, "training": training, "optimizer": optimizer}
    return parse_recipe(REVERSAL | sections)


@pytest.mark.parametrize(
    "attention", thinned([{"kind": "hard"}, {"kind": "monotonic", "timing": "bahdanau"}, {"kind": "soft"}], 3), ids=str
)
def test_resuming_changes_nothing(tmp_path: Path, attention: dict[str, object]) -> None:
    write_reversal(tmp_path)
    assert train(recipe(tmp_path, attention, 6), tmp_path / "whole") == 0
    assert train(recipe(tmp_path, attention, 4), tmp_path / "halves") == 0
    assert train(recipe(tmp_path, attention, 6), tmp_path / "halves", resume=True) == 0
    whole, halves = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "halves"))
    assert whole == halves
    weights = load_file(tmp_path / "whole" / "model.safetensors")
    assert ("reinforce.baseline" in weights) == (attention["kind"] != "soft")
    if "reinforce.baseline" in weights:
        checkpoints = sorted((tmp_path / "whole" / "checkpoints").glob("*/model.safetensors"))
        values = [float(load_file(each)["reinforce.baseline"]) for each in checkpoints]
        assert values == sorted(values)  # predictions get better
        assert values[0] != values[-1]
