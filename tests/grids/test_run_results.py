"""The costs and the curve of a run."""

import json
from pathlib import Path
from typing import Any

import pytest

import headway
from headway.comparison.cells import CellName, learning_curve, read_result, write_result
from headway.comparison.options import CompareOptions
from headway.core.errors import UserError
from headway.grids.compare import _result_of_run
from headway.grids.run import LENGTH, result_of_run
from headway.inspect.parameters import parameters_of
from headway.metrics import build_metric
from headway.runs.run_folder import RunFolder
from headway.tensors import linear
from headway.tensors.linear import OneDnnProduct
from headway.training.loop import train
from tests.conftest import Reversal
from tests.metrics.scored import score_files
from tests.training import toys


def test_flops_are_those_of_the_model_however_its_products_are_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The counter of FLOPs does not know the products of weights that were put in another order."""
    run = toys.run(tmp_path, updates=1)
    monkeypatch.setattr(linear, "LEAST_PREPARED", 1)
    monkeypatch.setattr(linear, "_product", lambda layer, precision: OneDnnProduct(layer.weight, layer.bias))
    costs = result_of_run(CellName("variant", 1, run), []).costs
    assert costs.flops_per_token == parameters_of(run, (), None, LENGTH).flops_per_token
    assert costs.parameters is not None
    assert costs.flops_per_token > costs.parameters  # two operations for most weights


@pytest.mark.parametrize("positions", [LENGTH - 2, LENGTH])
def test_a_model_that_cannot_read_so_many_tokens_has_no_flops(tmp_path: Path, positions: int) -> None:
    recipe = toys.recipe(tmp_path, model={"position": "learned", "max_position": positions}, updates=1)
    recipe = recipe.model_copy(update={"data": recipe.data.model_copy(update={"max_length": 20})})
    assert train(recipe, tmp_path / "run") == 0
    costs = result_of_run(CellName("variant", 1, tmp_path / "run"), []).costs
    assert costs.parameters is not None
    assert (costs.flops_per_token is None, costs.decoding_state is None) == (positions < LENGTH, positions < LENGTH)


def test_evaluations_that_are_not_finite_are_left_out_of_the_curve(tmp_path: Path) -> None:
    run = toys.run(tmp_path, updates=1)
    times = {"epoch": 0, "seconds": 2.0, "cpu_seconds": 3.0}
    evaluations = [
        {"update": 1, "dev_loss": None, "dev": {}},
        {"update": 2, "dev_loss": 4.5, "dev": {}},
        {"update": 3, "dev_loss": 4.0, "dev": {"chrf": 10.0}},
    ]
    RunFolder(run).metrics.write_text("".join(f"{json.dumps(line | times)}\n" for line in evaluations))
    result = result_of_run(CellName("variant", 1, run), [])
    assert [(point.update, point.seconds, point.scores) for point in result.curve] == [
        (2, 3.0, {"loss": 4.5}), (3, 3.0, {"loss": 4.0, "chrf": 10.0}),
    ]  # fmt: skip
    write_result(tmp_path / "cell.json", result, {})
    assert read_result(tmp_path / "cell.json", {}) == result


def test_a_result_is_kept_for_its_own_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, read = RunFolder(toys.run(tmp_path, updates=1)), list[CellName]()
    made = result_of_run(CellName("variant", 1, folder.path), [])
    monkeypatch.setattr("headway.grids.run.result_of_run", lambda name, tests, **more: read.append(name) or made)
    name, options = CellName("variant", 1, folder.path), CompareOptions(output=tmp_path / "compared")
    for _ in range(2):
        _result_of_run(name, [], options)
    assert len(read) == 1
    folder.write_manifest({"model_sha256": "of others"})
    _result_of_run(name, [], options)
    assert len(read) == 2


def test_the_time_of_an_accelerator_is_that_of_the_run_and_not_of_what_decodes(tmp_path: Path) -> None:
    run = toys.run(tmp_path, updates=1)
    folder = RunFolder(run)
    assert result_of_run(CellName("variant", 1, run), []).costs.gpu_seconds is None
    manifest = folder.read_manifest()
    folder.write_manifest({"machine": manifest["machine"] | {"accelerator": "cuda"}, "seconds": 5.0})
    assert result_of_run(CellName("variant", 1, run), []).costs.gpu_seconds == 5.0
    evaluations = [line for line in map(json.loads, folder.metrics.read_text().splitlines()) if "dev_loss" in line]
    assert [point.seconds for point in learning_curve(run)] == [line["seconds"] for line in evaluations]


def test_scores_are_those_of_files(reversal: Reversal, tmp_path: Path) -> None:
    pairs = [("abcd", "dcba"), ("dab", "bad"), ("ccab", "baac"), ("a", "a")]
    (tmp_path / "test.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairs), encoding="utf-8")
    report = headway.evaluate(reversal.run, {"tsv": tmp_path / "test.tsv"}, ["exact_match", "chrf"], beam=1)
    outputs = [each.text for each in headway.load(reversal.run).predict([source for source, _ in pairs], beam=1)]
    for name, lines in (("said", outputs), ("gold", [target for _, target in pairs])):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    metrics = [build_metric("exact_match"), build_metric("chrf")]
    expected = score_files(metrics, [tmp_path / "said"], [tmp_path / "gold"])
    (said,), (scored,) = report.variants, expected.variants
    assert said.scores == scored.scores
    assert said.name == str(reversal.run)


def test_dev_and_its_metrics_are_the_default(reversal: Reversal) -> None:
    model = headway.load(reversal.run)
    report = headway.evaluate(model)
    dev = (reversal.recipe.parent / "dev.tsv").read_text(encoding="utf-8").splitlines()
    assert len(report.tests[0]) == len(dev)
    again = headway.evaluate(reversal.run, metrics="exact_match")
    assert report.variants[0].scores == again.variants[0].scores
    assert "exact_match" in report.text()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"corpus": {"tsv": "nowhere.tsv"}}, r"^corpus.*nowhere\.tsv"),
        ({"corpus": {"tvs": "x"}}, "^corpus"),
        ({"metrics": "accuracy"}, "^metrics: this metric scores labels"),
        ({"metrics": "blue"}, "unknown metric; did you mean 'bleu'"),
        ({"beem": 1}, "^beem: unknown option of predict"),
    ],
)
def test_mistakes_are_named(reversal: Reversal, given: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        headway.evaluate(reversal.run, **given)
