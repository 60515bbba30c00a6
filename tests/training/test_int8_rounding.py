"""Training with products rounded to 8 bits: evaluation sees the rounding, weights do not, and resumption is exact."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import headway
from headway.core.errors import UserError
from headway.runs.run import open_run
from headway.tensors.int8_rounding import RANGE
from headway.tensors.linear import integer_matrices, round_to_int8
from headway.training.fixed_rounding import KEPT, FixedRounding
from headway.training.parallel import Parallel
from headway.training.session import dev_loss
from headway.training.start import open_session
from tests.conftest import Reversal

STILL = {"learning_rate": 1e-30, "schedule": "constant", "warmup": 0}  # no weight changes


def recipe(reversal: Reversal, **training: Any) -> dict[str, Any]:
    older = headway.load_recipe(str(reversal.run / "recipe.yaml"))
    settings = {"updates": 4, "checkpoint_every": 2, "batch_tokens": 64, "int8_rounding": True}
    return {
        "data": {name: getattr(older.data, name).model_dump(mode="json") for name in ("train", "dev")},
        "optimizer": {"learning_rate": 1e-3, "schedule": "constant", "warmup": 0},
        "training": {"from": str(reversal.run)} | settings | training,
    }


def test_it_resumes_exactly(reversal: Reversal, tmp_path: Path) -> None:
    headway.train(recipe(reversal, updates=2), tmp_path / "run")
    headway.train(recipe(reversal), tmp_path / "run", resume=True)
    whole = headway.train(recipe(reversal), tmp_path / "whole")
    plain = headway.train(recipe(reversal, int8_rounding=False), tmp_path / "plain")
    for file in ("model.safetensors", "checkpoints/update-00000004/optimizer.safetensors"):
        kept = (tmp_path / "whole" / file).read_bytes()
        assert (tmp_path / "run" / file).read_bytes() == kept
        assert (tmp_path / "plain" / file).read_bytes() != kept
    assert whole.complete
    assert plain.complete


def test_evaluation_is_rounded_and_weights_are_not(reversal: Reversal, tmp_path: Path) -> None:
    losses = {}
    for name, settings in {
        "plain": {"int8_rounding": False}, "rounded": {}, "average": {"average": {"kind": "ema"}},
    }.items():  # fmt: skip
        given = recipe(reversal, **settings) | {"optimizer": STILL}
        run = headway.train(given, tmp_path / name)
        losses[name] = next(line["dev_loss"] for line in run.history if "dev_loss" in line)
        weights = load_file(tmp_path / name / "model.safetensors")
        assert all(
            torch.equal(each, weights[key]) for key, each in load_file(reversal.run / "model.safetensors").items()
        )
    assert losses["average"] == losses["rounded"] != losses["plain"]
    model = open_run(tmp_path / "rounded").model
    with open_session(headway.load_recipe(given), tmp_path / "average", resume=True) as session:
        found = []
        for rounds in (False, True):
            if rounds:
                round_to_int8(model)
            found.append(dev_loss(model, session.corpora.dev.corpus, session.parallel))
    assert found == pytest.approx([losses["plain"], losses["rounded"]], rel=1e-5)
    assert abs(found[1] / found[0] - 1) > 1e-3


FIXED = {"int8_rounding": "fixed", "updates": 6, "checkpoint_every": 1, "keep_last": 6}


@pytest.fixture(scope="module")
def fixed(reversal: Reversal, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("fixed") / "run"
    headway.train(recipe(reversal, **FIXED), run)
    return run


def ranges(run: Path, update: int) -> dict[str, torch.Tensor]:
    weights = load_file(run / f"checkpoints/update-{update:08}/model.safetensors")
    return {name: each for name, each in weights.items() if f".{RANGE}.largest" in name}


def test_ranges_move_for_half_of_the_updates(fixed: Path) -> None:
    found = [ranges(fixed, update) for update in (1, 2, 3, 4, 6)]
    changed = [any(not torch.equal(one[name], other[name]) for name in one) for one, other in pairwise(found)]
    assert changed == [True, True, False, False]
    assert all(each > 0 for each in found[0].values())


@pytest.mark.parametrize("ends", [2, 5])
def test_a_run_with_fixed_ranges_resumes_exactly(
    reversal: Reversal, fixed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: int
) -> None:
    add = FixedRounding.add

    def killed(self: FixedRounding, update: int) -> None:
        if update == ends:
            raise KeyboardInterrupt
        add(self, update)

    with monkeypatch.context() as patched:
        patched.setattr(FixedRounding, "add", killed)
        with pytest.raises(KeyboardInterrupt):
            headway.train(recipe(reversal, **FIXED), tmp_path / "run")
    headway.train(recipe(reversal, **FIXED), tmp_path / "run", resume=True)
    for file in ("model.safetensors", *(f"checkpoints/update-0000000{update}/model.safetensors" for update in (3, 6))):
        assert (tmp_path / "run" / file).read_bytes() == (fixed / file).read_bytes(), file


def test_a_range_follows_the_largest_input_and_ignores_what_is_not_finite(reversal: Reversal) -> None:
    layer = torch.nn.Sequential(headway.load(reversal.run).runs[0].model.projection)
    round_to_int8(layer, fixed=True)
    config = headway.load_recipe(recipe(reversal, **FIXED)).training
    mover, width = FixedRounding(layer.train(), Parallel(0, 1, torch.device("cpu"), config), 0), layer[0].in_features
    found = []
    for update, value in enumerate((2.0, 1.0, float("nan"), 9.0), start=1):
        layer(torch.full((2, width), value))
        mover.add(update)
        found.append(layer[0].input_range.largest.item())
    assert found == pytest.approx([2.0, 2.0 * KEPT, 2.0 * KEPT, 2.0 * KEPT])


def test_a_run_with_fixed_ranges_is_its_integers(reversal: Reversal, fixed: Path, tmp_path: Path) -> None:
    stored = open_run(fixed)
    for name, (whole, factors, of_inputs) in integer_matrices(stored.model).items():
        assert of_inputs is not None
        torch.testing.assert_close(stored.weights()[name], whole / factors[:, None], rtol=1e-6, atol=0)
    words, said = list(reversal.words[:12]), {}
    for precision in (None, "float32"):
        loaded = headway.load(fixed, precision=precision)
        said[precision] = [each.log_probabilities for each in loaded.predict(words)]
    assert said[None] != said["float32"]
    with open_session(headway.load_recipe(recipe(reversal, **FIXED)), fixed, resume=True) as session:
        (logged,) = [line["dev_loss"] for line in stored.kept_evaluations()]
        assert dev_loss(stored.model, session.corpora.dev.corpus, session.parallel) == pytest.approx(logged, rel=1e-5)
    after = {"training": {"from": str(fixed), "updates": 1, "checkpoint_every": 1, "batch_tokens": 64}}
    plain = headway.train(recipe(reversal) | after, tmp_path / "plain")
    assert not any(RANGE in name for name in load_file(plain.run / "model.safetensors"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"updates": None, "epochs": 1}, "fixed needs updates"),
        ({"compile": True}, "give int8_rounding: fixed, or else compile or capture"),
        ({"int8_rounding": "often"}, r"training\.int8_rounding"),
    ],
)
def test_fixed_ranges_that_could_not_move_are_refused(
    reversal: Reversal, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        headway.train(recipe(reversal, **FIXED | changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_end_that_would_have_frozen_ranges_later_is_refused(reversal: Reversal, fixed: Path) -> None:
    with pytest.raises(UserError, match="would have moved the ranges"):
        headway.train(recipe(reversal, **FIXED | {"updates": 20}), fixed, resume=True)


def test_what_would_not_be_rounded_is_refused(reversal: Reversal, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="give lora or int8_rounding"):
        headway.train(recipe(reversal, lora={"rank": 2}), tmp_path / "run")
    tree = recipe(reversal) | {"model": {"kind": "recurrent", "dim": 8}}
    del tree["training"]["from"]
    with pytest.raises(UserError, match=r"training\.int8_rounding: products are rounded in Transformers alone"):
        headway.train(tree, tmp_path / "run")
    assert not (tmp_path / "run").exists()
