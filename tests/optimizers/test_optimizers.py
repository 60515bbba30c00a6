"""Optimizers by name or import path, and their options."""

import pytest
import torch
from torch import nn

from headway.core.config import validated
from headway.core.errors import UserError
from headway.optimizers.optimizers import OptimizerConfig, build_optimizer
from tests.models import toys


class Descent(torch.optim.SGD):
    """An optimizer from outside of the package, with an option of its own."""

    def __init__(self, parameters, *, friction: float = 0.5) -> None:
        super().__init__(parameters, lr=0.0, momentum=1 - friction)


def test_adam_and_adamw_get_their_options():
    model = nn.Linear(2, 1)
    for kind, base in (("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW)):
        config = OptimizerConfig(kind=kind, betas=(0.5, 0.6), epsilon=1e-3, weight_decay=0.25)
        optimizer = build_optimizer(config, model)
        (group,) = optimizer.param_groups
        assert isinstance(optimizer, base)
        assert (group["betas"], group["eps"], group["weight_decay"], group["fused"]) == ((0.5, 0.6), 1e-3, 0.25, True)


def trajectory(kind, grads, rate, **options):
    """The weight after each of some gradients, from 1."""
    weight = nn.Parameter(torch.ones(1, dtype=torch.float64))
    model = nn.Module()
    model.weight = weight
    optimizer, values = build_optimizer(OptimizerConfig(kind=kind, **options), model), []
    optimizer.param_groups[0]["lr"] = rate
    for gradient in grads:
        weight.grad = torch.full_like(weight, gradient)
        optimizer.step()
        values.append(weight.item())
    return values


def test_plain_descent_and_momentum():
    weight, velocity, plain, heavy, grads = 1.0, 0.0, 1.0, [], (0.5, -2.0, 1.0)
    for gradient in grads:
        velocity = 0.9 * velocity + gradient
        weight -= 0.1 * velocity
        heavy.append(weight)
    assert trajectory("sgd", grads, 0.1, momentum=0.9) == pytest.approx(heavy, abs=1e-12)
    assert trajectory("sgd", grads, 0.7) == pytest.approx([plain - 0.35, plain + 1.05, plain + 0.35], abs=1e-12)


def test_adadelta_follows_zeiler():
    """Zeiler (2012), algorithm 1."""
    weight, squares, deltas, expected, grads = 1.0, 0.0, 0.0, [], (0.5, -2.0, 1.0)
    for gradient in grads:
        squares = 0.95 * squares + 0.05 * gradient**2
        delta = -((deltas + 1e-6) ** 0.5) / (squares + 1e-6) ** 0.5 * gradient
        deltas = 0.95 * deltas + 0.05 * delta**2
        weight += delta
        expected.append(weight)
    assert trajectory("adadelta", grads, 1.0) == pytest.approx(expected, abs=1e-12)


def gradients_of(model, seed):
    """Random gradients, the same for every model with these weights."""
    torch.manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)


def test_muon_is_for_the_linear_maps_in_blocks_and_adamw_for_all_else():
    ours, theirs = (toys.model(dtype=torch.float32, position="t5", encoder={"layers": 1, "canon": "A"}) for _ in "ab")
    optimizer = build_optimizer(OptimizerConfig(kind="muon", adamw_rate=0.5, weight_decay=0.1), ours, ours.blocks())
    names = {id(parameter): name for name, parameter in ours.named_parameters()}
    matrices, others = ([names[id(each)] for each in group["params"]] for group in optimizer.param_groups)
    assert all(".weight" in name and ("projection" in name or "feed_forward" in name) for name in matrices)
    assert len(matrices) == 4 + 2 * 7  # two maps of attention and two of a network; three more of cross-attention
    assert {"projection.weight", "source_embedding.tokens.weight", "encoder.0.mixer_canon.weight"} - {*others} == {
        "projection.weight"  # which is the target's embedding
    }
    assert {"target_embedding.tokens.weight", "encoder.0.mixer.position.table"} < {*others}
    assert len(matrices) + len(others) == len(names)
    split = dict(theirs.named_parameters())
    muon = torch.optim.Muon([split[name] for name in matrices], weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    adamw = torch.optim.AdamW([split[name] for name in others], betas=(0.9, 0.98), eps=1e-9, weight_decay=0.1)
    for update, rate in enumerate((0.1, 0.2, 0.05)):
        for model in (ours, theirs):
            gradients_of(model, update)
        for each, times in ((optimizer, 1), (muon, 1), (adamw, 0.5)):
            for group in each.param_groups:
                group["lr"] = rate * times
            each.step()
    for name, parameter in ours.named_parameters():
        torch.testing.assert_close(parameter, split[name], msg=name)


def test_an_update_of_muon_is_orthogonal_and_as_large_as_one_of_adamw():
    model = toys.model(dtype=torch.float32)
    optimizer = build_optimizer(OptimizerConfig(kind="muon"), model, model.blocks())
    weight = model.encoder[0].feed_forward.inner.weight
    before = weight.detach().clone()
    for group in optimizer.param_groups:
        group["lr"] = 0.01
    gradients_of(model, 1)
    gradient = weight.grad.clone()
    optimizer.step()
    update = (before - weight.detach()) / (0.01 * 0.2 * 10**0.5)
    left, _, right = torch.linalg.svd(gradient, full_matrices=False)
    # Five steps of Newton and Schulz bring singular values near one, by Jordan's polynomial to 0.7 .. 1.2.
    values = (left.T @ update @ right.T).diagonal()
    assert ((values > 0.6) & (values < 1.3)).all()
    assert (left.T @ update @ right.T - values.diag()).abs().max() < 0.1


def test_muon_needs_blocks():
    with pytest.raises(UserError, match=r"optimizer: muon is for linear maps in the blocks of a model"):
        build_optimizer(OptimizerConfig(kind="muon"), nn.Linear(2, 1))


def test_options_that_are_left_out_have_their_defaults():
    config = OptimizerConfig()
    assert (config.options(), config.kind) == ({"betas": (0.9, 0.98), "epsilon": 1e-9, "weight_decay": 0.0}, "adam")
    assert OptimizerConfig.model_validate(config.model_dump(mode="json")) == config


def test_an_optimizer_by_import_path():
    config = OptimizerConfig(kind="tests.optimizers.test_optimizers:Descent", friction=0.25)
    optimizer = build_optimizer(config, nn.Linear(2, 1))
    assert isinstance(optimizer, Descent)
    assert optimizer.param_groups[0]["momentum"] == 0.75


def test_optimizers_of_torch_take_their_options():
    config = OptimizerConfig(kind="torch.optim:RMSprop", momentum=0.5)
    assert OptimizerConfig.model_validate(config.model_dump(mode="json")) == config
    optimizer = build_optimizer(config, nn.Linear(2, 1))
    assert optimizer.param_groups[0]["momentum"] == 0.5
    assert optimizer.param_groups[0]["alpha"] == 0.99, "the default"
    with pytest.raises(UserError, match=r"optimizer\.lr: unknown key"):
        validated(OptimizerConfig, {"kind": "torch.optim:RMSprop", "lr": 0.5}, "optimizer")
    for kind in ("Adagrad", "Adafactor", "NAdam", "ASGD", "Rprop", "Adamax", "RAdam"):
        build_optimizer(OptimizerConfig(kind=f"torch.optim:{kind}"), nn.Linear(2, 1))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "adm"}, r"optimizer\.kind: unknown optimizer.*'adam'"),
        ({"kind": "torch.optim:LBFGS"}, r"optimizer\.kind: this optimizer computes losses by itself"),
        ({"kind": "torch.nn:Linear"}, r"optimizer\.kind: this is not a subclass of torch\.optim\.Optimizer"),
        ({"epsilonn": 1.0}, r"optimizer\.epsilonn: unknown key.*'epsilon'"),
        ({"learning_rat": 1.0}, r"optimizer\.learning_rat: unknown key.*'learning_rate'"),
        ({"epsilon": -1.0}, r"optimizer\.epsilon: input should be greater than 0"),
        ({"kind": "sgd", "nesterov": True}, r"nesterov is a kind of momentum"),
        ({"kind": "sgd", "betas": [0, 0]}, r"optimizer\.betas: unknown key"),
        ({"schedule": "lineer"}, r"optimizer\.schedule\.kind: unknown schedule.*'linear'"),
        ({"kind": "tests.optimizers.test_optimizers:Descent", "betas": [0, 0]}, r"optimizer\.betas: unknown key"),
    ],
)
def test_mistakes_are_named_by_their_key(settings, message):
    with pytest.raises(UserError, match=message):
        validated(OptimizerConfig, settings, "optimizer")
