"""Smoothed cross-entropy equals its oracle and torch's own."""

import pytest
import torch
from torch.nn import functional as F

from headway.losses.cross_entropy import smoothed_cross_entropy
from tests import reference
from tests.rounding import rounding


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.4])
def test_equals_oracle_and_torch(smoothing, monkeypatch):
    monkeypatch.setattr("headway.losses.cross_entropy.CHUNK_ELEMENTS", 12)  # several chunks of two rows
    torch.manual_seed(1)
    logits = torch.randn(5, 6, dtype=torch.float64, requires_grad=True)
    targets, mask = torch.randint(0, 6, (5,)), torch.tensor([True, True, False, True, True])
    fast, unsmoothed = smoothed_cross_entropy(logits, targets, mask, smoothing)
    slow = reference.smoothed_cross_entropy(logits, targets, mask, smoothing)
    theirs = F.cross_entropy(logits[mask], targets[mask], label_smoothing=smoothing, reduction="sum")
    assert torch.allclose(fast.double(), slow, rtol=rounding())
    assert torch.allclose(slow, theirs)
    plain = reference.smoothed_cross_entropy(logits, targets, mask, 0.0)
    assert torch.allclose(unsmoothed.double(), plain, rtol=rounding())
    assert not unsmoothed.requires_grad
    (fast_gradient,), (slow_gradient,) = (torch.autograd.grad(3 * loss, logits) for loss in (fast, slow))
    assert torch.allclose(fast_gradient, slow_gradient, atol=rounding(steps=10))
    assert (fast_gradient[2] == 0).all()


def test_a_second_derivative_is_refused():
    logits = torch.randn(2, 3, requires_grad=True)
    loss, _ = smoothed_cross_entropy(logits, torch.tensor([1, 2]), torch.ones(2, dtype=torch.bool), 0.1)
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(loss, logits, create_graph=True)


def test_large_logits_stay_finite():
    logits = torch.tensor([[1e4, -1e4, 0.0]], requires_grad=True)
    loss, _ = smoothed_cross_entropy(logits, torch.tensor([1]), torch.tensor([True]), 0.1)
    loss.backward()
    assert loss.isfinite()
    assert logits.grad.isfinite().all()
