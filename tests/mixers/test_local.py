"""Local attention: its oracle, in blocks and dense; equal to masked full attention; its window."""

import pytest
import torch

from headway.mixers.attention import Attention, attend
from headway.mixers.local import LocalAttention
from headway.tensors.masks import band_mask, padding_mask
from tests import reference
from tests.mixers.oracles import DIM, assert_equals_oracle

POSITIONS = [None, {"kind": "t5", "buckets": 8, "max_distance": 5}, "alibi", {"kind": "rotary", "share": 0.5}]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("position", POSITIONS, ids=str)
@pytest.mark.parametrize("block", [2, 32])
def test_equals_oracle(monkeypatch, causal, position, block):
    monkeypatch.setattr("headway.mixers.local.SMALLEST_BLOCK", block)
    mixer = LocalAttention(DIM, causal, n=3, heads=3, head_dim=4, value_dim=3, position=position)
    assert_equals_oracle(mixer, lambda *given: reference.attention(*given)[0])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("n", [1, 5, 40])
def test_blocks_equal_masked_full_attention(causal, padded, n):
    """At the sizes that are in use, whatever the length leaves of the last block."""
    torch.manual_seed(3)
    local = LocalAttention(DIM, causal, n=n, heads=2).double()
    for length in (81, 96, 130):
        x = torch.randn(2, length, DIM, dtype=torch.float64)
        mask = padding_mask(torch.tensor([length, 50])) if padded else None
        allowed = band_mask(length, length, n, causal)
        allowed = allowed if mask is None else allowed & mask[:, None, None, :]
        values, weights = attend(*local._project(x, torch.arange(length)), allowed, need_weights=True)
        full = local._finish(values, weights, mask)
        assert torch.allclose(local(x, mask).values, full.values, atol=1e-12)
        assert torch.allclose(local(x, mask, need_weights=True).weights, full.weights, atol=1e-12)


@pytest.mark.parametrize("causal", [False, True])
def test_no_query_is_left_without_a_key(monkeypatch, causal):
    """Of such a row fused kernels make NaN, also where what comes of it is dropped."""
    seen = []

    def noted(query, key, value, allowed, **options):
        seen.append(allowed.broadcast_to(len(query), 1, query.shape[2], key.shape[2]))
        return attend(query, key, value, allowed, **options)

    monkeypatch.setattr("headway.mixers.local.attend", noted)
    local = LocalAttention(DIM, causal, n=5, heads=2)
    for length in (40, 64, 81, 130):  # dense, then in blocks
        local(torch.randn(2, length, DIM), padding_mask(torch.tensor([length, 9])))
    assert len(seen) == 4
    assert all(allowed.any(-1).all() for allowed in seen)


def test_a_wide_window_is_self_attention():
    torch.manual_seed(4)
    local, full = LocalAttention(DIM, True, n=20, heads=2).double(), Attention(DIM, True, heads=2).double()
    full.load_state_dict(local.state_dict())
    x = torch.randn(2, 9, DIM, dtype=torch.float64)
    assert torch.allclose(local(x, None).values, full(x, None).values, atol=1e-12)
