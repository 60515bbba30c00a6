"""Dependency attention: its biaffine heads equal their oracle, the other heads are attention."""

import pytest
import torch

from headway.core.errors import UserError
from headway.mixers import build_mixer
from headway.mixers.dependency_attention import DependencyAttention
from headway.tensors.masks import padding_mask
from tests import reference
from tests.mixers.test_attention import assert_same


def mixer_with(causal, **options):
    torch.manual_seed(2)
    mixer = DependencyAttention(6, causal, heads=3, **options).double()
    for parameter in mixer.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    return mixer, torch.randn(2, 4, 6, dtype=torch.float64, requires_grad=True), padding_mask(torch.tensor([4, 2]))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("options", [{}, {"dependency_heads": 2, "key_bias": True, "head_dim": 3, "value_dim": 2}])
def test_weights_equal_the_oracle(causal, options):
    mixer, x, mask = mixer_with(causal, **options)
    count = mixer.dependency_heads
    weights = mixer(x, mask, need_weights=True).weights
    slow = reference.dependency_weights(mixer, x, mask)
    assert torch.allclose(weights[:, :count], slow, atol=1e-12)
    assert torch.allclose(weights[:, count:], reference.attention(mixer, x, mask)[1][:, count:], atol=1e-12)
    upstream = torch.randn_like(slow)
    read = [each for name, each in mixer.named_parameters() if not name.startswith("out_")]
    fast_gradients = torch.autograd.grad((weights[:, :count] * upstream).sum(), [x, *read])
    slow_gradients = torch.autograd.grad((slow * upstream).sum(), [x, *read])
    for fast, expected in zip(fast_gradients, slow_gradients, strict=True):
        assert torch.allclose(fast, expected, atol=1e-11)


def test_with_the_identity_it_is_attention():
    mixer, x, mask = mixer_with(True, dependency_heads=3)
    mixer.bilinear.data.copy_(torch.eye(2, dtype=torch.float64))
    values, _ = mixer(x, mask)
    slow, _ = reference.attention(mixer, x, mask)
    assert torch.allclose(values, slow, atol=1e-12)
    upstream = torch.randn_like(values)
    fast_gradients, slow_gradients = (gradients_without_u(mixer, (each * upstream).sum(), x) for each in (values, slow))
    assert_same(fast_gradients, slow_gradients)


def gradients_without_u(mixer, loss, x):
    names = [name for name, _ in mixer.named_parameters() if name != "bilinear"]
    values = torch.autograd.grad(loss, [x, *(mixer.get_parameter(name) for name in names)])
    return dict(zip(["x", *names], values, strict=True))


@pytest.mark.parametrize(("count", "message"), [(0, "should be greater than 0"), (4, "between 1 and heads .3.")])
def test_as_many_dependency_heads_as_there_are_heads(count, message):
    with pytest.raises(UserError, match=f"{message}; received {count}"):
        build_mixer({"kind": "dependency", "heads": 3, "dependency_heads": count}, 6, False)
