"""The costs of a run."""

from pathlib import Path

import pytest

from headway.comparison.run_results import LENGTH, result_of_run
from headway.runs.inspect.parameters import parameters_of
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
