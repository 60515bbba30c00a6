"""Parts of a block: feed-forward networks and norms equal their equations."""

import math

import pytest
import torch

from headway.core.errors import UserError
from headway.models import FEED_FORWARDS, NORMS
from headway.models.components import FeedForward
from tests.models import toys


def silu(x):
    return x / (1 + (-x).exp())


def gelu_by_tanh(x):
    return x / 2 * (1 + ((2 / math.pi) ** 0.5 * (x + 0.044715 * x**3)).tanh())


@pytest.mark.parametrize(("kind", "activation"), [("swiglu", silu), ("geglu", gelu_by_tanh)])
def test_a_gate_equals_its_equation_with_every_gradient(kind, activation):
    torch.manual_seed(1)
    network = FEED_FORWARDS.build({"kind": kind, "hidden": 5}, 4).double()
    x = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    gate = x @ network.gate.weight.T
    slow = (activation(gate) * (x @ network.inner.weight.T)) @ network.outer.weight.T
    assert torch.allclose(network(x), slow, atol=1e-12)
    upstream, inputs = torch.randn_like(slow), [x, *network.parameters()]
    pairs = (torch.autograd.grad((y * upstream).sum(), inputs) for y in (network(x), slow))
    assert all(torch.allclose(one, other, atol=1e-12) for one, other in zip(*pairs, strict=True))


def test_rms_norm_equals_its_equation():
    torch.manual_seed(1)
    norm, x = NORMS.build("rms", 4).double(), torch.randn(3, 4, dtype=torch.float64)
    torch.nn.init.normal_(norm.weight)
    assert torch.allclose(norm(x), x / ((x**2).mean(-1, keepdim=True) + 1e-6).sqrt() * norm.weight)


def test_a_number_is_short_for_the_activation_with_that_size():
    one, other = toys.model(feed_forward=10), toys.model(feed_forward={"kind": "relu", "hidden": 10})
    assert torch.equal(one(toys.batch()).logits, other(toys.batch()).logits)


class Nothing(FeedForward):
    """A network from outside that adds nothing."""

    def __init__(self, dim: int, *, scale: float = 0.0) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, x):
        return x * self.scale


def test_a_network_from_outside():
    model = toys.model(feed_forward={"kind": "tests.models.test_block:Nothing", "scale": 2.0})
    assert model.encoder[0].feed_forward.scale == 2.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"feed_forward": {"kind": "swigul", "hidden": 3}},
            r"model\.feed_forward\.kind: .*did you mean 'swiglu'",
        ),
        ({"feed_forward": {"hiden": 3}}, r"model\.feed_forward\.hiden: unknown key; did you mean 'hidden'"),
        ({"norm_kind": "rsm"}, r"model\.norm_kind\.kind: unknown norm; did you mean 'rms'"),
    ],
)
def test_mistakes_name_their_key(changes, message):
    with pytest.raises(UserError, match=message):
        toys.model(**changes)
