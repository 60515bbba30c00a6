"""Guided alignment equals its oracle, in value and every gradient, and is a mean over the linked target tokens."""

import numpy as np
import pytest
import torch

from headway.losses import Objective, ObjectiveConfig
from headway.losses.guided_alignment import guided_loss
from headway.tensors.batch import WHOLE, Batch, collate, rows
from tests import reference
from tests.losses.toys import gradients
from tests.models import toys

# Target token, source token and share, of three pairs of 5 and 4, 3 and 6, 6 and 1 tokens; the last pair has none.
LINKS: list[list[tuple[int, int, float]]] = [
    [(0, 2, 1.0), (1, 0, 0.5), (1, 4, 0.5), (3, 1, 1.0)],
    [(2, 2, 0.25), (2, 0, 0.75), (5, 1, 1.0)],
    [],
]


def batch() -> Batch:
    plain = toys.batch()
    sources = [row[mask][:-1].numpy() for row, mask in zip(plain.source, plain.source_mask, strict=True)]
    targets = [row[mask][:-1].numpy() for row, mask in zip(plain.target_output, plain.target_mask, strict=True)]
    labels = [{"links": np.array([(t, s, share * WHOLE) for t, s, share in pair]).reshape(-1, 3)} for pair in LINKS]
    return collate(sources, targets, labels=labels)


def objective(**options: object) -> Objective:
    return Objective(ObjectiveConfig.model_validate({"losses": [{"kind": "guided_alignment"} | options]}))


def test_batches_carry_links() -> None:
    links = batch().labels["links"]
    assert links.shape == (3, 7, 7)
    found = {(b, t, s): links[b, t, s].item() for b, t, s in links.nonzero().tolist()}
    assert found == {(b, t, s): share for b, pair in enumerate(LINKS) for t, s, share in pair}
    assert batch().counts == {"links": 5, "target_tokens": 14}


@pytest.mark.parametrize(("layer", "head"), [("decoder.1.cross", 2), ("decoder.2.cross", 1)])
def test_equals_the_oracle(layer: str, head: int) -> None:
    model, given, chosen = toys.model(), batch(), objective(layer=layer, head=head, weight=0.3)
    output = model(given, capture=chosen.capture)
    assert set(output.attention) == {layer}
    loss = chosen(output, given).parts["guided_alignment"]
    slow = 0.3 * 14 * reference.guided_alignment(output.attention[layer], LINKS, head - 1)
    assert loss.item() == pytest.approx(slow.item(), rel=1e-12)
    fast = gradients(model, loss)
    for name, expected in gradients(model, slow).items():
        assert torch.allclose(fast[name], expected, rtol=1e-9, atol=1e-11), name
    assert fast["decoder.0.cross.query_projection.weight"].abs().max() > 0


def test_processes_share_the_mean_of_the_whole_batch() -> None:
    model, given, chosen = toys.model(), batch(), objective(layer="decoder.1.cross")
    whole = chosen(model(given, capture=chosen.capture), given).parts["guided_alignment"]
    shares = [rows(given, rank, 4) for rank in range(4)]
    parts = [chosen(model(each, capture=chosen.capture), each).parts["guided_alignment"] for each in shares]
    assert sum(part.item() for part in parts) == pytest.approx(whole.item(), rel=1e-6)
    assert parts[2].item() == parts[3].item() == 0  # a pair without links; a process without a pair


def test_a_weight_that_underflowed_keeps_the_loss_finite() -> None:
    weights = torch.tensor([[[1.0, 0.0], [0.5, 0.5]]], requires_grad=True)
    loss = guided_loss(weights, torch.tensor([[[0.0, 1.0], [0.0, 0.0]]]))
    loss.backward()
    assert loss.isfinite()
    assert weights.grad is not None
    assert weights.grad.isfinite().all()
    assert not weights.grad[0, 1].any()  # a row without links learns nothing
