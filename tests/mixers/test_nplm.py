"""The neural probabilistic language model's mixer: its oracle and its first averages."""

import pytest
import torch

from headway.mixers.nplm import Nplm
from tests import reference
from tests.mixers.oracles import DIM, assert_equals_oracle, assert_window, decomposed


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "options", [{"n": 2, "blocks": 2, "block_size": 2, "kernels": 2}, {"n": 1, "blocks": 3, "block_size": 1}], ids=str
)
def test_equals_oracle(causal, options):
    assert_equals_oracle(Nplm(DIM, causal, hidden=5, **options), reference.nplm, length=9, lengths=(9, 5))


@pytest.mark.parametrize("causal", [False, True])
def test_contributions_equal_those_of_the_loops(causal):
    mixer, x, found = decomposed(Nplm(DIM, causal, n=2, blocks=2, block_size=3, kernels=2, hidden=5), 11, 4)
    names = ["-1", "0", *([] if causal else ["+1"]), "-4..-2", "-7..-5", *([] if causal else ["+2..+4", "+5..+7"])]
    assert [span.name for span in found.spans] == names
    for row, length in enumerate((11, 4)):
        for t in range(length):
            slow = reference.nplm_contributions(mixer, x[row, :length], t)
            assert [(span.first, span.last) for span in found.spans] == [bounds for bounds, _ in slow]
            assert torch.allclose(found.contributions[row, 0, t], torch.stack([term for _, term in slow]), atol=1e-12)


def test_without_distant_context_a_block_is_not_seen():
    assert_window(Nplm(DIM, True, n=2, blocks=1, block_size=3), range(-4, 1), length=9, changed=1)


def test_kernels_begin_as_means():
    assert torch.equal(Nplm(DIM, False, block_size=4, kernels=3).kernels, torch.full((2, 3, 4), 0.25))
