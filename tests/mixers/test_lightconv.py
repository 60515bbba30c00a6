"""Lightweight convolution: its oracle, its contributions, its window, its dropped weights, its refusals."""

import pytest
import torch

from headway.errors import UserError
from headway.mixers import build_mixer
from headway.mixers.lightconv import LightConv
from headway.tensors.masks import padding_mask
from tests import reference
from tests.mixers.oracles import DIM, assert_equals_oracle


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("width", [1, 3, 4, 9])
def test_equals_oracle(causal, width):
    assert_equals_oracle(LightConv(DIM, causal, width=width, heads=3), reference.lightconv)


@pytest.mark.parametrize(("causal", "width"), [(False, 3), (False, 4), (True, 4)])
def test_contributions_equal_those_of_the_loops(causal, width):
    mixer = LightConv(DIM, causal, width=width, heads=3).double()
    for parameter in mixer.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    x, mask = torch.randn(2, 6, DIM, dtype=torch.float64), padding_mask(torch.tensor([6, 4]))
    decomposed = mixer.contributions(x, mask)
    names = {(False, 3): "-1 0 +1", (False, 4): "-2 -1 0 +1", (True, 4): "-3 -2 -1 0"}[causal, width]
    assert [span.name for span in decomposed.spans] == names.split()
    for row, length in enumerate((6, 4)):
        gated = reference._gated(mixer, x[row, :length])
        for t in range(length):
            slow = torch.stack(list(reference.lightconv_contributions(mixer, gated, t).values()))  # (k, D)
            assert torch.allclose(decomposed.contributions[row, :, t].transpose(0, 1).flatten(1), slow, atol=1e-12)


@pytest.mark.parametrize(
    ("causal", "width", "window"),
    [(False, 7, range(-3, 4)), (False, 4, range(-2, 2)), (True, 8, range(-7, 1))], ids=str,
)  # fmt: skip
def test_nothing_beyond_the_window_counts(causal, width, window):
    mixer = LightConv(DIM, causal, width=width, heads=2).double()
    x = torch.randn(1, 19, DIM, dtype=torch.float64)
    changed = x.clone()
    changed[:, 9] += 1
    difference = (mixer(x, None).values - mixer(changed, None).values).abs().amax((0, 2))
    assert (difference > 0).tolist() == [9 - t in window for t in range(19)]


def test_sizes_are_those_of_the_paper():
    mixer = build_mixer("lightconv", dim=512, causal=False, width=31, heads=16, bias=False)
    assert sum(parameter.numel() for parameter in mixer.parameters()) == 3 * 512 * 512 + 16 * 31


def test_normalised_weights_are_dropped_while_training():
    mixer = LightConv(DIM, True, width=50, heads=3, dropout=0.4)
    torch.manual_seed(5)
    kept = mixer.weight.softmax(-1) / 0.6
    weights = mixer._weights()
    dropped = weights == 0
    assert 0.2 < dropped.float().mean() < 0.6
    assert torch.allclose(weights, kept.masked_fill(dropped, 0))
    assert torch.equal(mixer.eval()._weights(), mixer.weight.softmax(-1))


@pytest.mark.parametrize(
    ("options", "message"),
    [({"width": 0}, "width: input should be greater than 0; received 0"),
     ({"heads": 3}, r"heads \(3\) do not divide dim \(8\)"), ({"dropout": 2}, "dropout: "), ({"n": 3}, "unknown key")],
)  # fmt: skip
def test_refusals(options, message):
    with pytest.raises(UserError, match=message):
        build_mixer({"kind": "lightconv"} | options, dim=8, causal=False)
    with pytest.raises(ValueError, match="width must be at least 1; received 0"):
        LightConv(DIM, True, width=0, heads=3)
