"""Canon layers: their oracle alone and in models; off by default."""

import pytest
import torch

from headway.core.errors import UserError
from headway.mixers.canon import Canon
from headway.mixers.conformance import BF16_UNITS
from headway.models import build_model, model_section
from headway.tensors.masks import padding_mask
from tests import reference
from tests.mixers.oracles import assert_same, gradients
from tests.models import toys

POINTS = ["A", "C", "AC"]


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


@pytest.mark.parametrize("points", POINTS)
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_transformer_equals_its_oracle_with_every_gradient(points, norm):
    model, batch = transformer(points, norm=norm), toys.batch()
    given = batch.source, batch.source_mask, batch.target_input, batch.target_mask
    fast, slow = model(batch).logits[batch.target_mask], reference.transformer(model, *given)[batch.target_mask]
    assert torch.allclose(fast, slow, atol=1e-10)
    upstream = torch.randn_like(slow)
    assert_same(gradients(model, (fast * upstream).sum()), gradients(model, (slow * upstream).sum()))


def test_a_decoder_only_model_equals_its_oracle():
    model, batch = toys.decoder_only(decoder={"layers": 2, "canon": "AC"}), toys.batch()
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
    sides = {side: {"layers": 2, "canon": "AC"} for side in ("encoder", "decoder")}
    canon = build_model(toys.config(norm=norm, **sides), 11, 11, True)
    weights = dict(canon.named_parameters())
    added = {name: weights.pop(name) for name in list(weights) if "canon" in name}
    assert len(added) == 8
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
def test_a_stands_before_the_mixer_and_c_before_the_feed_forward_network(points):
    model = transformer(points)
    for block in (*model.encoder, *model.decoder):
        assert ("A" in points, "C" in points) == (block.mixer_canon is not None, block.feed_forward_canon is not None)


@pytest.mark.parametrize("points", ["B", "ABCD", "CA", True])
def test_points_that_do_not_exist_are_refused(points):
    with pytest.raises(UserError, match=r"model\.encoder\.canon: input should be 'A', 'C' or 'AC'"):
        model_section({"encoder": {"canon": points}})
