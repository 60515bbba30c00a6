"""Decoding 10,000 positions with small states: they stay as small as they were, and the last step is still right."""

import pytest
import torch
from torch import Tensor

from headway.mixers import State, build_mixer

SMALL_STATES = {
    "lightconv": {"kind": "lightconv", "width": 5, "heads": 2},
    "local": {"kind": "local", "n": 5, "heads": 2},
    "local, rotary": {"kind": "local", "n": 5, "heads": 2, "position": "rotary"},
    "ngram": {"kind": "ngram", "n": 5, "heads": 2},
    "ngram, prefix": {"kind": "ngram", "n": 5, "heads": 2, "global_context": "prefix"},
    "nplm": {"kind": "nplm", "n": 2, "blocks": 2, "block_size": 3},
    "ssru": {"kind": "ssru"},
}


def size(state: State) -> int:
    """Bytes that the state's tensors hold on to."""
    return sum(tensor.untyped_storage().nbytes() for tensor in vars(state).values() if isinstance(tensor, Tensor))


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL_STATES)
def test_state_does_not_grow_with_length(name):
    torch.manual_seed(1)
    length, dim = 10_000, 4
    mixer = build_mixer(SMALL_STATES[name], dim, causal=True).double().eval()
    x = torch.randn(1, length, dim, dtype=torch.float64)
    state, sizes = mixer.initial_state(1, length), {}
    with torch.inference_mode():
        for position in range(length):
            last, state = mixer.extend(x[:, position : position + 1], state)
            sizes[position] = size(state)
        whole = mixer(x, None).values
    assert sizes[length - 1] == sizes[20] < 1000
    assert torch.allclose(last, whole[:, -1:], atol=1e-9)
