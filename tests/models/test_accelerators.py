"""Models on an accelerator compute what they do on the CPU: losses, in single precision, their gradients, and beams."""

import copy

import pytest
import torch
from torch import nn

from headway.losses import Objective, ObjectiveConfig
from headway.models import Seq2Seq
from headway.search.beam import beam_search
from headway.search.limits import Hypothesis, Limits
from headway.training.updates import TrainingStep
from tests.models import toys
from tests.models.recurrent import toys as recurrent_toys

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")

MIXERS = {
    "attention": "attention",
    "local": {"kind": "local", "n": 2},
    "ngram": {"kind": "ngram", "n": 2},
    "nplm": {"kind": "nplm", "n": 2, "blocks": 2, "block_size": 2},
    "lightconv": {"kind": "lightconv", "width": 3},
    "ssru": "ssru",
}


def agree(model: Seq2Seq) -> None:
    """Compare the loss, its gradients and what a beam finds."""
    other = copy.deepcopy(model).cuda()
    torch.testing.assert_close(loss(model, "cpu"), loss(other, "cuda"))
    for (name, ours), theirs in zip(model.named_parameters(), other.parameters(), strict=True):
        assert (ours.grad is None) == (theirs.grad is None), name
        if ours.grad is not None:
            difference = (ours.grad - theirs.grad.cpu()).abs().max()
            assert difference <= 1e-5 * max(1.0, float(ours.grad.abs().max())), name
    for ours, theirs in zip(beams(model, "cpu"), beams(other, "cuda"), strict=True):
        assert [one.ids for one in ours] == [one.ids for one in theirs]
        scores = [torch.tensor([sum(one.log_probabilities) for one in each]) for each in (ours, theirs)]
        torch.testing.assert_close(*scores)


def loss(model: Seq2Seq, device: str) -> torch.Tensor:
    """The loss without draws. Kernels of recurrent layers have gradients in training alone; they draw nothing here."""
    for module in model.eval().modules():
        module.train(isinstance(module, nn.RNNBase))
    total = TrainingStep(model, Objective(ObjectiveConfig()))(toys.batch().to(device)).total
    total.backward()
    return total.detach().cpu()


def beams(model: Seq2Seq, device: str) -> list[list[Hypothesis]]:
    """What a beam of three finds."""
    batch = toys.batch().to(device)
    with torch.inference_mode():
        memory = model.eval().encode(batch.source, batch.source_mask)
    return beam_search(model, memory, Limits(0, [7] * len(batch.source)), beam=3)


@pytest.mark.parametrize("position", ["sinusoidal", "learned", "rotary", "t5", "alibi"])
def test_positions(position: str) -> None:
    agree(toys.model(position=position))


@pytest.mark.parametrize("mixer", MIXERS.values(), ids=MIXERS)
def test_mixers(mixer: object) -> None:
    sides = {"layers": 2, "mixer": mixer}
    agree(toys.model(encoder=sides, decoder=sides))


@pytest.mark.parametrize("name", recurrent_toys.VARIANTS)
def test_recurrent_models(name: str) -> None:
    agree(recurrent_toys.model(**recurrent_toys.VARIANTS[name]))
