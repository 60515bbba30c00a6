"""The convolutions below an encoder of speech: their definition, and that padding changes nothing.

Shapes: B batch, F frames, M numbers a frame, S positions that are left, D model.
"""

import numpy as np
import pytest
import torch
from torch import nn

from headway.core.errors import UserError
from headway.models import FrontEndConfig, build_model, model_section
from headway.models.front_end import FrontEnd
from headway.tensors.batch import collate

M, D, V = 7, 8, 9
MODEL = {
    "dim": D, "feed_forward": 10, "heads": 2, "dropout": 0.0, "front_end": {"channels": 12},
    "encoder": {"layers": 2}, "decoder": {"layers": 1},
}  # fmt: skip
MIXERS = ["attention", {"kind": "local", "n": 2}, {"kind": "ngram", "n": 3, "global_context": True}, "nplm"]


class Ramp(nn.Module):
    """Positions that can be told apart."""

    def between(self, start, stop):
        return torch.arange(start, stop, dtype=torch.float64)[:, None] / 10


def front_end(**changes) -> FrontEnd:
    torch.manual_seed(1)
    return FrontEnd(FrontEndConfig(channels=6, **changes), M, D, Ramp(), 0.0, D**0.5).double()


def oracle(module: FrontEnd, frames: torch.Tensor) -> torch.Tensor:
    """One utterance (F, M) through each convolution, output by output, and its gated linear unit."""
    x = [*frames]
    for layer in module.convolutions:
        (kernel,), (stride,), outputs = layer.kernel_size, layer.stride, []
        for centre in range(0, len(x), stride):
            total = layer.bias
            for offset in range(kernel):
                place = centre + offset - kernel // 2
                if 0 <= place < len(x):
                    total = total + layer.weight[:, :, offset] @ x[place]
            half = len(total) // 2
            outputs.append(total[:half] / (1 + (-total[half:]).exp()))
        x = outputs
    return torch.stack([D**0.5 * each + place / 10 for place, each in enumerate(x)])


def batch(lengths, seed=1):
    random = np.random.default_rng(seed)
    sources = [random.normal(size=(length, M)).astype(np.float32) for length in lengths]
    targets = [random.integers(4, V, 3) for _ in lengths]
    return sources, targets


@pytest.mark.parametrize("shape", [{}, {"layers": 1, "kernel": 3}, {"layers": 3, "stride": 3, "kernel": 7}], ids=str)
def test_equal_to_the_definition_in_values_and_gradients(shape):
    module, lengths = front_end(**shape), (13, 5, 1, 8)
    sources, _ = batch(lengths)
    padded = collate(sources, None)
    values, mask = module.read(padded.source.double(), padded.source_mask)
    wanted = [oracle(module, torch.from_numpy(each).double()) for each in sources]
    assert mask.sum(1).tolist() == [len(each) for each in wanted]
    assert module.lengths(torch.tensor(lengths)).tolist() == [len(each) for each in wanted]
    for row, each in enumerate(wanted):
        torch.testing.assert_close(values[row, : len(each)], each)
        assert mask[row].tolist() == [place < len(each) for place in range(mask.shape[1])]
    weights = [torch.randn(each.shape, dtype=torch.float64) for each in wanted]
    parameters = list(module.parameters())
    fast = torch.autograd.grad(
        sum((values[row, : len(each)] * each).sum() for row, each in enumerate(weights)), parameters
    )
    slow = torch.autograd.grad(sum((each * weight).sum() for each, weight in zip(wanted, weights, strict=True)),
                               parameters)  # fmt: skip
    for one, other in zip(fast, slow, strict=True):
        torch.testing.assert_close(one, other)


def test_frames_behind_the_end_are_never_read():
    module = front_end()
    sources, _ = batch((9, 4))
    padded = collate(sources, None)
    values, mask = module.read(padded.source.double(), padded.source_mask)
    spoiled = padded.source.double().masked_fill(~padded.source_mask[..., None], torch.nan)
    again, _ = module.read(spoiled, padded.source_mask)
    torch.testing.assert_close(again[mask], values[mask])


@pytest.mark.parametrize("mixer", MIXERS, ids=str)
def test_a_batch_is_its_utterances_in_values_and_gradients(mixer):
    torch.manual_seed(1)
    config = model_section(MODEL | {"encoder": {"layers": 2, "mixer": mixer}})
    model = build_model(config, M, V, False).double()
    sources, targets = batch((21, 4, 10))
    whole = collate(sources, targets)
    whole = whole.each_tensor(lambda tensor: tensor.double() if tensor.is_floating_point() else tensor)
    output = model(whole, capture=("*.cross",))
    parameters = [each for each in model.parameters() if each.requires_grad]
    together = torch.autograd.grad(output.logits.square().sum(), parameters)
    apart = [torch.zeros_like(each) for each in parameters]
    for row, (source, target) in enumerate(zip(sources, targets, strict=True)):
        one = collate([source], [target])
        one = one.each_tensor(lambda tensor: tensor.double() if tensor.is_floating_point() else tensor)
        alone = model(one, capture=("*.cross",))
        torch.testing.assert_close(output.logits[row], alone.logits[0])
        positions = int(model.source_lengths(torch.tensor(len(source))))
        cross = output.attention["decoder.1.cross"][row]
        torch.testing.assert_close(cross[:, :, :positions], alone.attention["decoder.1.cross"][0])
        assert not cross[:, :, positions:].any()
        for total, each in zip(apart, torch.autograd.grad(alone.logits.square().sum(), parameters), strict=True):
            total += each
    for one, other in zip(together, apart, strict=True):
        torch.testing.assert_close(one, other)


def test_steps_say_what_a_whole_pass_says():
    torch.manual_seed(1)
    model = build_model(model_section(MODEL), M, V, False).double().eval()
    sources, targets = batch((21, 6))
    padded = collate(sources, targets)
    frames = padded.source.double()
    wanted = model(padded.each_tensor(lambda each: each.double() if each.is_floating_point() else each)).logits
    memory = model.encode(frames, padded.source_mask)
    assert memory.mask.sum(1).tolist() == [6, 2]
    state = model.start(memory, 4)
    for index in range(padded.target_input.shape[1]):
        said, state = model.extend(padded.target_input[:, index : index + 1], state)
        torch.testing.assert_close(said, wanted[:, index].log_softmax(-1))


def test_a_source_to_try_the_model_on():
    model = build_model(model_section(MODEL), M, V, False)
    assert model.trial_source(5).shape == (5, M)
    logits = model(collate([model.trial_source(5)], [np.array([4])])).logits
    assert logits.shape == (1, 2, V)


def test_frames_are_padded_with_zeros_and_without_an_end_mark():
    sources, targets = batch((3, 2))
    padded = collate(sources, targets)
    assert padded.source.shape == (2, 3, M)
    assert padded.source.dtype == torch.float32
    np.testing.assert_array_equal(padded.source[0], sources[0])
    np.testing.assert_array_equal(padded.source[1, :2], sources[1])
    assert not padded.source[1, 2].any()
    assert padded.source_mask.tolist() == [[True, True, True], [True, True, False]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"channels": 7}, "channels must be even"), ({"kernel": 4}, "kernel odd"), ({"chanels": 8}, "unknown key")],
)
def test_mistakes(changes, message):
    with pytest.raises(UserError, match=message):
        model_section(MODEL | {"front_end": changes})
