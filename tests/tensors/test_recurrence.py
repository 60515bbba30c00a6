"""Linear recurrences: equal to a loop, in both directions, with every gradient, at all lengths around a chunk's."""

import pytest
import torch

from headway.tensors.recurrence import CHUNK, recurrence


def loop(decay, added, reverse):
    order = range(added.shape[1])[::-1] if reverse else range(added.shape[1])
    state, states = torch.zeros_like(added[:, 0]), {}
    for t in order:
        state = decay[:, t] * state + added[:, t]
        states[t] = state
    return torch.stack([states[t] for t in range(added.shape[1])], 1)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [1, 2, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, CHUNK**2 + 3])
def test_equals_a_loop_with_every_gradient(length, reverse):
    torch.manual_seed(3)
    decay = torch.rand(2, length, 3, dtype=torch.float64)
    decay[0, length // 2] = 0  # all before is forgotten
    inputs = decay.requires_grad_(), torch.randn(2, length, 3, dtype=torch.float64, requires_grad=True)
    fast, slow = recurrence(*inputs, reverse), loop(*inputs, reverse)
    torch.testing.assert_close(fast, slow, atol=1e-12, rtol=0)
    upstream = torch.randn_like(slow)
    gradients = zip(*(torch.autograd.grad((each * upstream).sum(), inputs) for each in (fast, slow)), strict=True)
    for one, other in gradients:
        torch.testing.assert_close(one, other, atol=1e-12, rtol=0)


def test_inputs_stay_as_they_are():
    decay, added = torch.rand(2, 1, CHUNK, 3)
    before = decay.clone(), added.clone()
    recurrence(decay, added)
    assert torch.equal(decay, before[0])
    assert torch.equal(added, before[1])


@pytest.mark.slow
@pytest.mark.parametrize("reverse", [False, True])
def test_a_compiled_program_is_for_all_lengths_up_to_a_power_of_two(reverse):
    from torch._dynamo.testing import CompileCounterWithBackend

    torch.compiler.reset()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(recurrence, fullgraph=True, backend=counter, dynamic=True)
    for length in (17, 20, 24, 29, 31):
        decay, added = torch.rand(2, 2, length, 3, dtype=torch.float64)
        torch.testing.assert_close(compiled(decay, added, reverse), loop(decay, added, reverse))
    assert counter.frame_count <= 2
