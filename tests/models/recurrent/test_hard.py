"""Training hard attention: the gradient is that of the expected loss; straight-through; what is remembered."""

import math

import pytest
import torch

from headway.losses import Objective, ObjectiveConfig
from headway.models.cross_attention import Choice
from headway.models.recurrent.recurrent_model import Reinforce
from headway.models.scored_attention import hard
from headway.tensors.batch import collate
from tests.models.recurrent import toys
from tests.models.toys import batch


def test_the_mean_gradient_is_that_of_the_expected_loss():
    """With one choice that is drawn from a softmax, all of its outcomes can be gone through."""
    scores = torch.tensor([[[0.3, -0.5, 1.0]]], dtype=torch.float64, requires_grad=True)
    logits = torch.randn(3, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)  # one row a position
    given = collate([torch.tensor([4, 4]).numpy()], [torch.tensor([], dtype=torch.long).numpy()])  # the end mark alone
    rewards = logits.log_softmax(-1)[:, given.target_output[0, 0]]
    expected = -(scores.softmax(-1)[0, 0] * rewards).sum()
    (exact,) = torch.autograd.grad(expected, scores)
    log_probabilities = scores.log_softmax(-1)
    mean = torch.zeros_like(exact)
    for place, share in enumerate(scores.detach().softmax(-1)[0, 0]):
        module = Reinforce(5, False, entropy=0.0, decay=0.9)
        choice = Choice(None, None, log_probabilities[..., place], log_probabilities[..., 0] * 0)
        loss = module(logits[place].view(1, 1, 5), choice, given)["reinforce"]
        mean += share * torch.autograd.grad(loss, scores, retain_graph=True)[0]
    assert torch.allclose(mean, exact, atol=1e-12)


@pytest.mark.parametrize("reaches_later", [False, True])
def test_losses_equal_their_equations(reaches_later):
    generator = torch.Generator().manual_seed(3)
    given, decay = batch(), 0.7
    size = given.target_mask.shape
    logits = torch.randn(*size, 9, generator=generator, dtype=torch.float64)
    log_probability, entropy = torch.rand(2, *size, generator=generator, dtype=torch.float64).unbind()
    module = Reinforce(9, reaches_later, entropy=0.1, decay=decay).double()
    module.baseline.fill_(-1.5)
    losses = module(logits, Choice(None, None, log_probability, entropy), given)
    reinforce, bonus, rewards = 0.0, 0.0, []
    for row in range(size[0]):
        length = int(given.target_mask[row].sum())
        own = [float(logits[row, t].log_softmax(-1)[given.target_output[row, t]]) for t in range(length)]
        rewards += own
        for t in range(length):
            gains = [each + 1.5 for each in (own[t:] if reaches_later else own[t : t + 1])]
            reinforce -= sum(gains) * float(log_probability[row, t])
            bonus -= 0.1 * float(entropy[row, t])
    assert float(losses["reinforce"]) == pytest.approx(reinforce)
    assert float(losses["entropy"]) == pytest.approx(bonus)
    mean = sum(rewards) / len(rewards)
    assert float(module.baseline) == pytest.approx(decay * -1.5 + (1 - decay) * mean)


def test_a_loss_that_is_not_finite_leaves_the_average_as_it_was():
    given, module = batch(), Reinforce(9, False, entropy=0.0, decay=0.5)
    assert float(module.baseline) == pytest.approx(-math.log(9))
    nothing = torch.zeros(given.target_mask.shape)
    module(torch.full((*given.target_mask.shape, 9), torch.nan), Choice(None, None, nothing, nothing), given)
    assert float(module.baseline) == pytest.approx(-math.log(9))


@pytest.mark.parametrize("kind", ["hard", "monotonic"])
@pytest.mark.parametrize("feeding", [False, True])
def test_draws_follow_the_softmax(kind, feeding):
    model = toys.model(attention={"kind": kind, "input_feeding": feeding}).train()
    given = collate([torch.tensor([5, 6, 7]).numpy()] * 4000, [torch.tensor([4]).numpy()] * 4000)
    torch.manual_seed(5)
    weights = model(given, capture=("*",)).attention["decoder.1.cross"][:, 0]
    soft = toys.model(attention={"kind": "soft", "input_feeding": feeding})
    expected = soft(given, capture=("*",)).attention["decoder.1.cross"][0, 0, 0]
    assert torch.allclose(weights[:, 0].mean(0), expected, atol=0.04)
    if kind == "monotonic":
        assert (weights.argmax(-1).diff(dim=-1) >= 0).all()


def test_straight_through_has_the_value_of_the_best_and_the_gradient_of_the_softmax():
    scores = torch.randn(2, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1), requires_grad=True)
    upstream = torch.randn(2, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    weights = hard(scores, "straight_through", training=True).weights
    assert torch.allclose(weights, torch.nn.functional.one_hot(scores.argmax(-1), 4).double(), atol=1e-15)
    (ours,) = torch.autograd.grad((weights * upstream).sum(), scores)
    (soft,) = torch.autograd.grad((scores.softmax(-1) * upstream).sum(), scores)
    assert torch.allclose(ours, soft)


def test_the_objective_adds_what_the_model_asks_for_in_training_alone():
    model, given, objective = toys.model(attention="hard"), batch(), Objective(ObjectiveConfig())
    assert set(objective(model(given), given).parts) == {"cross_entropy"}
    output = model.train()(given)
    loss = objective(output, given)
    assert set(loss.parts) == {"cross_entropy", "reinforce", "entropy"}
    assert torch.allclose(loss.total, sum(loss.parts.values()))
    loss.total.backward()
    assert model.decoder.attention.score.source.weight.grad.abs().sum() > 0
    estimator = {"kind": "hard", "estimator": "straight_through"}
    assert not toys.model(attention=estimator).train()(given).losses
