"""Attention equals its oracle, in values, weights and every gradient."""

import pytest
import torch
from torch.nn import functional as F

from headway.mixers.attention import Attention, attend
from headway.tensors.masks import padding_mask
from tests import reference
from tests.mixers.oracles import assert_same, gradients


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("head_dim", [None, 5])
def test_self_attention_equals_oracle(causal, head_dim):
    torch.manual_seed(2)
    mixer = Attention(6, causal, heads=3, head_dim=head_dim).double()
    for parameter in mixer.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    x = torch.randn(2, 4, 6, dtype=torch.float64, requires_grad=True)
    mask = padding_mask(torch.tensor([4, 2]))
    values, weights = mixer(x, mask, need_weights=True)
    slow_values, slow_weights = reference.attention(mixer, x, mask)
    assert torch.allclose(values, slow_values, atol=1e-12)
    assert torch.allclose(weights, slow_weights, atol=1e-12)
    upstream = torch.randn_like(values)
    assert_same(gradients(mixer, (values * upstream).sum(), x), gradients(mixer, (slow_values * upstream).sum(), x))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_explicit_and_fused_attention_agree(monkeypatch, causal, padded):
    torch.manual_seed(5)
    query, key, value = torch.randn(3, 2, 3, 7, 4, dtype=torch.float64)
    allowed = padding_mask(torch.tensor([7, 5]))[:, None, None, :] if padded else None
    explicit, _ = attend(query, key, value, allowed, causal=causal)
    monkeypatch.setattr("headway.mixers.attention.MOST_EXPLICIT_WEIGHTS", 0)
    called = []
    fused_kernel = F.scaled_dot_product_attention
    monkeypatch.setattr(F, "scaled_dot_product_attention", lambda *a, **k: called.append(1) or fused_kernel(*a, **k))
    fused, _ = attend(query, key, value, allowed, causal=causal)
    assert called
    assert torch.allclose(explicit, fused, atol=1e-12)


def test_heads_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"heads \(4\) do not divide dim \(6\)"):
        Attention(6, False, heads=4)


def test_attention_dropout_drops_only_while_training():
    torch.manual_seed(6)
    mixer = Attention(6, False, heads=2, dropout=0.5)
    x = torch.randn(2, 5, 6)
    assert not torch.equal(mixer(x, None).values, mixer(x, None).values)
    mixer.eval()
    assert torch.equal(mixer(x, None).values, mixer(x, None).values)
