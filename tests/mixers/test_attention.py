"""Attention equals its oracle, in values, weights and every gradient."""

import pytest
import torch
from torch.nn import functional as F

from headway.mixers.attention import Attention, attend
from headway.tensors.masks import padding_mask
from tests import reference
from tests.mixers.oracles import assert_same, gradients


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"head_dim": 5},
        {"key_dim": 2, "value_dim": 5},
        {"head_dim": 3, "key_dim": 4},
        {"heads": 4, "head_dim": 2, "key_value_heads": 2},
        {"heads": 4, "key_dim": 2, "value_dim": 3, "key_value_heads": 1, "position": "rotary", "query_key_norm": True},
        {"forget": True},
        {"heads": 4, "head_dim": 2, "key_value_heads": 2, "forget": True, "position": "alibi", "query_key_norm": True},
    ],
    ids=str,
)
def test_self_attention_equals_oracle(monkeypatch, causal, options, fused):
    monkeypatch.setattr("headway.mixers.attention.MOST_EXPLICIT_WEIGHTS", 0 if fused else 1 << 27)
    torch.manual_seed(2)
    mixer = Attention(6, causal, **{"heads": 3} | options).double()
    for parameter in mixer.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    x = torch.randn(2, 4, 6, dtype=torch.float64, requires_grad=True)
    mask = padding_mask(torch.tensor([4, 2]))
    values, weights = mixer(x, mask, need_weights=not fused)
    slow_values, slow_weights = reference.attention(mixer, x, mask)
    assert torch.allclose(values, slow_values, atol=1e-12)
    assert fused or torch.allclose(weights, slow_weights, atol=1e-12)
    upstream = torch.randn_like(values)
    assert_same(gradients(mixer, (values * upstream).sum(), x), gradients(mixer, (slow_values * upstream).sum(), x))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_explicit_and_fused_attention_agree(monkeypatch, causal, padded):
    torch.manual_seed(5)
    query, key, value = torch.randn(3, 2, 3, 7, 4, dtype=torch.float64)
    allowed = padding_mask(torch.tensor([7, 5]))[:, None, None, :] if padded else None
    explicit, _ = attend(query, key, value, allowed, causal=causal)
    monkeypatch.setattr("headway.mixers.attention.MOST_EXPLICIT_WEIGHTS", 0)
    called = []
    fused_kernel = F.scaled_dot_product_attention
    monkeypatch.setattr(F, "scaled_dot_product_attention", lambda *a, **k: called.append(1) or fused_kernel(*a, **k))
    fused, _ = attend(query, key, value, allowed, causal=causal)
    assert called
    assert torch.allclose(explicit, fused, atol=1e-12)


@pytest.mark.parametrize("sizes", [{}, {"key_dim": 2}, {"value_dim": 2}])
def test_heads_that_do_not_fit_are_refused(sizes):
    with pytest.raises(ValueError, match=r"heads \(4\) do not divide dim \(6\)"):
        Attention(6, False, heads=4, **sizes)
    Attention(6, False, heads=4, key_dim=2, value_dim=1)


def test_keys_and_values_have_as_many_heads_as_are_asked_for():
    with pytest.raises(ValueError, match=r"key_value_heads \(3\) do not divide heads \(4\)"):
        Attention(8, False, heads=4, key_value_heads=3)
    mixer = Attention(8, True, heads=4, key_value_heads=2)
    assert mixer.initial_state(3, 5).keys.shape == (6, 3, 2, 2)
    assert "key_value_heads=2" in repr(mixer)


@pytest.mark.parametrize("causal", [False, True])
def test_a_gate_that_is_shut_hides_what_is_before_it(causal):
    mixer, x = Attention(6, causal, heads=2, forget=True), torch.randn(1, 7, 6)
    x[:, :, 0] = 1
    x[:, 4, 0] = 0
    torch.nn.init.zeros_(mixer.forget.weight)
    mixer.forget.weight.data[:, 0], mixer.forget.bias.data[:] = 100, -50
    weights = mixer(x, None, need_weights=True).weights
    assert (weights[:, :, 4:, :4] < 1e-10).all()
    assert causal or (weights[:, :, :4, 4:] < 1e-10).all()


def test_attention_dropout_drops_only_while_training():
    torch.manual_seed(6)
    mixer = Attention(6, False, heads=2, dropout=0.5)
    x = torch.randn(2, 5, 6)
    assert not torch.equal(mixer(x, None).values, mixer(x, None).values)
    mixer.eval()
    assert torch.equal(mixer(x, None).values, mixer(x, None).values)


def test_a_state_refuses_more_positions_than_it_has_room_for():
    mixer, x = Attention(6, True, heads=2), torch.randn(2, 3, 6)
    with torch.no_grad():
        _, state = mixer.extend(x, mixer.initial_state(2, 4))
        _, full = mixer.extend(x, state, torch.tensor([1, 0]))  # the padding needs no room
        assert full.lengths.tolist() == [4, 3]
        for lengths in (None, torch.tensor([2, 1])):
            with pytest.raises(ValueError, match="room for 4 positions cannot hold"):
                mixer.extend(x, state, lengths)


@pytest.mark.parametrize("compiled", [False, True])
def test_memory_that_select_leaves_as_it_was_is_never_read(monkeypatch, compiled):
    """Rows at different positions, after a selection into memory that holds no numbers."""
    torch.manual_seed(7)
    mixer, x = Attention(6, True, heads=2).double(), torch.randn(3, 8, 6, dtype=torch.float64)

    def select(state, rows):
        with monkeypatch.context() as patch:
            patch.setattr(torch.Tensor, "new_empty", lambda slots, *shape: slots.new_full(shape, float("nan")))
            return state.select(rows)

    extend = torch.compile(mixer.extend, fullgraph=True, backend="aot_eager") if compiled else mixer.extend
    with torch.no_grad():
        whole = mixer(x, None).values
        _, state = mixer.extend(x[:, :4], mixer.initial_state(3, 8), torch.tensor([4, 1, 2]))
        order = torch.tensor([2, 0, 1])
        x, whole, state = x[order], whole[order], select(state, order)
        for _ in range(3):
            new = x[torch.arange(3), state.lengths][:, None]
            values, after = extend(new, state)
            assert torch.allclose(values[:, 0], whole[torch.arange(3), state.lengths], atol=1e-12)
            state = select(after, torch.arange(3))
