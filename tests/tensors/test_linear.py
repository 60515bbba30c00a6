"""Linear maps: torch's own in training, equal to it to the rounding of their library or precision otherwise."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from headway.tensors import linear as module
from headway.tensors.linear import (
    FEW_ROWS,
    KINDS,
    Int8Product,
    Linear,
    OneDnnLinear,
    PlainProduct,
    Product,
    ProductTrial,
    TransposedProduct,
    exact_steps,
    has_onednn,
    linear,
    prepare,
    suited_backend,
    trial,
    use_backend,
)

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


ALL = [(precision, kind) for precision, kinds in KINDS.items() for kind in kinds]
# The largest error of a product as a share of the largest value: 24, 8 and 6 bits of inputs and weights.
ERRORS = {"float32": 1e-6, "bf16": 0.02, "int8": 0.04}


def built(kind: type[Product], weight: torch.Tensor, bias: torch.Tensor | None) -> Product:
    """A product of this kind; skips the test where this torch or processor has none."""
    try:
        return kind(weight, bias)
    except (RuntimeError, AttributeError):
        pytest.skip(f"{kind.__name__} is not built for this machine")


@pytest.mark.parametrize(("precision", "kind"), ALL, ids=lambda value: getattr(value, "__name__", value))
@pytest.mark.parametrize("bias", [True, False])
@torch.no_grad()
def test_products_equal_torch_to_their_rounding(precision: str, kind: type[Product], bias: bool) -> None:
    torch.manual_seed(1)
    layer = nn.Linear(48, 40, bias=bias)
    product = built(kind, layer.weight, layer.bias)
    for rows in (0, 1, 2, 5, 300):
        x = 3 * torch.randn(rows, 48)
        expected = layer(x)
        assert product(x).shape == expected.shape
        if rows:
            assert (product(x) - expected).abs().max() <= ERRORS[precision] * expected.abs().max()


@pytest.mark.parametrize("kind", KINDS["int8"], ids=lambda kind: kind.__name__)
@torch.no_grad()
def test_rows_in_int8_know_nothing_of_each_other(kind: type[Product]) -> None:
    torch.manual_seed(2)
    product = built(kind, torch.randn(24, 32), torch.randn(24))
    x = torch.randn(6, 32) * torch.tensor([1e-4, 1, 0, 1e4, 3, 1])[:, None]
    together = product(x)
    for row in range(6):
        assert torch.equal(product(x[row : row + 1])[0], together[row])
    assert torch.equal(together[2], product.bias)


@pytest.mark.parametrize("kind", KINDS["int8"], ids=lambda kind: kind.__name__)
def test_the_largest_numbers_are_multiplied_exactly(kind: type[Int8Product]) -> None:
    ones = torch.ones(8, 512)
    product = built(kind, ones, None)
    assert product.steps == exact_steps(kind)
    assert torch.allclose(product(ones), torch.full((8, 8), 512.0), rtol=1e-6)
    assert torch.allclose(product(-ones), torch.full((8, 8), -512.0), rtol=1e-6)


def test_a_processor_that_adds_in_16_bits_gets_half_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pairs of products of 255 and 127 exceed 16 bits, those of 127 and 127 do not."""

    class Saturating(Int8Product):
        def prepare(self, weight: torch.Tensor, scales: torch.Tensor) -> None:
            self.whole, self.scales = (weight / scales[:, None]).round(), scales

        def multiply(self, rows: torch.Tensor, largest: torch.Tensor) -> torch.Tensor:
            whole = (rows / largest * self.steps).round() + self.steps + 1
            pairs = (whole[:, None] * self.whole).unflatten(2, (-1, 2)).sum(3).clamp(-32768, 32767)
            return (pairs.sum(2) - (self.steps + 1) * self.whole.sum(1)) * self.scales / self.steps

    assert exact_steps(Saturating) == 63
    torch.manual_seed(3)
    weight, x = torch.randn(8, 16), torch.randn(3, 16)
    assert (Saturating(weight, None)(x) - x @ weight.T).abs().max() <= ERRORS["int8"] * (x @ weight.T).abs().max()


class _Slow(PlainProduct):
    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        return sum((super(_Slow, self).__call__(rows) for _ in range(20)), rows.new_zeros(())) / 20


class _Missing(Product):
    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        raise RuntimeError("not built for this machine")

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        raise AssertionError


@pytest.fixture
def kinds(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[type[Product], ...]]:
    """Kinds of products to change; trials start afresh."""
    changed = dict(KINDS)
    monkeypatch.setattr(module, "KINDS", changed)
    monkeypatch.setattr(module, "KINDS", changed)
    monkeypatch.setattr(module, "LEAST_PREPARED", 0)
    trial.cache_clear()
    yield changed
    trial.cache_clear()


