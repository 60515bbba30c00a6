"""Models on an accelerator compute what they do on the CPU: losses, gradients and beams, in double precision."""

import copy

import pytest
import torch

from headway.losses import Objective, ObjectiveConfig
from headway.models import Seq2Seq
from headway.runs.training.updates import TrainingStep
from headway.search.beam import beam_search
from headway.search.limits import Limits
from tests.models import toys
from tests.models.recurrent import toys as recurrent_toys

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")

MIXERS = {
    "attention": "attention",
    "local": {"kind": "local", "n": 2},
    "ngram": {"kind": "ngram", "n": 2},
    "nplm": {"kind": "nplm", "n": 2, "blocks": 2, "block_size": 2},
    "lightconv": {"kind": "lightconv", "width": 3},
}
# Draws of hard attention are random, and those of another device are others.
RECURRENT = [name for name in recurrent_toys.VARIANTS if not name.startswith("hard")]


def agree(model: Seq2Seq) -> None:
    """Compare the loss, its gradients and what a beam finds."""
    toy, other = toys.batch(), copy.deepcopy(model).cuda()
    totals = []
    for each, device in ((model, "cpu"), (other, "cuda")):
        loss = TrainingStep(each, Objective(ObjectiveConfig()))(toy.to(device))
        loss.total.backward()
        totals.append(loss.total.cpu())
    torch.testing.assert_close(*totals)
    for (name, ours), theirs in zip(model.named_parameters(), other.parameters(), strict=True):
        assert (ours.grad is None) == (theirs.grad is None), name
        if ours.grad is not None:
            torch.testing.assert_close(ours.grad, theirs.grad.cpu(), msg=lambda text, name=name: f"{name}: {text}")
    found = []
    for each, device in ((model, "cpu"), (other, "cuda")):
        batch = toy.to(device)
        with torch.inference_mode():
            memory = each.encode(batch.source, batch.source_mask)
        found.append(beam_search(each, memory, Limits(0, [7] * len(batch.source)), beam=3))
    for ours, theirs in zip(*found, strict=True):
        assert [one.ids for one in ours] == [one.ids for one in theirs]
        scores = [torch.tensor([sum(one.log_probabilities) for one in each]) for each in (ours, theirs)]
        torch.testing.assert_close(*scores)


@pytest.mark.parametrize("position", ["sinusoidal", "learned", "rotary", "t5", "alibi"])
def test_positions(position: str) -> None:
    agree(toys.model(position=position))


@pytest.mark.parametrize("mixer", MIXERS.values(), ids=MIXERS)
def test_mixers(mixer: object) -> None:
    sides = {"layers": 2, "mixer": mixer}
    agree(toys.model(encoder=sides, decoder=sides))


@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_models(name: str) -> None:
    agree(recurrent_toys.model(**recurrent_toys.VARIANTS[name]))
