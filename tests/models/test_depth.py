"""Attention over depth equals its equations; a stack that does not ask for it is as it was."""

import itertools

import pytest
import torch

from headway.core.errors import UserError
from headway.models import build_model, model_section
from headway.tensors.checkpointing import recompute_activations
from tests import reference
from tests.models import toys

SIDES = ("encoder", "decoder")
OVER, NORMS = ("layers", "blocks"), ("post", "pre")


def mean_over_depth(query, outputs):
    """h = sum_i w_i h_i, w = softmax over i of q . RMSNorm(h_i), a position at a time (Kimi Team 2026)."""
    rows, all_weights = [], []
    for row, t in itertools.product(range(outputs[0].shape[0]), range(outputs[0].shape[1])):
        vectors = [output[row, t] for output in outputs]
        norms = [((vector**2).sum() / len(vector) + 1e-6).sqrt() for vector in vectors]
        powers = [((query * vector).sum() / norm).exp() for vector, norm in zip(vectors, norms, strict=True)]
        weights = [power / sum(powers) for power in powers]
        rows.append(sum(weight * vector for weight, vector in zip(weights, vectors, strict=True)))
        all_weights.append(torch.stack(weights))
    shape = outputs[0].shape[:2]
    return torch.stack(rows).view(*shape, -1), torch.stack(all_weights).view(*shape, -1)


def stack(blocks, end, over, x, sublayers_of):
    """The vectors at the top, and the weights of every sublayer and of the top over the outputs before it."""
    outputs, all_weights = [x], []
    for block in blocks:
        for number, (around, sublayer) in enumerate(sublayers_of(block)):
            if around.depth is None:
                assert len(outputs) == 1
                given, weights = outputs[0], torch.ones(*x.shape[:2], 1, dtype=x.dtype)
            else:
                given, weights = mean_over_depth(around.depth.query, outputs)
            all_weights.append(weights)
            added = sublayer(given if around.post else reference.layer_norm(around.norm, given))
            if over == "blocks" and number > 0:  # b_n^i = b_n^(i-1) + f(h)
                added = outputs.pop() + added
            outputs.append(reference.layer_norm(around.norm, added) if around.post else added)
    top, weights = mean_over_depth(end.query, outputs)
    return top, [*all_weights, weights]


def oracle(model, over, batch):
    """Logits of a Transformer with self-attention, sinusoidal positions and ReLU, and the weights over depth."""

    def mixed(block, mask):
        return block.mixer_residual, lambda y: reference.attention(block.mixer, y, mask)[0]

    def fed(block):
        return block.feed_forward_residual, lambda y: reference.feed_forward(block.feed_forward, y)

    def read(block):
        return block.cross_residual, lambda y: reference.read_source(block.cross, y, memory, batch.source_mask)[0]

    source = reference.embed(model.source_embedding.tokens, batch.source)
    memory, weights = stack(
        model.encoder, model.encoder_end, over, source, lambda block: [mixed(block, batch.source_mask), fed(block)]
    )
    pre = not model.decoder[0].mixer_residual.post
    memory = reference.layer_norm(model.encoder_norm, memory) if pre else memory
    x, others = stack(
        model.decoder, model.decoder_end, over, reference.embed(model.target_embedding.tokens, batch.target_input),
        lambda block: [mixed(block, batch.target_mask), read(block), fed(block)],
    )  # fmt: skip
    x = reference.layer_norm(model.decoder_norm, x) if pre else x
    return x @ model.projection.weight.T, weights, others


def attending(over, **changes):
    residual = {"kind": "attention", "over": over}
    return toys.model(**{side: {"layers": 2, "residual": residual} for side in SIDES}, **changes)


