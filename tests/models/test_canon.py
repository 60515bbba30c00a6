"""Canon layers: their oracle alone and in models; off by default."""

import pytest
import torch

from headway.core.errors import UserError
from headway.mixers.canon import Canon
from headway.mixers.conformance import BF16_UNITS
from headway.models import build_model, model_section
from headway.models.components import FeedForward
from headway.tensors.masks import padding_mask
from tests import reference
from tests.mixers.oracles import assert_same, gradients
from tests.models import toys
from tests.tiers import thinned

POINTS = ["A", "C", "AC", "B", "D", "ABCD"]


def draw(model: torch.nn.Module) -> torch.nn.Module:
    """The model with Canon weights that are not zero."""
    torch.manual_seed(4)
    for module in model.modules():
        if isinstance(module, Canon):
            torch.nn.init.normal_(module.weight, std=0.7)
    return model


def transformer(points: str = "AC", **changes):
    sides = {side: {"layers": 2, "canon": points} for side in ("encoder", "decoder")}
    return toys.model(**sides | changes)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [2, 7])
def test_a_layer_equals_its_oracle_with_every_gradient(causal, length):
    layer, mask = draw(Canon(6, causal).double()), padding_mask(torch.tensor([length, 1]))
    x = torch.randn(2, length, 6, dtype=torch.float64, requires_grad=True)
    values, slow = layer(x, mask)[mask], reference.canon(layer, x, mask)[mask]
    assert torch.allclose(values, slow, atol=1e-12)
    upstream = torch.randn_like(slow)
    assert_same(gradients(layer, (values * upstream).sum(), x), gradients(layer, (slow * upstream).sum(), x))


@pytest.mark.parametrize(("causal", "window"), [(False, range(-2, 2)), (True, range(-3, 1))], ids=str)
def test_nothing_beyond_the_window_counts(causal, window):
    layer, x = draw(Canon(6, causal)), torch.randn(1, 11, 6)
    changed = x.clone()
    changed[:, 5] += 1
    difference = (layer(x, None) - layer(changed, None)).abs().amax((0, 2))
    assert (difference > 0).tolist() == [5 - t in window for t in range(11)]


@pytest.mark.parametrize("points", thinned(POINTS, 3))
@pytest.mark.parametrize("changes", [{}, {"norm": "pre", "feed_forward": {"kind": "swiglu", "hidden": 6}}], ids=str)
def test_a_transformer_equals_its_oracle_with_every_gradient(points, changes):
    model, batch = transformer(points, **changes), toys.batch()
    given = batch.source, batch.source_mask, batch.target_input, batch.target_mask
    fast, slow = model(batch).logits[batch.target_mask], reference.transformer(model, *given)[batch.target_mask]
    assert torch.allclose(fast, slow, atol=1e-10)
    upstream = torch.randn_like(slow)
    assert_same(gradients(model, (fast * upstream).sum()), gradients(model, (slow * upstream).sum()))


def test_a_decoder_only_model_equals_its_oracle():
    model, batch = toys.decoder_only(decoder={"layers": 2, "canon": "ABCD"}), toys.batch()
    logits = model(batch).logits
    for row in range(3):
        source = batch.source[row][batch.source_mask[row]].tolist()
        target = batch.target_input[row][batch.target_mask[row]].tolist()
        slow = reference.decoder_only(model, source, target)
        assert torch.allclose(logits[row][batch.target_mask[row]], slow, atol=1e-10)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_model_begins_as_the_one_without(norm):
    torch.manual_seed(1)
    plain = build_model(toys.config(norm=norm), 11, 11, True)
    torch.manual_seed(1)
    sides = {side: {"layers": 2, "canon": "ABCD"} for side in ("encoder", "decoder")}
    canon = build_model(toys.config(norm=norm, **sides), 11, 11, True)
    weights = dict(canon.named_parameters())
    added = {name: weights.pop(name) for name in list(weights) if "canon" in name}
    assert len(added) == 16
    assert not any(weight.any() for weight in added.values())
    assert list(weights) == [name for name, _ in plain.named_parameters()]
    assert all(torch.equal(weights[name], parameter) for name, parameter in plain.named_parameters())
    logits = canon(toys.batch()).logits
    assert torch.equal(logits, plain(toys.batch()).logits)
    logits.square().sum().backward()
    assert all(weight.grad.any() for weight in added.values())


def test_bf16_is_close():
    model, batch = transformer(dtype=torch.float32), toys.batch()
    logits = model(batch).logits
    with torch.autocast("cpu", torch.bfloat16):
        low = model(batch).logits.float()
        state = model.start(model.encode(batch.source, batch.source_mask), 4)
        types = [layer.mixer_canon.recent.dtype for layer in state.layers]
        _, state = model.extend(batch.target_input[:, :1], state)
    assert [layer.mixer_canon.recent.dtype for layer in state.layers] == types, "a state keeps its types"
    assert (low - logits).abs().max() < 4 * BF16_UNITS * logits.abs().max()


def test_a_layer_that_is_not_causal_has_no_state():
    with pytest.raises(ValueError, match="causal=True"):
        Canon(4, False).initial_state(2)
    assert "causal=False" in repr(Canon(4, False))


@pytest.mark.parametrize("points", POINTS)
def test_each_point_has_its_place(points):
    model = transformer(points)
    for block in (*model.encoder, *model.decoder):
        layers = block.mixer_canon, block.mixer.canon, block.feed_forward_canon, block.feed_forward_inner_canon
        assert [layer is not None for layer in layers] == [point in points for point in "ABCD"]


def test_the_order_of_points_does_not_count():
    assert model_section({"encoder": {"canon": "DA"}}).encoder.canon == "AD"


@pytest.mark.parametrize("points", ["E", "AA", "ABCDE", "", True, "a"])
def test_points_that_do_not_exist_are_refused(points):
    with pytest.raises(
        UserError, match=r"model\.encoder\.canon: canon is some of the letters A, B, C and D, each once"
    ) as error:
        model_section({"encoder": {"canon": points}})
    assert len(str(error.value).splitlines()) == 1


class Square(FeedForward):
    """A feed-forward network with nothing inside."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(dim, dim)

    def forward(self, x):
        return self.linear(x) ** 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"decoder": {"layers": 2, "canon": "AB", "mixer": ["attention", {"kind": "ngram", "n": 2}]}},
      r"model\.decoder\.canon: point B .* queries, keys and values, which ngram does not have; received 'AB'"),
     ({"decoder": {"layers": 1, "canon": "D"}, "feed_forward": {"kind": f"{__name__}:Square"}},
      r"model\.decoder\.canon: point D .* within a hidden layer, which this feed-forward network does not show")],
)  # fmt: skip
def test_points_that_a_layer_does_not_have_are_refused(changes, message):
    with pytest.raises(UserError, match=message):
        toys.model(**changes)
