"""Products in 8 bits within training: the integers of an engine, straight-through gradients, their use."""

from dataclasses import replace
from itertools import chain

import pytest
import torch
from torch import Tensor

from headway.models import build_model
from headway.tensors.batch import Batch
from headway.tensors.int8_rounding import TokenEmbedding
from headway.tensors.linear import Linear, integer_matrices, prepare, round_to_int8, undo_rounding
from tests.models import toys


def scale_of(numbers: list[float]) -> float:
    return 127 / max(abs(number) for number in numbers)


def integer(number: float, scale: float) -> int:
    """Python's round is to the even of two that are as near, as rint is."""
    return max(-127, min(127, round(number * scale)))


def engine_product(x: list[list[float]], matrices: list[list[list[float]]], bias: list[float]) -> list[list[float]]:
    """Sums of integers, divided by both scales; each matrix has its own."""
    a, rows = scale_of([*chain(*x)]), []
    for vector in x:
        outputs: list[float] = []
        for matrix in matrices:
            m = scale_of([*chain(*matrix)])
            for weights in matrix:
                total = sum(integer(u, a) * integer(w, m) for u, w in zip(vector, weights, strict=True))
                outputs.append(total / (a * m))
        rows.append([y + b for y, b in zip(outputs, bias, strict=True)])
    return rows


def layer(parts: list[int], dtype: torch.dtype = torch.float64) -> Linear:
    torch.manual_seed(2)
    built = Linear(5, parts).to(dtype)
    with torch.no_grad():  # matrices of different sizes
        for number, matrix in enumerate(built.matrices()):
            matrix.mul_(3.0**number)
    round_to_int8(built)
    return built


@pytest.mark.parametrize("parts", [[4], [3, 2, 2]])
@pytest.mark.parametrize("training", [True, False])
def test_values_are_those_of_integers(parts: list[int], training: bool) -> None:
    built, x = layer(parts), torch.randn(2, 3, 5, dtype=torch.float64)
    matrices = [matrix.tolist() for matrix in built.matrices()]
    expected = engine_product(x.flatten(0, 1).tolist(), matrices, built.bias.tolist())
    with torch.set_grad_enabled(training):
        found = built.train(training)(x)
        again = built(x)  # in evaluation with what was kept of the weight
    torch.testing.assert_close(found.flatten(0, 1), torch.tensor(expected, dtype=torch.float64), atol=1e-12, rtol=0)
    assert torch.equal(found, again)
    exact = torch.nn.functional.linear(x, built.weight, built.bias)
    assert 1e-4 < (found - exact).abs().max() < 0.2


def test_gradients_are_those_of_the_rounded_factors() -> None:
    built, x = layer([3, 2]), torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    upstream = torch.randn(4, 5, dtype=torch.float64)
    (built(x) * upstream).sum().backward()
    a = scale_of(x.flatten().tolist())
    read = torch.tensor([[integer(u, a) / a for u in row] for row in x.tolist()], dtype=torch.float64)
    rows: list[list[float]] = []
    for matrix in built.matrices():
        m = scale_of(matrix.flatten().tolist())
        rows += [[integer(w, m) / m for w in row] for row in matrix.tolist()]
    weight = torch.tensor(rows, dtype=torch.float64)
    for found, expected in ((x.grad, upstream @ weight), (built.weight.grad, upstream.T @ read)):
        torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)
    torch.testing.assert_close(built.bias.grad, upstream.sum(0), atol=1e-12, rtol=0)


def fixed_layer() -> tuple[Linear, float, list[float]]:
    """A layer whose inputs are clipped at 1.2, and whose second matrix has 7 bits, with the factors a and m."""
    built = layer([3, 2])
    round_to_int8(built.double(), fixed=True)
    built.double()
    assert built.input_range is not None
    built.input_range.largest.fill_(1.2)
    built.input_range.most[1] = 64
    m = [scale_of(matrix.flatten().tolist()) for matrix in built.matrices()]
    return built, 127 / 1.2, [m[0], m[1] * 64 / 127]


def test_with_a_fixed_range_values_and_gradients_are_those_of_clipped_integers() -> None:
    built, a, factors = fixed_layer()
    x = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    upstream = torch.randn(4, 5, dtype=torch.float64)
    found = built(x)
    (found * upstream).sum().backward()
    whole = [[integer(u, a) for u in row] for row in x.tolist()]
    rows, expected = list[list[int]](), list[list[float]]()
    for matrix, m in zip(built.matrices(), factors, strict=True):
        rows += [[integer(w, m) for w in row] for row in matrix.tolist()]
    assert max(map(abs, chain(*rows[3:]))) == 64
    of_rows = [factors[0]] * 3 + [factors[1]] * 2
    for vector in whole:
        sums = [sum(u * w for u, w in zip(vector, row, strict=True)) for row in rows]
        expected.append([y / (a * m) + b for y, m, b in zip(sums, of_rows, built.bias.tolist(), strict=True)])
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), atol=1e-12, rtol=0)
    inside = torch.tensor([[abs(u * a) <= 127 for u in row] for row in x.tolist()])
    assert 0 < inside.sum() < inside.numel()
    weight = torch.tensor(rows, dtype=torch.float64) / torch.tensor(of_rows, dtype=torch.float64)[:, None]
    read = torch.tensor(whole, dtype=torch.float64) / a
    for gradient, exact in ((x.grad, (upstream @ weight) * inside), (built.weight.grad, upstream.T @ read)):
        torch.testing.assert_close(gradient, exact, atol=1e-12, rtol=0)