@pytest.mark.parametrize("over", OVER)
@pytest.mark.parametrize("norm", NORMS)
def test_equals_oracle_with_every_gradient(over, norm):
    model, batch = attending(over, norm=norm), toys.batch()
    fast, (slow, *weights) = model(batch, capture=("*.layers",)), oracle(model, over, batch)
    real = batch.target_mask
    assert torch.allclose(fast.logits[real], slow[real], atol=1e-10)
    for side, mask, expected in zip(SIDES, (batch.source_mask, real), weights, strict=True):
        found = fast.attention[f"{side}.layers"]
        assert found.shape[1] == len(expected) == {"encoder": 5, "decoder": 7}[side]
        for number, each in enumerate(expected):
            width = each.shape[-1]
            assert torch.allclose(found[:, number, :, :width][mask], each[mask], atol=1e-10)
            assert not found[:, number, :, width:].any()
    upstream = torch.randn(slow[real].shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    gradients = [
        torch.autograd.grad((logits[real] * upstream).sum(), list(model.parameters())) for logits in (fast.logits, slow)
    ]
    for (name, _), one, other in zip(model.named_parameters(), *gradients, strict=True):
        assert torch.allclose(one, other, rtol=1e-8, atol=1e-10), name


def test_queries_begin_where_the_mean_is_plain():
    torch.manual_seed(1)

    model = build_model(toys.config(encoder={"layers": 2, "residual": "attention"}), 11, 9, False).double()
    weights = model(toys.batch(), capture=("encoder.layers",)).attention["encoder.layers"]
    assert [sorted(set(row.tolist())) for row in weights[0, :, 0].round(decimals=9)] == [
        [0, 1], [0, 0.5], [0, round(1 / 3, 9)], [0, 0.25], [0.2]
    ]  # fmt: skip


def test_plain_residuals_are_the_default():
    plain = toys.model(encoder={"layers": 2, "residual": "plain"})
    assert plain.state_dict().keys() == toys.model().state_dict().keys()
    assert torch.equal(plain(toys.batch()).logits, toys.model()(toys.batch()).logits)
    assert not plain(toys.batch(), capture=("*.layers",)).attention


@pytest.mark.parametrize(
    ("residual", "message"),
    [
        ({"kind": "attention", "over": "heads"}, "layers"),
        ({"kind": "plain", "over": "layers"}, "over is of kind attention"),
        ("attentive", "plain"),
    ],
)
def test_mistakes(residual, message):

    with pytest.raises(UserError, match=message):
        model_section({"encoder": {"residual": residual}})


TOGETHER = {
    "value_residual": True, "dropout": 0.3, "norm": "pre",
    "encoder": {"layers": 3, "residual": "attention"},
    "decoder": {"layers": 3, "residual": {"kind": "attention", "over": "blocks"}, "cross": "merged"},
}  # fmt: skip


def gradients_of(model, forward):
    torch.manual_seed(5)  # of dropout
    logits = forward(toys.batch()).logits
    return [logits, *torch.autograd.grad(logits.square().sum(), list(model.parameters()))]


def test_blocks_that_hand_on_several_tensors_can_be_computed_again():
    model = toys.model(**TOGETHER).train()
    expected = gradients_of(model, model)
    for block in model.blocks():
        recompute_activations(block)
    assert all(map(torch.equal, gradients_of(model, model), expected))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute")  # at which the compiler looks, whatever the model
def test_they_can_be_compiled():
    model = toys.model(**TOGETHER)
    expected = gradients_of(model, model)
    compiled = gradients_of(model, torch.compile(model, backend="aot_eager"))
    assert all(torch.allclose(one, other, atol=1e-10) for one, other in zip(compiled, expected, strict=True))


@pytest.mark.slow
@torch.no_grad()
def test_their_steps_are_one_graph():
    torch._dynamo.reset()
    model, batch = toys.model(**TOGETHER), toys.batch()
    step = torch.compile(model.extend, backend="aot_eager", fullgraph=True)
    compiled = model.start(model.encode(batch.source, batch.source_mask), 5)
    eager = compiled.select(torch.arange(3))
    for time in range(4):
        tokens = batch.target_input[:, time : time + 1]
        (scores, compiled), (expected, eager) = step(tokens, compiled), model.extend(tokens, eager)
        assert torch.allclose(scores, expected, atol=1e-10)
