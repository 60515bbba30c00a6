"""Merged attention and value residuals equal their equations; what they cannot do is refused."""

import pytest
import torch

from headway.core.errors import UserError
from headway.models import build_model, model_section
from tests import reference
from tests.models import toys

MERGED = {"layers": 2, "cross": "merged"}
SHARED = {"layers": 3}


def heads_of(mixer, x):
    """Queries, keys and values of one vector, each a list of heads."""
    parts = reference.parts_of(mixer.in_projection, mixer.heads, (mixer.key_dim, mixer.key_dim, mixer.value_dim))
    return [reference.linear(*part, x).chunk(mixer.heads) for part in parts]


def attended(mixer, x, memory=(), first=None):
    """The output of causal attention for vectors x_1 .. x_T beside those of a source, with its values and weights.

    softmax over [source; prefix] of q_t . k_s / sqrt(d), values lambda v + (1 - lambda) v_1 where `first` has v_1.
    """
    own, source = [heads_of(mixer, each) for each in x], [heads_of(mixer, each) for each in memory]
    values = [each[2] for each in own]
    if first is not None and mixer.value_share is not None:
        share = mixer.value_share[0]
        values = [
            [share * v + (1 - share) * v1 for v, v1 in zip(mine, lowest, strict=True)]
            for mine, lowest in zip(values, first, strict=True)
        ]
    rows, all_weights = [], []
    for t in range(len(x)):
        seen = [(each[1], each[2]) for each in source] + [(own[s][1], values[s]) for s in range(t + 1)]
        joined, of_heads = [], []
        for head in range(mixer.heads):
            scores = [(own[t][0][head] * key[head]).sum() / mixer.key_dim**0.5 for key, _ in seen]
            weights = reference.softmax(scores)
            of_heads.append(weights)
            joined.append(sum(w * value[head] for w, (_, value) in zip(weights, seen, strict=True)))
        rows.append(reference.linear(mixer.out_projection.weight, mixer.out_projection.bias, torch.cat(joined)))
        all_weights.append(of_heads)
    return torch.stack(rows), values, all_weights


