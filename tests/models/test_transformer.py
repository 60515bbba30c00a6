"""The Transformer equals its oracle and torch's own layers; its sizes and what it captures."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from headway.core.errors import UserError
from headway.models import PRESETS, build_model, model_section
from headway.tensors.batch import collate
from headway.tensors.masks import causal_mask
from tests import reference
from tests.models import toys

NORMS = ["post", "pre"]


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("tied", ["target", "none"])
def test_equals_oracle_with_every_gradient(norm, tied):
    model, batch = toys.model(norm=norm, tied=tied, head_dim=3), toys.batch()
    fast = model(batch).logits
    slow = reference.transformer(model, batch.source, batch.source_mask, batch.target_input, batch.target_mask)
    real = batch.target_mask
    assert torch.allclose(fast[real], slow[real], atol=1e-10)
    upstream = torch.randn(fast[real].shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    names = [name for name, _ in model.named_parameters()]
    fast_gradients = torch.autograd.grad((fast[real] * upstream).sum(), list(model.parameters()))
    slow_gradients = torch.autograd.grad((slow[real] * upstream).sum(), list(model.parameters()))
    for name, one, other in zip(names, fast_gradients, slow_gradients, strict=True):
        assert torch.allclose(one, other, rtol=1e-8, atol=1e-10), name


def torch_attention(module: nn.MultiheadAttention, weight, bias, out) -> None:
    module.in_proj_weight.copy_(weight)
    module.in_proj_bias.copy_(bias)
    module.out_proj.weight.copy_(out.weight)
    module.out_proj.bias.copy_(out.bias)


@torch.no_grad()
def torch_layer(layer, kind, norm: str):
    """torch's own layer with the weights of ours."""
    theirs = kind(8, 2, 10, dropout=0.0, batch_first=True, norm_first=norm == "pre")
    mixer = layer.mixer
    torch_attention(theirs.self_attn, mixer.in_projection.weight, mixer.in_projection.bias, mixer.out_projection)
    pairs = [(theirs.linear1, layer.feed_forward.inner), (theirs.linear2, layer.feed_forward.outer)]
    norms = [layer.mixer_residual.norm, layer.feed_forward_residual.norm]
    if kind is nn.TransformerDecoderLayer:
        cross = layer.cross
        weight = torch.cat([cross.query_projection.weight, cross.memory_projection.weight])
        bias = torch.cat([cross.query_projection.bias, cross.memory_projection.bias])
        torch_attention(theirs.multihead_attn, weight, bias, cross.out_projection)
        norms.insert(1, layer.cross_residual.norm)
    pairs += zip([theirs.norm1, theirs.norm2, getattr(theirs, "norm3", None)], norms, strict=False)
    for to, of in pairs:
        to.load_state_dict(of.state_dict())
    return theirs.train()


def assert_close(ours, theirs):
    assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("norm", NORMS)
def test_encoder_layer_agrees_with_torch(norm):
    layer = toys.model(dtype=torch.float32, norm=norm).encoder[0].train()
    theirs = torch_layer(layer, nn.TransformerEncoderLayer, norm)
    x, mask = torch.randn(3, 6, 8, requires_grad=True), toys.batch().source_mask[:, :6]
    y = x.detach().clone().requires_grad_()
    ours, expected = layer(x, mask)[0], theirs(y, src_key_padding_mask=~mask)
    assert_close(ours[mask], expected[mask])
    upstream = torch.randn_like(ours)[mask]
    (ours[mask] * upstream).sum().backward()
    (expected[mask] * upstream).sum().backward()
    assert_close(x.grad, y.grad)
    assert_close(layer.mixer.in_projection.weight.grad, theirs.self_attn.in_proj_weight.grad)
    assert_close(layer.feed_forward.inner.weight.grad, theirs.linear1.weight.grad)
    assert_close(layer.mixer_residual.norm.weight.grad, theirs.norm1.weight.grad)


@pytest.mark.parametrize("norm", NORMS)
def test_decoder_layer_agrees_with_torch(norm):
    layer = toys.model(dtype=torch.float32, norm=norm).decoder[1].train()
    theirs = torch_layer(layer, nn.TransformerDecoderLayer, norm)
    batch = toys.batch()
    length, mask = batch.target_mask.shape[1], batch.target_mask
    x, memory = (
        torch.randn(3, length, 8, requires_grad=True),
        torch.randn(3, batch.source.shape[1], 8, requires_grad=True),
    )
    y, other = x.detach().clone().requires_grad_(), memory.detach().clone().requires_grad_()
    ours = layer(x, mask, memory, batch.source_mask)[0]
    expected = theirs(
        y, other, tgt_mask=~causal_mask(length), tgt_key_padding_mask=~mask, memory_key_padding_mask=~batch.source_mask
    )
    assert_close(ours[mask], expected[mask])
    upstream = torch.randn_like(ours)[mask]
    (ours[mask] * upstream).sum().backward()
    (expected[mask] * upstream).sum().backward()
    assert_close(x.grad, y.grad)
    assert_close(memory.grad, other.grad)
    cross = torch.cat([layer.cross.query_projection.weight.grad, layer.cross.memory_projection.weight.grad])
    assert_close(cross, theirs.multihead_attn.in_proj_weight.grad)


