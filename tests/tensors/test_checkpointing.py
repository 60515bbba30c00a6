"""Activation checkpointing: the same gradients, and less that is kept."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from headway.losses import Objective, ObjectiveConfig
from headway.models import DecoderOnlyConfig, build_model
from headway.tensors.batch import Batch
from headway.tensors.checkpointing import recompute_activations
from headway.training.updates import TrainingStep
from tests.losses import toys as heads
from tests.models import toys

SMOOTHED = {"label_smoothing": 0.1}
BOTH = SMOOTHED | {"dependency": {}, "synchronous": {"cross_layer": 1}}


def decoder_only() -> nn.Module:
    torch.manual_seed(1)
    sizes = {"dim": 8, "feed_forward": 10, "heads": 2, "dropout": 0.3, "decoder": {"layers": 2}, "position": "t5"}
    return build_model(DecoderOnlyConfig.model_validate(sizes), toys.SOURCE_SIZE, toys.TARGET_SIZE, False).double()


MODELS: dict[str, tuple[Callable[[], Any], Callable[[], Batch], dict[str, Any]]] = {
    "transformer": (lambda: toys.model(dropout=0.3), toys.batch, SMOOTHED),
    "relative positions": (lambda: toys.model(dropout=0.3, position="t5"), toys.batch, SMOOTHED),
    "captured attention": (lambda: heads.model(dropout=0.3), heads.batch, BOTH),
    "decoder only": (decoder_only, toys.batch, SMOOTHED),
}


def gradients(name: str, recomputed: bool, precision: torch.dtype | None = None) -> tuple[dict[str, Tensor], int]:
    """The gradients of a model with dropout, and the bytes that its forward pass kept for them."""
    build, batch, objective = MODELS[name]
    model = build().train()
    if recomputed:
        for block in model.blocks():
            recompute_activations(block)
    kept = 0

    def count(tensor: Tensor) -> Tensor:
        nonlocal kept
        kept += tensor.numel() * tensor.element_size()
        return tensor

    torch.manual_seed(5)
    if precision is not None:
        model.float()
    step = TrainingStep(model, Objective(ObjectiveConfig.model_validate(objective)))
    enabled = precision == torch.bfloat16
    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            loss = step(batch())
        before = kept
    loss.total.backward()
    return {key: value.grad for key, value in model.named_parameters() if value.grad is not None}, before


@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_the_same_bit_for_bit(name: str) -> None:
    (plain, kept), (again, less) = (gradients(name, recomputed) for recomputed in (False, True))
    assert plain.keys() == again.keys()
    assert all(torch.equal(plain[key], again[key]) for key in plain)
    assert less < 0.6 * kept


def test_the_precision_is_the_same_the_second_time() -> None:
    (plain, _), (again, _) = (gradients("transformer", recomputed, torch.bfloat16) for recomputed in (False, True))
    assert all(torch.equal(plain[key], again[key]) for key in plain)


def test_nothing_is_kept_or_changed_in_evaluation() -> None:
    model = toys.model()
    expected = model(toys.batch()).logits
    names = list(model.state_dict())
    for block in model.blocks():
        recompute_activations(block)
    assert torch.equal(model(toys.batch()).logits, expected)
    assert list(model.state_dict()) == names