def test_rounded_weights_are_rounded_to_themselves() -> None:
    built, a, factors = fixed_layer()
    x = torch.randn(4, 5, dtype=torch.float64)
    before = built.eval()(x)
    ((name, (whole, of_rows, of_inputs)),) = integer_matrices(built).items()
    assert (name, of_inputs is not None and of_inputs.item()) == ("weight", pytest.approx(a))
    assert of_rows.tolist() == pytest.approx([factors[0]] * 3 + [factors[1]] * 2)
    with torch.no_grad():
        built.train().weight.copy_(whole / of_rows[:, None])
    torch.testing.assert_close(built.eval()(x), before, atol=1e-12, rtol=0)
    assert torch.equal(integer_matrices(built)["weight"][0], whole)


def test_undone_rounding_leaves_a_plain_layer() -> None:
    built, _, _ = fixed_layer()
    x = torch.randn(4, 5, dtype=torch.float64)
    undo_rounding(built)
    assert built.state_dict().keys() == {"weight", "bias"}
    assert torch.equal(built(x), torch.nn.functional.linear(x, built.weight, built.bias))
    assert prepare(built) == "float32"


def test_an_embedding_has_the_bits_of_the_matrix_that_it_shares() -> None:
    model = torch.nn.ModuleDict({"tokens": TokenEmbedding(7, 4), "projection": Linear(4, 7, bias=False)})
    model["projection"].weight = model["tokens"].weight
    round_to_int8(model, fixed=True)
    model["projection"].input_range.most[0] = 64
    m = scale_of(model["tokens"].weight.flatten().tolist()) * 64 / 127
    expected = [[integer(w, m) / m for w in row] for row in model["tokens"].weight.tolist()]
    torch.testing.assert_close(model["tokens"](torch.arange(7)), torch.tensor(expected))
    torch.testing.assert_close(model["projection"](torch.eye(4) * 0), torch.zeros(4, 7))
    whole, factors, _ = integer_matrices(model)["tokens.weight"]
    torch.testing.assert_close(whole / factors[:, None], torch.tensor(expected))


def test_weights_that_learn_are_rounded_anew() -> None:
    built, x = layer([4], torch.float32), torch.randn(3, 5)
    with torch.no_grad():
        before = built.eval()(x)
        built.train()
        built.weight.mul_(2)
        assert not torch.equal(built.eval()(x), before)


def test_embeddings_are_read_as_the_tied_matrix_has_them() -> None:
    table = TokenEmbedding(7, 4)
    ids, m = torch.tensor([[1, 3], [3, 6]]), scale_of(table.weight.flatten().tolist())
    assert torch.equal(table(ids), table.weight[ids])
    round_to_int8(table)
    expected = [[[integer(w, m) / m for w in table.weight[id].tolist()] for id in row] for row in ids.tolist()]
    torch.testing.assert_close(table(ids), torch.tensor(expected))
    table(ids).sum().backward()
    assert table.weight.grad is not None
    assert table.weight.grad[3].tolist() == [2.0] * 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_zeros_stay_zeros(dtype: torch.dtype) -> None:
    built = layer([4], torch.float32)
    x = torch.zeros(2, 5, dtype=dtype, requires_grad=True)
    output = built(x)
    output.sum().backward()
    assert torch.equal(output, built.bias.expand(2, -1))
    assert x.grad is not None
    assert x.grad.isfinite().all()


def test_sums_in_bf16_are_of_the_same_integers() -> None:
    built, x = layer([64, 64], torch.float32), torch.randn(32, 5)
    with torch.autocast("cpu", torch.bfloat16):
        half = built(x)
    torch.testing.assert_close(half.float(), built(x), rtol=2**-7, atol=2**-7)


def loss(model: torch.nn.Module, batch: Batch) -> Tensor:
    logits = model(batch).logits[batch.target_mask]
    return torch.nn.functional.cross_entropy(logits, batch.target_output[batch.target_mask])


def student(dtype: torch.dtype = torch.float32) -> torch.nn.Module:
    torch.manual_seed(5)
    small = {"dim": 16, "feed_forward": 32, "heads": 2, "dropout": 0.0, "encoder": {"layers": 1}}
    return build_model({"preset": "student-tiny"} | small, toys.TARGET_SIZE, toys.TARGET_SIZE, True).to(dtype)


def trained(model: torch.nn.Module, batch: Batch, updates: int) -> torch.nn.Module:
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(updates):
        optimizer.zero_grad()
        loss(model.train(), batch).backward()
        optimizer.step()
    return model.eval()


def rounded_loss(weights: dict[str, Tensor], batch: Batch) -> float:
    model = student()
    model.load_state_dict(weights)
    round_to_int8(model)
    with torch.no_grad():
        return float(loss(model.eval(), batch))


@pytest.mark.slow
def test_training_with_rounding_makes_int8_weights_better() -> None:
    """A few weights far larger than the others leave these few integers; without rounding the model is the same."""
    batch = toys.batch()
    batch = replace(batch, source=batch.source.clamp(max=toys.TARGET_SIZE - 1))
    model = trained(student(), batch, 150)
    with torch.no_grad():
        for block in (*model.encoder, *model.decoder):
            block.feed_forward.inner.weight[0] *= 200
            block.feed_forward.inner.bias[0] *= 200
            block.feed_forward.outer.weight[:, 0] /= 200
        assert loss(model, batch) < 0.1
    begun = {name: each.clone() for name, each in model.state_dict().items()}
    losses = {"before": rounded_loss(begun, batch)}
    for name in ("float", "rounded"):
        other = student()
        other.load_state_dict(begun)
        if name == "rounded":
            round_to_int8(other)
        losses[name] = rounded_loss(trained(other, batch, 40).state_dict(), batch)
    assert losses["before"] > 0.5, losses
    assert losses["float"] > 0.5, losses
    assert losses["rounded"] < 0.5 * losses["float"], losses
