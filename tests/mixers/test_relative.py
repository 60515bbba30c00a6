"""Relative positions equal their oracles and Hugging Face's; stacks share them."""

import pytest
import torch

from headway.core.errors import UserError
from headway.mixers.attention import Attention
from headway.mixers.relative import Alibi, RelativePositions, Rotary, T5Bias
from tests import reference
from tests.mixers.oracles import DIM, assert_equals_oracle
from tests.rounding import rounding


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("position", [{"kind": "t5", "buckets": 8, "max_distance": 6}, "alibi", "rotary",
                                      {"kind": "rotary", "share": 0.5, "base": 100.0}], ids=str)  # fmt: skip
def test_attention_with_positions_equals_oracle(causal, position):
    mixer = Attention(DIM, causal, heads=3, head_dim=4, position=position)
    assert_equals_oracle(mixer, lambda *given: reference.attention(*given)[0])


@pytest.mark.parametrize("causal", [False, True])
def test_t5_equals_hugging_face(causal):
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5", reason="needs the extra [pretrained]")
    config = t5.T5Config(is_decoder=causal, num_heads=3, d_kv=4, d_model=12)
    peer = t5.T5Attention(config, has_relative_attention_bias=True)
    ours = T5Bias(3, 4, causal)
    with torch.no_grad():
        ours.table.copy_(peer.relative_attention_bias.weight)
    length = 300
    expected = peer.compute_bias(length, length)[0]
    matrix = ours(length, length)
    real = torch.ones(length, length, dtype=torch.bool)
    real = real.tril() if causal else real
    assert torch.equal(matrix[:, real], expected[:, real])


@pytest.mark.parametrize("heads", [1, 2, 6, 8, 12, 16])
def test_alibi_equals_hugging_face(heads):
    bloom = pytest.importorskip("transformers.models.bloom.modeling_bloom", reason="needs the extra [pretrained]")
    length = 9
    alibi = bloom.build_alibi_tensor(torch.ones(1, length), heads, torch.float32)  # slope * key position
    ours = Alibi(heads, 4, True)(length, length)
    for query in range(length):
        row = alibi[:, 0] - alibi[:, 0, query, None]
        assert torch.allclose(ours[:, query, : query + 1], row[:, : query + 1], atol=rounding())


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_rotary_equals_hugging_face(share):
    neox = pytest.importorskip("transformers.models.gpt_neox.modeling_gpt_neox", reason="needs the extra [pretrained]")
    torch.manual_seed(1)
    query, key = torch.randn(2, 1, 2, 7, 8)
    ours = Rotary(2, 8, True, share=share)
    angles = torch.arange(7.0)[:, None] * 10_000 ** (-torch.arange(0, ours.rotated, 2) / ours.rotated)
    angles = torch.cat([angles, angles], -1)[None]
    expected = neox.apply_rotary_pos_emb(query, key, angles.cos(), angles.sin())
    for mine, theirs in zip(
        (ours.rotate(query, torch.arange(7)), ours.rotate(key, torch.arange(7))), expected, strict=True
    ):
        assert torch.allclose(mine, theirs, atol=rounding())


def test_rotated_products_depend_on_distance_alone():
    torch.manual_seed(2)
    position, (query, key) = Rotary(1, 6, True).double(), torch.randn(2, 1, 1, 1, 6, dtype=torch.float64)

    def product(t: int, s: int) -> float:
        return float((position.rotate(query, torch.tensor([t])) * position.rotate(key, torch.tensor([s]))).sum())

    assert product(3, 1) == pytest.approx(product(1003, 1001), abs=1e-9)
    assert product(3, 1) != pytest.approx(product(3, 2), abs=1e-3)


def test_mixers_of_a_stack_share_one_module():
    positions = RelativePositions("t5", causal=True)
    first, second, other = (Attention(12, True, heads=heads, position=positions) for heads in (3, 3, 2))
    assert first.position is second.position
    assert first.position is not other.position


@pytest.mark.parametrize(
    ("config", "message"),
    [("rotery", r"position.kind: unknown position; did you mean 'rotary'"),
     ("learned", "attention reads relative positions"),
     ({"kind": "alibi", "slope": 2}, "position.slope: unknown key"),
     ({"kind": "rotary", "share": 2}, "share: input should be less than or equal to 1"),
     ({"kind": "rotary", "share": 0.1}, "no pair to rotate"),
     ({"kind": "t5", "buckets": 7}, "multiple of"), ({"kind": "t5", "max_distance": 3}, "max_distance must be above")],
)  # fmt: skip
def test_refusals(config, message):
    with pytest.raises(UserError, match=message):
        Attention(12, False, heads=3, position=config)


@pytest.mark.parametrize("kind", ["t5", "alibi"])
@pytest.mark.parametrize("offset", [0, -3, torch.tensor([0, -2])], ids=str)
def test_biases_for_graphs_of_other_engines_are_the_same(kind, offset):
    torch.manual_seed(1)
    position = RelativePositions({"kind": kind}, False).build(4, 8)
    assert torch.equal(position(5, 7, offset), position._every_pair(5, 7, offset, None))
