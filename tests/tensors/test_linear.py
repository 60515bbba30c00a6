"""The linear map for few rows: torch's own in training, equal to it to rounding otherwise."""

import pytest
import torch
from torch import nn

from headway.tensors.linear import Linear
from headway.tensors.products import FEW_ROWS, TransposedProduct

SHAPES = [(1, 6), (5, 6), (FEW_ROWS + 1, 6), (2, 3, 6), (4, 7, 6), (0, 6), (3, 1, 6), (6,)]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("outputs", [4, 9])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("least", [0, 1 << 20])
def test_equals_torch(shape, outputs, bias, least, monkeypatch):
    monkeypatch.setattr("headway.tensors.linear.LEAST_WEIGHTS", least)
    torch.manual_seed(1)
    layer = Linear(6, outputs, bias=bias).double()
    x = torch.randn(*shape, dtype=torch.float64)
    expected = nn.functional.linear(x, layer.weight, layer.bias)
    assert torch.equal(layer(x), expected)
    with torch.no_grad():
        assert torch.allclose(layer(x), expected, atol=1e-14)
        columns = torch.randn(6, *shape[:-1], dtype=torch.float64).movedim(0, -1)
        assert torch.allclose(layer(columns), nn.functional.linear(columns, layer.weight, layer.bias), atol=1e-14)


def test_few_rows_take_the_weight_once(monkeypatch):
    monkeypatch.setattr("headway.tensors.linear.LEAST_WEIGHTS", 0)
    calls = []
    monkeypatch.setattr(
        "headway.tensors.linear.TransposedProduct", lambda *given: calls.append(1) or TransposedProduct(*given)
    )
    layer = Linear(6, 9)
    layer(torch.randn(4, 6))
    with torch.no_grad():
        layer(torch.randn(FEW_ROWS + 1, 6))
        assert not calls
        layer(torch.randn(4, 2, 6))
    assert len(calls) == 1


def test_initialisation_and_names_are_those_of_torch():
    torch.manual_seed(2)
    ours, after = Linear(5, 3).state_dict(), torch.rand(1)
    torch.manual_seed(2)
    theirs, after_theirs = nn.Linear(5, 3).state_dict(), torch.rand(1)
    assert list(ours) == list(theirs)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert torch.equal(after, after_theirs)
