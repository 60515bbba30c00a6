"""The sum of objectives, and what it asks of model and batch."""

import pytest
import torch

from headway.core.errors import UserError
from headway.losses import LossPart, Objective, ObjectiveConfig
from headway.models.model import Axes
from tests.losses import toys


def objective(**tree) -> Objective:
    return Objective(ObjectiveConfig.model_validate(tree))


def test_cross_entropy_alone_asks_for_nothing():
    assert objective().capture == objective().labels == ()


def test_the_total_is_the_sum_of_the_parts():
    chosen = objective(dependency={}, synchronous={"cross_layer": 2})
    assert chosen.capture == ("encoder.1.self", "decoder.1.self", "decoder.2.cross")
    assert chosen.labels == ("source_heads", "target_heads")
    model, batch = toys.model(), toys.batch()
    total, parts, unsmoothed = chosen(model(batch, capture=chosen.capture), batch)
    assert list(parts) == ["cross_entropy", "dependency.source", "dependency.target", "synchronous"]
    assert all(part.item() > 0 for part in parts.values())
    assert total.item() == pytest.approx(sum(part.item() for part in parts.values()), rel=1e-12)
    assert 0 < unsmoothed.item() != parts["cross_entropy"].item()


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"dependency": {"layer": 3}}, r"objective.dependency: .*received 'encoder.3.self'; allowed: decoder.1.cross"),
        (
            {"dependency": {"heads": [3]}},
            "encoder.1.self has no such head; received 3; .* 1 to 2",
        ),
        ({"synchronous": {}}, "objective.synchronous: .*received 'decoder.5.cross'"),
        (
            {"synchronous": {"cross_layer": 1, "cross_head": 5}},
            "objective.synchronous: decoder.1.cross has no",
        ),
    ],
)
def test_what_the_model_has_not_is_named(tree, message):
    model = toys.model()
    with torch.no_grad():
        attention = model(toys.batch(), capture=("*",)).attention
    with pytest.raises(UserError, match=message):
        objective(**tree).check(attention, model.attention_axes)


def test_a_head_is_taught_once():
    with pytest.raises(ValueError, match="a head is named twice"):
        objective(dependency={"heads": [2, 1, 2]})


def test_dependency_heads_are_not_taught_to_attention_over_both_sides():
    chosen, attention = objective(dependency={"sides": ["target"]}), {"decoder.1.self": torch.zeros(1, 2, 3, 3)}
    chosen.check(attention, lambda name: Axes("target", "target"))
    with pytest.raises(UserError, match=r"objective\.dependency: .*in one.*received 'decoder.1.self'"):
        chosen.check(attention, lambda name: Axes("both", "both"))


def test_losses_of_one_name_are_all_counted():
    model, given = toys.model(), toys.batch()

    def loss(*entries):
        chosen = objective(losses=entries)
        return chosen(model(given, capture=chosen.capture), given)

    entries = [{"kind": "dependency", "layer": layer, "weight": layer} for layer in (1, 2)]
    entries.append({"kind": "cross_entropy", "label_smoothing": 0.5})
    both, alone = loss(*entries), [loss(entry) for entry in entries]
    assert list(both.parts) == [
        "cross_entropy", "dependency.source", "dependency.target", "losses[1].dependency.source",
        "losses[1].dependency.target", "losses[2].cross_entropy",
    ]  # fmt: skip
    main = both.parts["cross_entropy"]
    assert torch.allclose(both.total, main + sum(each.total - each.parts["cross_entropy"] for each in alone))


def test_scores_are_given_by_full_name_only():
    with torch.no_grad():
        model, batch = toys.model(), toys.batch()
        assert not any("scores" in name for name in model(batch, capture=("*",)).attention)
        output = model(batch, capture=("decoder.2.cross", "decoder.2.cross_scores"))
    scores = output.attention["decoder.2.cross_scores"].masked_fill(~batch.source_mask[:, None, None], -torch.inf)
    assert torch.allclose(scores.softmax(-1), output.attention["decoder.2.cross"], atol=1e-12)


class Brevity(LossPart):
    """A loss from outside: logits of the end mark, weighted."""

    def __init__(self, *, weight: float = 1.0) -> None:
        self.weight = weight

    def __call__(self, output, batch):
        return {"brevity": self.weight * output.logits[..., 2].masked_fill(~batch.target_mask, 0).sum()}


def test_a_loss_from_outside_is_a_part_of_the_objective():
    entry = {"kind": "tests.losses.test_objective:Brevity", "weight": 0.5}
    objective = Objective(ObjectiveConfig.model_validate({"losses": [entry]}))
    model, given = toys.model(), toys.batch()
    loss = objective(model(given), given)
    assert set(loss.parts) == {"cross_entropy", "brevity"}
    assert torch.allclose(loss.total, loss.parts["cross_entropy"] + loss.parts["brevity"])
    assert (objective.capture, objective.labels) == ((), ())


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("dependncy", r"objective\.losses\[0\]\.kind: unknown loss; did you mean 'dependency'"),
        ({"kind": "dependency", "wieght": 1}, r"objective\.losses\[0\]\.wieght: unknown key; did you mean 'weight'"),
        ("tests.losses.test_objective:pytest", "not a subclass"),
    ],
)
def test_mistakes_in_losses_name_their_key(entry, message):
    with pytest.raises(UserError, match=message):
        _ = Objective(ObjectiveConfig.model_validate({"losses": [entry]})).parts


@pytest.mark.parametrize(
    "sections",
    [
        {"synchronous": {"cross_layer": 1}},
        {"synchronous": {"cross_layer": 1, "heads": [1]}},
        {"dependency": {"heads": [1]}, "synchronous": {"cross_layer": 1}},
        {"dependency": {"heads": [1]}, "synchronous": {"cross_layer": 1, "heads": [2]}},
    ],
)
def test_losses_by_name_are_those_of_the_sections(sections):
    entries = [{"kind": kind, **options} for kind, options in sections.items()]
    listed = Objective(ObjectiveConfig.model_validate({"losses": entries}))
    section = Objective(ObjectiveConfig.model_validate(sections))
    assert [part.attention for part in listed.parts.values()] == [part.attention for part in section.parts.values()]
    model, given = toys.model().double(), toys.batch()
    totals = [objective(model(given, capture=objective.capture), given).total for objective in (listed, section)]
    assert torch.equal(*totals)


class Given(LossPart):
    """A loss from outside that gives what it is told, or a loss of each sentence."""

    def __init__(self, *, what: str) -> None:
        self.what = what

    def __call__(self, output, batch):
        sentences = output.logits.sum((1, 2))
        return {"tensor": sentences.sum(), "sentences": {"x": sentences}, "number": {"x": 1.0}, "none": None}[self.what]


@pytest.mark.parametrize(
    ("what", "received"),
    [
        ("tensor", "'a tensor of shape ()'"),
        ("sentences", "'x a tensor of shape (3,)'"),
        ("number", "'x float'"),
        ("none", "'NoneType'"),
    ],
)
def test_what_is_no_loss_is_named(what, received):
    entry = {"kind": "tests.losses.test_objective:Given", "what": what}
    objective = Objective(ObjectiveConfig.model_validate({"losses": [entry]}))
    model, given = toys.model(), toys.batch()
    with pytest.raises(UserError) as error:
        objective(model(given), given)
    what = "objective.losses[0]: Given gives something else than a loss does; received " + received
    assert str(error.value).startswith(what)
