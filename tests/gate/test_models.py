"""Proposals that are trained, and run folders, on sets that metrics score."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from headway.core.errors import UserError
from headway.gate.judge import begin, judging
from headway.gate.ledger import Ledger
from headway.gate.loop import Loop
from headway.gate.options import GateOptions, NewOptions
from tests.conftest import Command
from tests.grids.grids import write_grid


def written(folder: Path) -> Path:
    """A recipe of a few updates, and three sets of reversed words; the path of a ledger."""
    write_grid(folder)
    lines = (folder / "train.tsv").read_text().splitlines(keepends=True)
    (folder / "sealed.tsv").write_text("".join(lines[:20]))
    (folder / "large.tsv").write_text("".join(f"{'ab' * (number % 5)}c{number:03}\tx\n" for number in range(401)))
    return folder / "loop.jsonl"


def new(folder: Path, **options: Any) -> Path:
    sets = {"public": str(folder / "test.tsv"), "sealed": str(folder / "sealed.tsv"), "metric": "chrf"}
    begin(folder / "loop.jsonl", NewOptions(**{"baseline": (str(folder / "base.yaml"),), **sets, **options}))
    return folder / "loop.jsonl"


def propose(path: Path, *words: str, changes: tuple[str, ...] = (), **options: Any) -> dict[str, Any]:
    with judging(path, GateOptions(propose=words, workers=2, **options)) as judge:
        return judge.propose(changes)


def test_a_sealed_set_is_nobody_elses(tmp_path: Path) -> None:
    written(tmp_path)
    with pytest.raises(UserError, match="this file is in the data of base, and would not be sealed"):
        new(tmp_path, sealed=str(tmp_path / "dev.tsv"))
    with pytest.raises(UserError, match="this file is in the public set, and would not be sealed"):
        new(tmp_path, sealed=str(tmp_path / "test.tsv"))
    with pytest.raises(UserError, match="has 400 segments or more"):
        new(tmp_path, sealed=None)
    assert not (tmp_path / "loop.jsonl").exists()
    path = new(tmp_path)
    base = yaml.safe_load((tmp_path / "base.yaml").read_text())
    base["data"]["train"] = {"tsv": "sealed.tsv"}
    (tmp_path / "cheats.yaml").write_text(yaml.safe_dump(base))
    with pytest.raises(UserError, match="this file is in the data of cheats"):
        propose(path, str(tmp_path / "cheats.yaml"))


def test_a_set_is_halved(tmp_path: Path) -> None:
    written(tmp_path)
    path = new(tmp_path, public=str(tmp_path / "large.tsv"), sealed=None, not_worse=("exact_match=1",))
    settings = Loop(Ledger(path)).settings
    assert settings.metrics == ("chrf", "exact_match")
    assert sum(settings.sizes.values()) == 401
    assert 150 < settings.sizes["public"] < 250


def test_a_set_that_changed_ends_the_call(tmp_path: Path) -> None:
    written(tmp_path)
    path = new(tmp_path)
    (tmp_path / "sealed.tsv").write_text("ab\tba\nabc\tcba\n")
    with pytest.raises(UserError, match="the sealed set has changed"):
        propose(path, str(tmp_path / "base.yaml"))


def test_copies_of_a_recipe_are_not_trained(tmp_path: Path) -> None:
    written(tmp_path)
    path = new(tmp_path)
    (tmp_path / "copy.yaml").write_text((tmp_path / "base.yaml").read_text())
    answer = propose(path, str(tmp_path / "copy.yaml"), changes=("training.seed=7",))
    assert (answer["word"], answer["runs"]) == ("same", 0)
    with pytest.raises(UserError, match="this name had another content"):
        propose(path, "copy", changes=("optimizer.learning_rate=0.5",))


@pytest.mark.slow
def test_recipes_are_trained_and_runs_are_decoded(tmp_path: Path) -> None:
    written(tmp_path)
    path = new(tmp_path, preset="small", least=-200)  # any change is kept
    answer = propose(path, "other", changes=("model.encoder.mixer={kind: local, n: 3}",))
    assert (answer["word"], answer["runs"]) == ("keep", 4 + 2 + 8 + 2)
    cells = path.with_name("loop.jsonl.cells") / "cells"
    assert len([cell for cell in cells.iterdir() if not cell.name.startswith(".")]) == 16
    runs = tuple(f"again:{seed}={cells}/other-{seed}" for seed in (1, 2))
    assert propose(path, *runs)["word"] == "same"
    with pytest.raises(UserError, match="two seeds have the same weights"):
        propose(path, f"twice:1={cells}/other-1", f"twice:2={cells}/other-1")


DATES = """
task: translation
data: {folder: data, train: {tsv: train.tsv}, dev: {tsv: dev.tsv}}
vocabulary: {kind: char, shared: true}
model: {dim: 16, feed_forward: 32, heads: 2, dropout: 0.0, encoder: {layers: 1}, decoder: {layers: 1}}
optimizer: {learning_rate: 1.0e-5, schedule: linear, warmup: 2}
training: {updates: 40, batch_tokens: 400, checkpoint_every: 40, dev_metrics: [chrf], precision: float32}
decoding: {beam: 1, max_length_ratio: 0, max_length_offset: 12}
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_loop_of_models_on_dates_is_closed(
    tmp_path: Path, run_headway: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the first line of the ledger to the comparison on a third set, at the terminal."""
    monkeypatch.chdir(tmp_path)
    Path("base.yaml").write_text(DATES)
    sizes = ("train_size=200", "dev_size=20", "test_size=30")
    for folder, seed in (("data", 1), ("other", 2)):
        assert run_headway("data", "make", "dates", "--output", folder, f"seed={seed}", *sizes).code == 0
    sets = ("--public", "data/test-unseen-pairs.tsv", "--sealed", "data/test-unseen-dates.tsv", "--metric", "chrf")
    begun = run_headway("gate", "new", "loop.jsonl", "--baseline", "base.yaml", *sets, "--preset", "small")
    assert begun.code == 0, begun.err
    kept = run_headway("gate", "loop.jsonl", "optimizer.learning_rate=1e-2", "--propose", "faster", "--workers", "2")
    assert (kept.code, json.loads(kept.out)["word"]) == (0, "keep"), kept.err
    checked = run_headway("gate", "check", "loop.jsonl")
    assert (checked.code, json.loads(checked.out)["kept"]) == (0, 1)
    unsealed = run_headway("gate", "close", "loop.jsonl", "--test", "data/test-unseen-dates.tsv")
    assert (unsealed.code, "this file is in the loop" in unsealed.err) == (2, True)
    closed = run_headway("gate", "close", "loop.jsonl", "--test", "other/test-unseen-dates.tsv", "--workers", "2")
    assert closed.code == 0, closed.err
    answer = json.loads(closed.out)
    assert (answer["first"], answer["last"], answer["seeds"]) == ("base", "faster", 8)
    assert answer["pairs"][0]["verdict"] == "better"
    late = run_headway("gate", "loop.jsonl", "optimizer.learning_rate=3e-2", "--propose", "late")
    assert (late.code, "this loop is closed" in late.err) == (2, True)
