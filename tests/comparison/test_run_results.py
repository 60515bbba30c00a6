"""The costs and the curve of a run."""

import json
from pathlib import Path

import pytest

from headway.comparison.cells import read_result, write_result
from headway.comparison.run_results import LENGTH, learning_curve, result_of_run
from headway.runs.inspect.parameters import parameters_of
from headway.runs.run_folder import RunFolder
from headway.runs.training.loop import train
from headway.tensors import linear
from headway.tensors.products import OneDnnProduct
from tests.runs.training import toys


def test_flops_are_those_of_the_model_however_its_products_are_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The counter of FLOPs does not know the products of weights that were put in another order."""
    run = toys.run(tmp_path, updates=1)
    monkeypatch.setattr(linear, "LEAST_PREPARED", 1)
    monkeypatch.setattr(linear, "_product", lambda layer, precision: OneDnnProduct(layer.weight, layer.bias))
    costs = result_of_run(run, "variant", 1, []).costs
    assert costs.flops_per_token == parameters_of(run, (), None, LENGTH).flops_per_token
    assert costs.parameters is not None
    assert costs.flops_per_token > costs.parameters  # two operations for most weights


@pytest.mark.parametrize("positions", [LENGTH - 2, LENGTH])
def test_a_model_that_cannot_read_so_many_tokens_has_no_flops(tmp_path: Path, positions: int) -> None:
    recipe = toys.recipe(tmp_path, model={"position": "learned", "max_position": positions}, updates=1)
    recipe = recipe.model_copy(update={"data": recipe.data.model_copy(update={"max_length": 20})})
    assert train(recipe, tmp_path / "run") == 0
    costs = result_of_run(tmp_path / "run", "variant", 1, []).costs
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
    result = result_of_run(run, "variant", 1, [])
    assert [(point.update, point.seconds, point.scores) for point in result.curve] == [
        (2, 3.0, {"loss": 4.5}), (3, 3.0, {"loss": 4.0, "chrf": 10.0}),
    ]  # fmt: skip
    write_result(tmp_path / "cell.json", result, {})
    assert read_result(tmp_path / "cell.json", {}) == result


def test_the_time_of_an_accelerator_is_that_of_the_run_and_not_of_what_decodes(tmp_path: Path) -> None:
    run = toys.run(tmp_path, updates=1)
    folder = RunFolder(run)
    assert result_of_run(run, "variant", 1, []).costs.gpu_seconds is None
    manifest = folder.read_manifest()
    folder.write_manifest({"machine": manifest["machine"] | {"accelerator": "cuda"}, "seconds": 5.0})
    assert result_of_run(run, "variant", 1, []).costs.gpu_seconds == 5.0
    evaluations = [line for line in map(json.loads, folder.metrics.read_text().splitlines()) if "dev_loss" in line]
    assert [point.seconds for point in learning_curve(run)] == [line["seconds"] for line in evaluations]
