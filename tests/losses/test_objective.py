"""The sum of objectives, and what it asks of model and batch."""

import pytest
import torch

from headway.errors import UserError
from headway.losses import Objective, ObjectiveConfig
from tests.losses import toys


def objective(**tree) -> Objective:
    return Objective(ObjectiveConfig.model_validate(tree))


def test_cross_entropy_alone_asks_for_nothing():
    assert objective().capture == objective().labels == ()


def test_the_total_is_the_sum_of_the_parts():
    chosen = objective(dependency={}, synchronous={"cross_layer": 2})
    assert chosen.capture == ("encoder.0.self", "decoder.0.self", "decoder.1.cross")
    assert chosen.labels == ("source_heads", "target_heads")
    model, batch = toys.model(), toys.batch()
    total, parts = chosen(model(batch, capture=chosen.capture), batch)
    assert list(parts) == ["cross_entropy", "dependency.source", "dependency.target", "synchronous"]
    assert all(part.item() > 0 for part in parts.values())
    assert total.item() == pytest.approx(sum(part.item() for part in parts.values()), rel=1e-12)


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"dependency": {"layer": 3}}, r"objective.dependency: .*received 'encoder.2.self'; allowed: decoder.0.cross"),
        ({"dependency": {"heads": [2]}}, "objective.dependency: encoder.0.self has no such head; received 2; .* 1"),
        ({"synchronous": {}}, "objective.synchronous: .*received 'decoder.4.cross'"),
        (
            {"synchronous": {"cross_layer": 1, "cross_head": 5}},
            "objective.synchronous: decoder.0.cross has no",
        ),
    ],
)
def test_what_the_model_has_not_is_named(tree, message):
    with torch.no_grad():
        attention = toys.model()(toys.batch(), capture=("*",)).attention
    with pytest.raises(UserError, match=message):
        objective(**tree).check(attention)


def test_scores_are_given_by_full_name_only():
    with torch.no_grad():
        model, batch = toys.model(), toys.batch()
        assert not any("scores" in name for name in model(batch, capture=("*",)).attention)
        output = model(batch, capture=("decoder.1.cross", "decoder.1.cross_scores"))
    scores = output.attention["decoder.1.cross_scores"].masked_fill(~batch.source_mask[:, None, None], -torch.inf)
    assert torch.allclose(scores.softmax(-1), output.attention["decoder.1.cross"], atol=1e-12)
