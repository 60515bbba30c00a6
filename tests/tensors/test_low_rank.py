"""Low-rank changes of linear maps against their equation, in values and gradients; merging gives the same map."""

import pytest
import torch
from torch import nn

from headway.tensors.linear import Linear
from headway.tensors.low_rank import adapt, merged


class Two(nn.Module):
    """Two linear maps one after the other, and one that has the weight of an embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 5)
        self.first, self.second = Linear(5, 6), Linear(6, 5, bias=False)
        self.projection = Linear(5, 7, bias=False)
        self.projection.weight = self.embedding.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.projection(self.second(self.first(self.embedding(ids))))


def adapted(*patterns: str, dropout: float = 0.0) -> Two:
    torch.manual_seed(3)
    model = Two().double()
    adapt(model, 2, 3.0, dropout, patterns or ("*",))
    for name, parameter in model.named_parameters():
        if name.endswith(".up"):
            nn.init.normal_(parameter)
    return model


def test_values_and_gradients_are_those_of_the_equation() -> None:
    model, ids = adapted(), torch.tensor([[1, 4, 2], [6, 0, 3]])
    given = {name: tensor.detach().clone() for name, tensor in model.named_parameters()}
    learned = {name: given[name].requires_grad_() for name in given if "low_rank" in name}

    def mapped(x: torch.Tensor, name: str) -> torch.Tensor:
        change = 3.0 / 2 * learned[f"{name}.low_rank.up"] @ learned[f"{name}.low_rank.down"]  # (alpha / rank) B A
        return torch.einsum("oi,bli->blo", given[f"{name}.weight"] + change, x)

    hidden = mapped(given["embedding.weight"][ids], "first") + given["first.bias"]
    expected = torch.einsum("oi,bli->blo", given["embedding.weight"], mapped(hidden, "second"))
    output = model(ids)
    torch.testing.assert_close(output, expected, rtol=1e-12, atol=1e-12)
    weights = torch.randn(output.shape, dtype=torch.float64)
    (output * weights).sum().backward()
    (expected * weights).sum().backward()
    for name, parameter in model.named_parameters():
        assert (parameter.grad is not None) == ("low_rank" in name), name
        if parameter.grad is not None:
            torch.testing.assert_close(parameter.grad, learned[name].grad, rtol=1e-11, atol=1e-11)


def test_merged_weights_make_the_same_map() -> None:
    model, ids = adapted(), torch.tensor([[1, 4, 2]])
    plain = Two().double()
    tensors = merged(model.state_dict())
    plain.load_state_dict(tensors)
    with torch.no_grad():
        torch.testing.assert_close(plain(ids), model(ids), rtol=1e-12, atol=1e-12)
        assert (plain(ids) - Two().double()(ids)).abs().max() > 0.01
    assert merged(tensors).keys() == plain.state_dict().keys()


def test_training_begins_with_the_model_as_it_was() -> None:
    torch.manual_seed(1)
    model, ids = Two(), torch.tensor([[1, 2]])
    before = model(ids)
    assert adapt(model, 4, 8.0, 0.5, ["fir*"]) == ["first"]
    assert torch.equal(model(ids), before)
    assert model.first.low_rank is not None
    assert model.first.low_rank.down.abs().sum() > 0


def test_dropout_is_of_the_change_alone() -> None:
    model = adapted(dropout=0.5)
    x, change = torch.randn(3, 5, dtype=torch.float64), model.first.low_rank
    assert change is not None
    many = x.expand(20_000, 3, 5)
    dropped = model.first(many) - nn.functional.linear(many, model.first.weight, model.first.bias)
    spread = dropped.std(0)
    assert (spread > 0.1).any()
    model.eval()
    whole = model.first(x) - nn.functional.linear(x, model.first.weight, model.first.bias)
    assert ((dropped.mean(0) - whole).abs() <= 5 * spread / 20_000**0.5 + 1e-9).all()


@pytest.mark.parametrize("pattern", ["third", "projection"])  # the projection's weight is the embedding's
def test_a_pattern_that_matches_nothing_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=rf"{pattern} matches none of the linear maps \(first, second\)"):
        adapt(Two(), 2, 2.0, 0.0, ["first", pattern])
