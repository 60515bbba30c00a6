"""Compiled training: its gradients are those of the same step without the compiler, and a run goes on bit for bit."""

import pytest
import torch

from headway.losses import Objective, ObjectiveConfig
from headway.tensors.batch import collate
from headway.training.updates import TrainingStep
from tests.models import toys as models
from tests.training import toys
from tests.training.kills import assert_same

# The compiler looks for gradients that inner tensors do not have, and hides the warning from all but pytest.
HIDDEN = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
pytestmark = [pytest.mark.slow, HIDDEN]


def gradients(step, batch):
    step.zero_grad()
    step(batch).total.backward()
    return {name: parameter.grad.clone() for name, parameter in step.named_parameters()}


def test_gradients_of_one_program_for_all_lengths_are_those_without_it():
    from torch._dynamo.testing import CompileCounter

    torch._dynamo.reset()
    generator = torch.Generator().manual_seed(1)

    def sequences(lengths, size):
        return [torch.randint(4, size, (length,), generator=generator).numpy() for length in lengths]

    step, counter = TrainingStep(models.model().train(), Objective(ObjectiveConfig())), CompileCounter()
    batches = [
        collate(sequences(lengths, models.SOURCE_SIZE), sequences(reversed(lengths), models.TARGET_SIZE))
        for lengths in ((5, 3, 6), (2, 9), (7, 4, 4, 5))
    ]
    expected = [gradients(step, batch) for batch in batches]
    step.compile(dynamic=True, backend=counter)
    found = [gradients(step, batch) for batch in batches]
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
    assert counter.frame_count == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
def test_a_run_goes_on_bit_for_bit(tmp_path):
    settings = {"optimizer": {"schedule": "constant"}, "model": {"dropout": 0.2}, "compile": True}
    whole = toys.run(tmp_path, "whole", updates=4, **settings)
    toys.run(tmp_path, "half", updates=2, **settings)
    assert_same(toys.run(tmp_path, "half", resume=True, updates=4, **settings), whole)
