"""Products by oneDNN: the same values and gradients as torch's, and the choice between the two."""

import pytest
import torch
from torch.nn import functional as F

from headway.tensors import backends
from headway.tensors.backends import OneDnnLinear, has_onednn, linear, suited_backend
from headway.tensors.linear import Linear, use_backend

needs_onednn = pytest.mark.skipif(not has_onednn(), reason="this torch has no product of oneDNN")


@needs_onednn
@pytest.mark.parametrize(("inputs", "outputs"), [(12, 20), (20, 12), (7, 1)])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(5,), (2, 3), (1, 1), ()])
def test_values_and_gradients_are_those_of_the_equation(inputs: int, outputs: int, bias: bool, shape) -> None:
    torch.manual_seed(1)
    x, w, b = torch.randn(*shape, inputs), torch.randn(outputs, inputs), torch.randn(outputs) if bias else None
    given = [tensor.requires_grad_() for tensor in (x, w, b) if tensor is not None]
    exact = [tensor.detach().double().requires_grad_() for tensor in given]
    expected = F.linear(exact[0], exact[1], exact[2] if bias else None)
    y = linear(x, w, b, "onednn")
    weights = torch.randn_like(y)
    torch.testing.assert_close(y.double(), expected, rtol=1e-5, atol=1e-5)
    found = torch.autograd.grad(y, given, weights)
    for one, other in zip(found, torch.autograd.grad(expected, exact, weights.double()), strict=True):
        assert one.is_contiguous()
        torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-5)


@needs_onednn
def test_rows_that_do_not_lie_one_behind_the_other() -> None:
    torch.manual_seed(1)
    x, w = torch.randn(4, 6, 5).transpose(0, 1).requires_grad_(), torch.randn(3, 5, requires_grad=True)
    for own, torchs in zip(
        torch.autograd.grad(linear(x, w, None, "onednn").sum(), (x, w)),  # the sum's gradient is one number, expanded
        torch.autograd.grad(F.linear(x, w).sum(), (x, w)),
        strict=True,
    ):
        torch.testing.assert_close(own, torchs, rtol=1e-5, atol=1e-5)


@needs_onednn
def test_only_what_needs_a_gradient_gets_one(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = torch.randn(2, 3), torch.randn(4, 3, requires_grad=True)
    (gradient,) = torch.autograd.grad(linear(x, w, None, "onednn").sum(), w)
    torch.testing.assert_close(gradient, x.sum(0).expand(4, 3))
    monkeypatch.setattr("headway.tensors.backends._gradient_of_weight", None)  # would raise
    x, w = torch.randn(2, 3, requires_grad=True), torch.randn(4, 3)
    (gradient,) = torch.autograd.grad(linear(x, w, None, "onednn").sum(), x)
    torch.testing.assert_close(gradient, w.sum(0).expand(2, 3))


@pytest.mark.parametrize(
    ("x", "bf16"), [(torch.ones(2, 3, dtype=torch.float64), False), (torch.ones(0, 3), False), (torch.ones(2, 3), True)]
)
def test_other_types_and_no_rows_are_left_to_torch(monkeypatch: pytest.MonkeyPatch, x, bf16: bool) -> None:
    monkeypatch.setattr(OneDnnLinear, "apply", None)  # would raise
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        y = linear(x, torch.ones(4, 3, dtype=x.dtype), None, "onednn")
    assert y.shape == (len(x), 4)
    assert y.dtype == (torch.bfloat16 if bf16 else x.dtype)


@needs_onednn
def test_a_model_multiplies_by_the_library_that_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    called = []
    monkeypatch.setattr(OneDnnLinear, "apply", lambda *given: called.append(given) or F.linear(*given))
    model = torch.nn.Sequential(Linear(3, 4), torch.nn.ReLU(), Linear(4, 2))
    model(torch.ones(1, 3))
    assert not called
    use_backend(model, "onednn")
    model(torch.ones(1, 3))
    with torch.no_grad():
        model(torch.ones(1, 3))
    assert len(called) == 4
    use_backend(model, "torch")
    model(torch.ones(1, 3))
    assert len(called) == 4


@pytest.mark.parametrize(
    ("processor", "capability", "device", "here", "suited"),
    [
        ("AMD EPYC 9004", "AVX512", "cpu", True, "onednn"),
        ("AMD EPYC 9004", "AVX512", "cpu", False, "torch"),
        ("AMD EPYC 9004", "AVX512", "meta", True, "torch"),
        ("AMD EPYC 7003", "AVX2", "cpu", True, "torch"),
        ("Intel(R) Xeon(R)", "AVX512", "cpu", True, "torch"),
    ],
)
def test_the_library_is_the_machines(
    monkeypatch: pytest.MonkeyPatch, processor: str, capability: str, device: str, here: bool, suited: str
) -> None:
    monkeypatch.setattr(backends, "has_onednn", lambda: here)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    assert suited_backend(torch.device(device), processor) == suited
