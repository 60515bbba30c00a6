"""The simpler simple recurrent unit: its oracle, gates that are shut or open, and the precision of its mean."""

import pytest
import torch

from headway.mixers.ssru import Ssru
from tests import reference
from tests.mixers.oracles import DIM, assert_equals_oracle


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("length", "lengths"), [(1, (1, 1)), (7, (7, 4)), (21, (21, 17))])
def test_equals_oracle(causal, length, lengths):
    assert_equals_oracle(Ssru(DIM, causal), reference.ssru, length, lengths)


@pytest.mark.parametrize("causal", [False, True])
def test_a_gate_that_is_shut_leaves_the_position_alone(causal):
    mixer, x = Ssru(DIM, causal), torch.randn(2, 40, DIM)
    torch.nn.init.constant_(mixer.bias, -1e4)
    alone = torch.nn.functional.linear(x, mixer.in_projection.weight[:DIM]).relu()
    torch.testing.assert_close(mixer(x, None).values, alone)


def test_an_open_gate_carries_the_first_position_far():
    mixer, x = Ssru(DIM, True).double(), torch.randn(1, 1000, DIM, dtype=torch.float64)
    torch.nn.init.zeros_(mixer.in_projection.weight[DIM:])
    torch.nn.init.constant_(mixer.bias, 7)
    x.requires_grad_()
    mixer(x, None).values[:, -1].sum().backward()
    assert (x.grad[0, 1:].abs() > x.grad[0, :-1].abs()).any(0).all()
    open_for = torch.sigmoid(torch.tensor(7.0, dtype=torch.float64)) ** 999
    torch.testing.assert_close(x.grad[:, 0], x.grad[:, -1] * open_for)


def test_the_mean_is_float32_under_autocast():
    mixer, x = Ssru(DIM, True), torch.randn(2, 3, DIM)
    with torch.autocast("cpu", torch.bfloat16):
        _, state = mixer.extend(x, mixer.initial_state(2, 3))
    assert state.mean.dtype == torch.float32
