"""Depthwise convolution: the sums of its equation, in values and gradients."""

import pytest
import torch

from headway.tensors.depthwise import depthwise


@pytest.mark.parametrize("width", [1, 3, 4])
def test_equals_the_sum(width):
    torch.manual_seed(2)
    padded = torch.randn(2, 5 + width - 1, 3, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(3, width, dtype=torch.float64, requires_grad=True)
    values = depthwise(padded, weight)
    slow = torch.stack(
        [
            torch.stack(
                [torch.stack([(padded[b, t : t + width, c] * weight[c]).sum() for c in range(3)]) for t in range(5)]
            )
            for b in range(2)
        ]
    )
    assert torch.allclose(values, slow, atol=1e-12)
    upstream = torch.randn_like(slow)
    fast = torch.autograd.grad((values * upstream).sum(), (padded, weight))
    for one, other in zip(fast, torch.autograd.grad((slow * upstream).sum(), (padded, weight)), strict=True):
        assert torch.allclose(one, other, atol=1e-12)
