"""Multi-head neural n-grams: their oracle, the identities of their size, their refusals and their state."""

import pytest
import torch

from headway.core.errors import UserError
from headway.mixers import build_mixer
from headway.mixers.ngram import Ngram
from headway.tensors.masks import padding_mask, zero_padding
from tests import reference
from tests.mixers.oracles import DIM, assert_equals_oracle, assert_window, decomposed


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize(
    ("causal", "context"), [(False, False), (False, True), (True, False), (True, "prefix"), (False, "prefix")]
)
def test_equals_oracle(causal, context, n):
    assert_equals_oracle(Ngram(DIM, causal, n=n, heads=3, head_dim=4, global_context=context), reference.ngram)


@pytest.mark.parametrize(("causal", "context"), [(False, False), (False, True), (True, "prefix"), (False, "prefix")])
def test_contributions_equal_those_of_the_loops(causal, context):
    mixer, x, found = decomposed(Ngram(DIM, causal, n=3, heads=3, head_dim=4, global_context=context), 6, 4)
    offsets = [tuple(span) for span in found.spans]
    window = [("-2", -2, -2), ("-1", -1, -1), ("0", 0, 0)] + ([] if causal else [("+1", 1, 1), ("+2", 2, 2)])
    last = {False: [], True: [("global", None, None)], "prefix": [("prefix", None, 0)]}[context]
    assert offsets == window + last
    pre_activation = torch.zeros(2, 6, 12, dtype=torch.float64)
    for row, length in enumerate((6, 4)):
        for k, head in enumerate(reference.heads_of(mixer.in_projection.weight, mixer.in_projection.bias, 3)):
            projected = [reference.linear(*head, x[row, t]) for t in range(length)]
            for t in range(length):
                slow = torch.stack(list(reference.ngram_contributions(mixer, k, projected, t).values()))
                assert torch.allclose(found.contributions[row, k, t], slow, atol=1e-12)
                total = mixer.bias[4 * k : 4 * k + 4] + slow.sum(0)
                pre_activation[row, t, 4 * k : 4 * k + 4] = total
    mask, hidden = (
        padding_mask(torch.tensor([6, 4])),
        found.contributions.sum(3).transpose(1, 2).flatten(2) + mixer.bias,
    )
    assert torch.allclose(hidden[mask], pre_activation[mask], atol=1e-12)


def parameters(causal: bool, **options) -> int:
    options = {"kind": "ngram", "heads": 8, "bias": False} | options
    return sum(parameter.numel() for parameter in build_mixer(options, dim=512, causal=causal).parameters())


def test_sizes_equal_those_of_self_attention():
    attention = build_mixer({"kind": "attention", "bias": False}, dim=512, causal=False)
    size = sum(parameter.numel() for parameter in attention.parameters())
    assert size == 4 * 512 * 512
    assert parameters(False, n=8, global_context=True) == size
    assert parameters(True, n=16) == size


@pytest.mark.parametrize("n", [1, 2, 5])
def test_windows_have_their_width(n):
    """W^k is (2n - 1) d x d, or 2n d x d with a global vector, and n d x d in a decoder."""
    rest, square = 2 * 512 * 512, 64 * 512  # the outer maps, and one position of the window
    assert parameters(False, n=n) == rest + (2 * n - 1) * square
    assert parameters(False, n=n, global_context=True) == rest + 2 * n * square
    assert parameters(True, n=n) == rest + n * square


@pytest.mark.parametrize("context", [True, 1, torch.tensor(True)])
def test_a_causal_mixer_built_without_a_recipe_refuses_it_too(context):
    with pytest.raises(ValueError, match=r"would\s+see the future"):
        Ngram(DIM, True, heads=2, global_context=context)


def test_the_highest_so_far_leaves_padding_out_wherever_it_stands():
    mixer = Ngram(DIM, True, n=2, heads=2, global_context="prefix").double()
    x, mask = torch.randn(1, 5, DIM, dtype=torch.float64), torch.tensor([[False, True, False, True, True]])
    projected = mixer.in_projection(x)[0]
    highest, real = torch.zeros(5, DIM, dtype=torch.float64), []
    for position in range(5):
        real += [projected[position]] if mask[0, position] else []
        if real:
            highest[position] = torch.stack(real).amax(0)
    assert torch.equal(mixer._context(zero_padding(projected[None], mask), mask)[0], highest)


def test_a_causal_mixer_refuses_the_context_of_the_whole_sequence():
    with pytest.raises(UserError, match=r"mixer: global_context: true .* would see the future; .* prefix"):
        build_mixer({"kind": "ngram", "global_context": True}, dim=8, causal=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"n": 0}, "n: input should be greater than 0; received 0"), ({"global_context": "all"}, "global_context"),
     ({"heads": 3}, r"heads \(3\) do not divide dim \(8\)")],
)  # fmt: skip
def test_refusals(options, message):
    with pytest.raises(UserError, match=message):
        build_mixer({"kind": "ngram"} | options, dim=8, causal=False)


def test_nothing_beyond_the_window_counts():
    assert_window(Ngram(DIM, False, n=3, heads=2), range(-2, 3), length=9, changed=4)