def same_gradients(model, fast, slow):
    upstream = torch.randn(slow.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    pairs = [torch.autograd.grad((y * upstream).sum(), list(model.parameters())) for y in (fast, slow)]
    for (name, _), one, other in zip(model.named_parameters(), *pairs, strict=True):
        assert torch.allclose(one, other, rtol=1e-8, atol=1e-10), name


def test_keys_of_the_source_are_not_rotated():
    mixer = toys.model(position="rotary", decoder=MERGED).decoder[0].mixer
    x, memory = (torch.randn(1, 4, mixer.in_projection.in_features, dtype=torch.float64) for _ in range(2))
    weights = mixer(x, None, need_weights=True, view=mixer.project(memory, None)).weights
    query = torch.stack([torch.stack(heads_of(mixer, each)[0]) for each in x[0]], 1)[None]
    keys = torch.stack([torch.stack(heads_of(mixer, each)[1]) for each in memory[0]], 1)[None]
    scores = mixer.position.rotate(query, torch.arange(4)) @ keys.transpose(2, 3) / mixer.key_dim**0.5
    shares = weights[..., :4] / weights[..., :4].sum(-1, keepdim=True)
    assert torch.allclose(shares, scores.softmax(-1), rtol=1e-10)


@pytest.mark.parametrize("shared", [False, True])
def test_merged_attention_equals_its_oracle(shared):
    model, batch = toys.model(decoder=MERGED, value_residual=shared), toys.batch()
    if shared:
        model.encoder[1].mixer.value_share = None  # whose oracle is below
        model.encoder[1].mixer.shares_values = False
    output = model(batch, capture=("decoder.*",))
    memory = reference.embed(model.source_embedding.tokens, batch.source)
    for layer in model.encoder:
        memory = reference.encoder_layer(layer, memory, batch.source_mask)
    rows = []
    targets = reference.embed(model.target_embedding.tokens, batch.target_input)
    for row in range(len(targets)):
        x, first = targets[row][batch.target_mask[row]], None
        source = list(memory[row][batch.source_mask[row]])
        for number, block in enumerate(model.decoder, start=1):
            values, own, weights = attended(block.mixer, list(x), source, first)
            first = own if first is None else first
            x = reference.layer_norm(block.mixer_residual.norm, x + values)
            fed = reference.feed_forward(block.feed_forward, x)
            x = reference.layer_norm(block.feed_forward_residual.norm, x + fed)
            for t, head in ((t, head) for t in range(len(x)) for head in range(2)):
                found = [output.attention[f"decoder.{number}.{kind}"][row, head, t] for kind in ("cross", "self")]
                seen = torch.cat([found[0][: len(source)], found[1][: t + 1]])
                assert torch.allclose(seen, torch.stack(list(weights[t][head])), atol=1e-10)
                assert torch.cat(found).sum().item() == pytest.approx(1, abs=1e-12)
        rows.append(x @ model.projection.weight.T)
    fast, slow = output.logits[batch.target_mask], torch.cat(rows)
    assert torch.allclose(fast, slow, atol=1e-10)
    same_gradients(model, fast, slow)


@pytest.mark.parametrize("mixer", ["attention", ["attention", "attention", {"kind": "attention"}]])
def test_value_residuals_equal_their_oracle(mixer):
    options = {"value_residual": True} if mixer == "attention" else {}
    if not options:  # the layer between asks for none
        mixer[2] = {"kind": "attention", "value_residual": True}
    model, batch = toys.decoder_only(decoder={"layers": 3, "mixer": mixer}, position="none", **options), toys.batch()
    shares = [layer.mixer.value_share is not None for layer in model.decoder]
    assert shares == ([False, True, True] if options else [False, False, True])
    rows = []
    for row in range(3):
        ids = batch.source[row][batch.source_mask[row]], batch.target_input[row][batch.target_mask[row]]
        tables = (model.source_tokens.weight, model.target_tokens.weight)
        x = torch.cat([table[each] for table, each in zip(tables, ids, strict=True)]) * 8**0.5
        first = None
        for block in model.decoder:
            values, own, _ = attended(block.mixer, list(x), (), first)
            first = own if first is None else first
            x = reference.layer_norm(block.mixer_residual.norm, x + values)
            fed = reference.feed_forward(block.feed_forward, x)
            x = reference.layer_norm(block.feed_forward_residual.norm, x + fed)
        rows.append(x[len(ids[0]) :] @ model.projection.weight.T)
    fast, slow = model(batch).logits[batch.target_mask], torch.cat(rows)
    assert torch.allclose(fast, slow, atol=1e-10)
    same_gradients(model, fast, slow)


def test_one_set_of_maps_serves_source_and_prefix():
    counts = [sum(each.numel() for each in toys.model(decoder={"layers": 2, "cross": cross}).parameters())
              for cross in ("multi_head", "merged")]  # fmt: skip
    attention_and_norm = 4 * (8 * 8 + 8) + 2 * 8
    assert counts[0] - counts[1] == 2 * attention_and_norm


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"decoder": {"cross": "merged", "mixer": "local"}}, "needs mixer attention in each layer, not local"),
        ({"decoder": {"layers": 2, "cross": "merged", "mixer": ["attention", "ngram"]}}, "each layer, not ngram"),
        ({"decoder": {"cross": {"kind": "merged", "heads": 2}}}, "has no options"),
        ({"kind": "recurrent", "attention": {"score": "merged"}}, "unknown score 'merged'"),
        ({"encoder": {"layers": 2, "mixer": [{"kind": "attention", "value_residual": True}, "attention"]}},
         r"model\.encoder\.mixer.*mixed into those of attention above it"),
        ({"encoder": {"layers": 1, "mixer": {"kind": "attention", "value_residual": True}}}, "of which there is none"),
        ({"value_residual": True, "encoder": {"layers": 2, "mixer": ["attention", {"kind": "attention", "heads": 4}]}},
         "as many heads"),
        ({"encoder": {"layers": 1, "mixer": {"kind": "local", "value_residual": True}}}, "unknown key"),
    ],
)  # fmt: skip
def test_mistakes(section, message):
    with pytest.raises(UserError, match=message):
        build_model(model_section({"dim": 16, "heads": 8} | section if "kind" not in section else section), 9, 9, True)
