"""The dependency loss equals its oracle, in value and every gradient; rows of the decoder mean what they should."""

import math

import pytest
import torch

from headway.losses import Objective, ObjectiveConfig
from headway.losses.dependency_loss import attachment_loss, decoder_heads
from headway.tensors.batch import rows
from tests import reference
from tests.losses import toys


def objective(**dependency) -> Objective:
    return Objective(ObjectiveConfig.model_validate({"dependency": dependency}))


@pytest.mark.parametrize("index_by", ["output", "input"])
@pytest.mark.parametrize("heads", [(1,), (2, 1)])
def test_equals_the_oracle(index_by, heads):
    model, batch = toys.model(), toys.batch()
    chosen = objective(index_by=index_by, heads=heads, weight=0.3)
    output = model(batch, capture=chosen.capture)
    assert set(output.attention) == {"encoder.1.self", "decoder.1.self"}
    parts = chosen(output, batch).parts
    slow = {}
    for side, stack in (("source", "encoder"), ("target", "decoder")):
        labels = batch.labels[f"{side}_heads"]
        if side == "target":
            labels = decoder_heads(labels, index_by)
        loss = reference.dependency_loss(output.attention[f"{stack}.1.self"], labels, [head - 1 for head in heads])
        slow[f"dependency.{side}"] = 0.3 * loss * int(batch.target_mask.sum())
    for name, expected in slow.items():
        assert parts[name].item() == pytest.approx(expected.item(), rel=1e-12)
    fast_gradients = toys.gradients(model, sum(parts[name] for name in slow))
    for name, expected in toys.gradients(model, sum(slow.values())).items():
        assert torch.allclose(fast_gradients[name], expected, rtol=1e-9, atol=1e-11), name
    assert fast_gradients["encoder.0.mixer.bilinear"].abs().max() > 0


def weights_of(*rows):
    """One sentence, one head: a row a position."""
    return torch.tensor(rows, dtype=torch.float64)[None, None]


def test_a_sentence_worked_by_hand():
    """`Kannst du singen`: the root `singen` heads both others, which stand to its left; in `du singt`, du <- singt.

    As a target, `Ich sah dich`: sah is the root, with Ich to its left (a head to the right: no supervision) and dich.
    Pieces 0 1 2, heads 1 1 1. The decoder reads <s> Ich sah dich and says Ich sah dich </s>.
    """
    heads = torch.tensor([[-1, 1, 1, -1]])
    assert decoder_heads(heads, "output").tolist() == [[-1, 1, 1, -1]]
    assert decoder_heads(heads, "input").tolist() == [[-1, -1, 2, 2]]
    weights = weights_of([1, 0, 0, 0], [0.75, 0.25, 0, 0], [0.25, 0.125, 0.625, 0], [0.1, 0.2, 0.5, 0.2])
    # Rows say: row 1 says sah, its own head, 0.25; row 2 says dich, whose head sah row 1 says, 0.125.
    by_output = attachment_loss(weights, decoder_heads(heads, "output"), (0,))
    assert by_output.item() == pytest.approx(-math.log(0.25) - math.log(0.125))
    # Rows read: row 2 reads sah, its own head, 0.625; row 3 reads dich, whose head sah row 2 reads, 0.5.
    by_input = attachment_loss(weights, decoder_heads(heads, "input"), (0,))
    assert by_input.item() == pytest.approx(-math.log(0.625) - math.log(0.5))


def test_the_mean_is_over_the_edges_of_the_whole_batch():
    model, batch, chosen = toys.model(), toys.batch(), objective()
    assert batch.counts == {"source_heads": 12, "target_heads": 7, "target_tokens": 14}
    whole = chosen(model(batch, capture=chosen.capture), batch).parts
    shares = [rows(batch, rank, 4) for rank in range(4)]
    assert [len(share.indices) for share in shares] == [1, 1, 1, 1]
    parts = [chosen(model(share, capture=chosen.capture), share).parts for share in shares]
    for name, value in whole.items():
        assert sum(part[name].item() for part in parts) == pytest.approx(value.item(), rel=1e-6)
    assert all(value.item() == 0 for value in parts[3].values())  # a process without a row of its own


def test_no_edge_no_loss():
    model, batch, chosen = toys.model(), toys.batch(), objective(sides=["target"])
    empty = {name: torch.full_like(each, -1) for name, each in batch.labels.items()}
    batch = type(batch)(**(vars(batch) | {"labels": empty, "counts": batch.counts | {"target_heads": 0}}))
    parts = chosen(model(batch, capture=chosen.capture), batch).parts
    assert set(parts) == {"cross_entropy", "dependency.target"}
    assert parts["dependency.target"].item() == 0


def test_a_weight_that_underflowed_keeps_the_loss_finite():
    weights = weights_of([1, 0], [1, 0]).float().requires_grad_()
    loss = attachment_loss(weights, torch.tensor([[0, 1]]), (0,))
    loss.backward()
    assert loss.isfinite()
    assert weights.grad.isfinite().all()