def test_a_trial_takes_the_quickest_of_those_that_work(kinds: dict) -> None:
    kinds["float32"] = (_Missing, _Slow, PlainProduct)
    found = trial("float32", 300, 200)
    assert found is not None
    assert found.few is found.many is PlainProduct
    kinds["int8"] = (_Missing,)
    assert trial("int8", 300, 200) is None


class _SlowWithFew(PlainProduct):
    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        product = super().__call__(rows)
        return (
            sum((super(_SlowWithFew, self).__call__(rows) for _ in range(20)), 0 * product)
            if len(rows) < 8
            else product
        )


class _SlowWithMany(PlainProduct):
    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        product = super().__call__(rows)
        return (
            sum((super(_SlowWithMany, self).__call__(rows) for _ in range(20)), 0 * product)
            if len(rows) > 8
            else product
        )


def test_few_and_many_rows_have_the_product_that_suits_them(kinds: dict) -> None:
    kinds["float32"] = (_SlowWithFew, _SlowWithMany)
    found = trial("float32", 300, 200)
    assert found is not None
    assert (found.few, found.many) == (_SlowWithMany, _SlowWithFew)
    weight, called = torch.randn(300, 200), []
    product = found.prepared(weight, None)
    for name in ("few", "many"):
        setattr(product, name, lambda rows, name=name: called.append((name, len(rows))) or rows)
    for rows in (0, 1, 2, 8, 9):
        product(torch.ones(rows, 200))
    assert called == [("many", 0), ("many", 1), ("few", 2), ("few", 8), ("many", 9)]


@pytest.mark.parametrize(("times", "chosen"), [(1.3, "bf16"), (1.1, "float32"), (0.5, "float32")])
def test_auto_takes_a_precision_that_is_much_faster(
    times: float, chosen: str, kinds: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds["bf16"] = (PlainProduct,)
    seconds = {"float32": 1.0, "bf16": 1 / times}

    def measured(precision: str, *shape: int) -> ProductTrial | None:
        return ProductTrial(PlainProduct, PlainProduct, seconds[precision]) if precision in seconds else None

    monkeypatch.setattr(module, "trial", measured)
    model = nn.Sequential(Linear(200, 300), nn.ReLU(), Linear(300, 200))
    assert prepare(model, "auto") == chosen
    with pytest.raises(ValueError, match="no int8 products"):
        prepare(model, "int8")


@pytest.mark.parametrize("precision", KINDS)
@torch.no_grad()
def test_prepared_layers_multiply_in_their_precision(precision: str, kinds: dict) -> None:
    torch.manual_seed(4)
    model = nn.Sequential(Linear(32, 48), nn.ReLU(), Linear(48, 24, bias=False)).eval()
    x = torch.randn(2, 3, 32)
    plain = model(x)
    if trial(precision, 24, 48) is None:
        pytest.skip(f"no {precision} products on this machine")
    assert prepare(model, precision) == precision
    for given in (x, x.movedim(0, 1).contiguous().movedim(0, 1), x[:1], x[:0]):
        found, expected = model(given), plain[: len(given)]
        assert found.shape == expected.shape
        assert bool(((found - expected).abs() <= 2 * ERRORS[precision] * plain.abs().max()).all())


@pytest.mark.parametrize(
    "change",
    [
        lambda layer: layer.train(),
        lambda layer: layer.double(),
        lambda layer: layer.load_state_dict(layer.state_dict()),
    ],
)
def test_a_weight_that_may_change_is_not_prepared_any_more(change, kinds: dict) -> None:
    layer = Linear(32, 48).eval()
    kinds["float32"] = (_Slow,)
    prepare(layer)
    assert layer.product is not None
    layer.eval()
    assert layer.product is not None
    change(layer)
    assert layer.product is None


def test_gradients_are_those_of_the_weight_itself(kinds: dict) -> None:
    torch.manual_seed(5)
    layer = Linear(32, 48).eval()
    x = torch.randn(4, 32, requires_grad=True)
    expected = torch.autograd.grad(layer(x).square().sum(), [x, layer.weight])
    if trial("int8", 48, 32) is None:
        pytest.skip("no int8 products on this machine")
    prepare(layer, "int8")
    assert all(map(torch.equal, torch.autograd.grad(layer(x).square().sum(), [x, layer.weight]), expected))


def test_small_and_double_weights_are_left_alone() -> None:
    model = nn.Sequential(Linear(8, 8), Linear(256, 256).double()).eval()
    assert prepare(model, "int8") == "int8"
    assert all(layer.product is None for layer in model)


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
    monkeypatch.setattr("headway.tensors.linear._gradient_of_weight", None)  # would raise
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
    monkeypatch.setattr(module, "has_onednn", lambda: here)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    assert suited_backend(torch.device(device), processor) == suited
