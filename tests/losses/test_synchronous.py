"""The synchronous constraint equals its oracle, in value and every gradient, with every option."""

import math

import pytest
import torch

from headway.losses import Objective, ObjectiveConfig
from headway.losses.synchronous import carried_over
from tests import reference
from tests.losses import toys


def objective(dependency=None, **synchronous) -> Objective:
    tree = {"synchronous": {"cross_layer": 2} | synchronous, "dependency": dependency}
    return Objective(ObjectiveConfig.model_validate(tree))


def slow_loss(output, batch, options, heads):
    """The oracle, sentence by sentence without padding; with `detach` as in the options."""
    cross_heads = None if options.get("cross_head", "mean") == "mean" else (options["cross_head"] - 1,)
    layer, cross_layer = options.get("layer", 1), options.get("cross_layer", 2)
    total = 0
    for row in range(len(batch.indices)):
        source, target = int(batch.source_mask[row].sum()), int(batch.target_mask[row].sum())
        encoder = reference.mean_head(output.attention[f"encoder.{layer}.self"][row], heads)[:source, :source]
        decoder = reference.mean_head(output.attention[f"decoder.{layer}.self"][row], heads)[:target, :target]
        cross = reference.mean_head(output.attention[f"decoder.{cross_layer}.cross"][row], cross_heads)
        cross = cross[:target, :source]
        back = cross.T
        if options.get("reverse") == "softmax":
            scores = output.attention[f"decoder.{cross_layer}.cross_scores"][row, :, :target, :source]
            chosen = range(len(scores)) if cross_heads is None else cross_heads
            back = sum(reference.backward_attention(scores[h]) for h in chosen) / len(chosen)
        projected = reference.projected_attention(encoder, cross, back, options.get("target", "softmax"))
        projected = projected.detach() if options.get("detach") == "projected" else projected
        decoder = decoder.detach() if options.get("detach") == "decoder" else decoder
        total = total + reference.synchronous_loss(projected, decoder)
    return options.get("weight", 10) * total


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"target": "renormalise", "weight": 3},
        {"reverse": "softmax", "cross_head": 2},
        {"reverse": "softmax", "target": "renormalise", "heads": [1]},
        {"layer": 2, "cross_layer": 1, "cross_head": 1, "heads": [1, 2]},
        {"detach": "projected"},
        {"detach": "decoder"},
    ],
    ids=str,
)
def test_equals_the_oracle(options):
    model, batch, chosen = toys.model(), toys.batch(), objective(**options)
    output = model(batch, capture=chosen.capture)
    assert set(output.attention) == set(chosen.capture)
    fast = chosen(output, batch).parts["synchronous"]
    heads = tuple(head - 1 for head in options["heads"]) if "heads" in options else None
    slow = slow_loss(output, batch, options, heads)
    assert fast.item() == pytest.approx(slow.item(), rel=1e-12)
    fast_gradients = toys.gradients(model, fast)
    for name, expected in toys.gradients(model, slow).items():
        assert torch.allclose(fast_gradients[name], expected, rtol=1e-9, atol=1e-11), name
    assert any(fast_gradients[f"{stack}.0.mixer.bilinear"].abs().max() > 0 for stack in ("encoder", "decoder"))


def test_what_is_detached_gets_no_gradient():
    model, batch = toys.model(), toys.batch()
    for detach, name in (("projected", "cross"), ("decoder", "decoder")):
        chosen = objective(detach=detach, layer=1, cross_layer=1)
        output = model(batch, capture=chosen.capture)
        read = output.attention["decoder.1.cross" if name == "cross" else "decoder.1.self"]
        (gradient,) = torch.autograd.grad(chosen(output, batch).parts["synchronous"], read, allow_unused=True)
        assert gradient is None


def test_without_heads_of_its_own_it_takes_those_that_are_taught():
    assert objective().parts["synchronous"].heads is None
    assert objective({"heads": [1]}).parts["synchronous"].heads == (1,)
    assert objective({"heads": [1]}, layer=2).parts["synchronous"].heads is None
    assert objective({"heads": [2]}, heads=[1]).parts["synchronous"].heads == (1,)


@pytest.mark.parametrize("t", [1, 2, 5])
def test_a_softmax_of_probabilities_is_nearly_flat(t):
    """A perfect alignment gives row t, of t + 1 allowed positions, at most e / (e + t); renormalised it is exact."""
    size = 6
    eye = torch.eye(size, dtype=torch.float64)[None]
    encoder = torch.zeros(1, size, size, dtype=torch.float64)
    encoder[0, :, 0] = 1
    assert carried_over(encoder, eye, eye, "softmax")[0, t].max().item() == pytest.approx(math.e / (math.e + t))
    assert torch.equal(carried_over(encoder, eye, eye, "renormalise"), encoder)


def test_an_example_worked_by_hand():
    """`you speak` / `kannst du`: E says that the head of both is speak, C aligns kannst to speak and du to you."""
    encoder = torch.tensor([[[0.0, 1.0], [0.0, 1.0]]])
    cross = torch.tensor([[[0.0, 1.0], [1.0, 0.0]]])
    projected = carried_over(encoder, cross, cross.transpose(1, 2), "renormalise")
    assert projected.tolist() == [[[1.0, 0.0], [1.0, 0.0]]]  # kannst heads itself and du


def test_padding_and_bf16_weights_are_harmless():
    model, batch = toys.model(dtype=torch.float32), toys.batch()
    chosen = objective({}, reverse="softmax", target="renormalise")
    with torch.autocast("cpu", torch.bfloat16):
        output = model(batch, capture=chosen.capture)
        loss = chosen(output, batch)
    assert loss.parts["synchronous"].dtype == torch.float32
    exact = chosen(model(batch, capture=chosen.capture), batch)
    for name, value in exact.parts.items():
        assert loss.parts[name].item() == pytest.approx(value.item(), rel=0.05), name
    loss.total.backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
