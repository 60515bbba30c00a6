"""Lightweight convolution: its oracle, its contributions, its window, its dropped weights, its refusals."""

import pytest
import torch

from headway.core.errors import UserError
from headway.mixers import build_mixer
from headway.mixers.lightconv import LightConv
from tests import reference
from tests.mixers.oracles import DIM, assert_equals_oracle, assert_window, decomposed


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("width", [1, 3, 4, 9])
def test_equals_oracle(causal, width):
    assert_equals_oracle(LightConv(DIM, causal, width=width, heads=3), reference.lightconv)


@pytest.mark.parametrize(("causal", "width"), [(False, 3), (False, 4), (True, 4)])
def test_contributions_equal_those_of_the_loops(causal, width):
    mixer, x, found = decomposed(LightConv(DIM, causal, width=width, heads=3), 6, 4)
    names = {(False, 3): "-1 0 +1", (False, 4): "-2 -1 0 +1", (True, 4): "-3 -2 -1 0"}[causal, width]
    assert [span.name for span in found.spans] == names.split()
    for row, length in enumerate((6, 4)):
        gated = reference._gated(mixer, x[row, :length])
        for t in range(length):
            slow = torch.stack(list(reference.lightconv_contributions(mixer, gated, t).values()))  # (k, D)
            assert torch.allclose(found.contributions[row, :, t].transpose(0, 1).flatten(1), slow, atol=1e-12)


@pytest.mark.parametrize(
    ("causal", "width", "window"),
    [(False, 7, range(-3, 4)), (False, 4, range(-2, 2)), (True, 8, range(-7, 1))], ids=str,
)  # fmt: skip
def test_nothing_beyond_the_window_counts(causal, width, window):
    assert_window(LightConv(DIM, causal, width=width, heads=2), window, length=19, changed=9)


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
     ({"heads": 3}, r"heads \(3\) do not divide dim \(8\)")],
)  # fmt: skip
def test_refusals(options, message):
    with pytest.raises(UserError, match=message):
        build_mixer({"kind": "lightconv"} | options, dim=8, causal=False)
