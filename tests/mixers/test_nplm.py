"""The neural probabilistic language model's mixer: its oracle, its first averages, its refusals."""

import pytest
import torch

from headway.errors import UserError
from headway.mixers import build_mixer
from headway.mixers.nplm import Nplm
from headway.tensors.masks import padding_mask
from tests import reference
from tests.mixers.oracles import DIM, assert_equals_oracle


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "options", [{"n": 2, "blocks": 2, "block_size": 2, "kernels": 2}, {"n": 1, "blocks": 3, "block_size": 1}], ids=str
)
def test_equals_oracle(causal, options):
    assert_equals_oracle(Nplm(DIM, causal, hidden=5, **options), reference.nplm, length=9, lengths=(9, 5))


@pytest.mark.parametrize("causal", [False, True])
def test_contributions_equal_those_of_the_loops(causal):
    mixer = Nplm(DIM, causal, n=2, blocks=2, block_size=3, kernels=2, hidden=5).double()
    for parameter in mixer.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    x, mask = torch.randn(2, 11, DIM, dtype=torch.float64), padding_mask(torch.tensor([11, 4]))
    decomposed = mixer.contributions(x, mask)
    names = ["-1", "0", *([] if causal else ["+1"]), "-4..-2", "-7..-5", *([] if causal else ["+2..+4", "+5..+7"])]
    assert [span.name for span in decomposed.spans] == names
    for row, length in enumerate((11, 4)):
        for t in range(length):
            slow = reference.nplm_contributions(mixer, x[row, :length], t)
            assert [(span.first, span.last) for span in decomposed.spans] == [bounds for bounds, _ in slow]
            assert torch.allclose(
                decomposed.contributions[row, 0, t], torch.stack([term for _, term in slow]), atol=1e-12
            )


def test_without_distant_context_a_block_is_not_seen():
    mixer = Nplm(DIM, True, n=2, blocks=1, block_size=3).double()
    x = torch.randn(1, 9, DIM, dtype=torch.float64)
    changed = x.clone()
    changed[:, 1] += 1
    difference = (mixer(x, None).values - mixer(changed, None).values).abs().amax((0, 2))
    assert (difference > 0).tolist() == [1 <= t <= 1 + 4 for t in range(9)]


def test_kernels_begin_as_means():
    assert torch.equal(Nplm(DIM, False, block_size=4, kernels=3).kernels, torch.full((2, 3, 4), 0.25))


@pytest.mark.parametrize("name", ["n", "block_size", "kernels"])
def test_sizes_are_checked(name):
    with pytest.raises(UserError, match=rf"mixer\.{name}: input should be greater than 0; received 0"):
        build_mixer({"kind": "nplm", name: 0}, dim=8, causal=True)
