"""The quick dropout is dropout: right share, right scale, right gradient, reproducible."""

import pytest
import torch

from headway.tensors.dropout import Dropout, dropout, keep_mask
from tests.rounding import rounding


@pytest.mark.parametrize("probability", [0.1, 0.5, 0.9])
def test_share_of_kept_elements(probability):
    torch.manual_seed(1)
    kept = keep_mask(torch.Size([1000, 1001]), probability).double()
    assert abs(kept.mean().item() - (1 - probability)) < 4 * (probability * (1 - probability) / 1.001e6) ** 0.5 + 1e-5
    neighbours = (kept[:, 1:] - kept.mean()) * (kept[:, :-1] - kept.mean())
    assert abs(neighbours.mean().item()) < 4 * kept.var().item() / 1000


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_kept_elements_are_scaled_and_so_is_the_gradient(dtype):
    torch.manual_seed(2)
    x = torch.randn(7, 11, 3, dtype=dtype, requires_grad=True)
    y = dropout(x, 0.25)
    kept = y != 0
    assert 0 < kept.float().mean() < 1
    assert torch.allclose(y[kept], x[kept] / 0.75, rtol=rounding(dtype, 4))
    upstream = torch.randn_like(y)
    y.backward(upstream)
    assert torch.allclose(x.grad, torch.where(kept, upstream / 0.75, 0), rtol=rounding(dtype, 4))


def test_the_seed_decides():
    x = torch.ones(50)
    draws = [torch.manual_seed(seed) and dropout(x, 0.5) for seed in (3, 3, 4)]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def test_no_dropout_when_evaluating():
    layer, x = Dropout(0.5), torch.ones(50)
    assert (layer(x) == 0).any()
    assert layer.eval()(x) is x