def test_capture_gives_every_attention_and_changes_nothing():
    model, batch = toys.model(), toys.batch()
    output = model(batch, capture=("*",))
    stacks = [("encoder", "self"), ("decoder", "self"), ("decoder", "cross")]
    names = {f"{stack}.{layer}.{kind}" for stack, kind in stacks for layer in (1, 2)}
    assert set(output.attention) == names
    assert torch.equal(output.logits, model(batch).logits)
    assert not model(batch).attention
    assert set(model(batch, capture=("decoder.2.*",)).attention) == {"decoder.2.self", "decoder.2.cross"}
    cross = output.attention["decoder.1.cross"]
    assert torch.allclose(cross.sum(-1), torch.ones(()).double())
    assert (cross.masked_fill(batch.source_mask[:, None, None, :], 0) == 0).all()


@pytest.mark.parametrize("built", [toys.model, toys.decoder_only])
def test_embeddings_that_are_not_scaled(built):
    """Nothing else of the model differs: tables whose vectors are longer by the factor give the same."""
    scaled, batch = built(tied="none"), toys.batch()
    unscaled = built(tied="none", scale_embeddings=False)
    with torch.no_grad():
        for module in unscaled.modules():
            if isinstance(module, torch.nn.Embedding):
                module.weight.mul_(8**0.5)
        assert_close(unscaled(batch).logits, scaled(batch).logits)
        written = []
        for model in (scaled, unscaled):
            state = model.start(model.encode(batch.source, batch.source_mask), 9)
            written.append(model.extend(batch.target_input[:, :2], state)[0])
        assert_close(*written)


def test_tied_embeddings_are_one_tensor():
    shared = build_model(toys.config(), 9, 9, True)
    assert shared.source_embedding.tokens is shared.target_embedding.tokens
    assert shared.projection.weight is shared.target_embedding.tokens.weight
    apart = build_model(toys.config(tied="none"), 9, 9, True)
    assert apart.projection.weight is not apart.target_embedding.tokens.weight
    with pytest.raises(UserError, match=r"model\.tied"):
        build_model(toys.config(tied="all"), 9, 9, False)


# Vaswani et al. (2017), table 3: base 65M and big 213M with a shared vocabulary of 37,000.
@pytest.mark.parametrize(("preset", "millions"), [("transformer-base", 63), ("transformer-big", 214)])
def test_presets_have_the_papers_sizes(preset, millions):
    with torch.device("meta"):
        model = build_model(model_section(preset), 37000, 37000, True)
    assert round(sum(parameter.numel() for parameter in model.parameters()) / 1e6) == millions


def test_the_modern_preset_has_the_parameters_of_base_and_no_biases():
    with torch.device("meta"):
        base, modern = (
            build_model(model_section(f"transformer-{name}"), 8000, 8000, True) for name in ("base", "modern")
        )
    counts = [sum(parameter.numel() for parameter in model.parameters()) for model in (base, modern)]
    assert counts[1] == pytest.approx(counts[0], rel=5e-3)
    assert not [name for name, _ in modern.named_parameters() if "bias" in name]
    shares = [layer.mixer.value_share is None for layer in modern.blocks()]
    assert shares == [True, *[False] * 5] * 2


def test_every_preset_builds():
    for preset in PRESETS:
        with torch.device("meta"):
            build_model(model_section(preset), 7, 7, True)


def test_mixers_can_differ_by_layer_and_name_their_key_when_wrong():
    layers = [{"kind": "attention", "heads": 1}, "attention"]
    model = toys.model(decoder={"layers": 2, "mixer": layers})
    assert [layer.mixer.heads for layer in model.decoder] == [1, 2]
    with pytest.raises(UserError, match=r"model.encoder.mixer\[0\].haeds.*did you mean 'heads'"):
        toys.model(encoder={"layers": 1, "mixer": {"kind": "attention", "haeds": 2}})


def test_learned_positions_end_and_sinusoids_do_not():
    long = collate([np.full(40, 5)], [np.full(40, 5)])
    toys.model(max_position=16)(long)
    with pytest.raises(UserError, match=r"model\.max_position"):
        toys.model(max_position=16, position="learned")(long)


@pytest.mark.parametrize("padded", [False, True])
def test_attention_on_a_device_has_a_mask_only_where_something_is_padding(padded: bool, monkeypatch) -> None:
    masks, attention = [], F.scaled_dot_product_attention

    def noted(query, key, value, mask, **options):
        masks.append(mask is not None)
        return attention(query, key, value, mask, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", noted)
    rows = [np.arange(4, 7), np.arange(4, 7 - padded)]
    model, batch = toys.model().to("meta"), collate(rows, rows).to("meta")
    model(batch)
    assert masks == [padded, padded, False, padded, False, padded]  # encoder; decoder, itself and the source
