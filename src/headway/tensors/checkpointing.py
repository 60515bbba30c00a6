"""Activation checkpointing (Chen et al. 2016): a layer keeps its inputs alone, and computes again on the way back."""

from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def recompute_activations(module: nn.Module) -> None:
    """Let `module` keep nothing but its inputs for the backward pass while it is in training.

    Its forward pass is run a second time, with the same random numbers and in the same precision, so that gradients
    stay the same bit for bit. Its parameters keep their names.
    """
    inner = module.forward

    def forward(*arguments: Any, **options: Any) -> Any:
        if module.training and torch.is_grad_enabled():
            return checkpoint(inner, *arguments, use_reentrant=False, **options)
        return inner(*arguments, **options)

    module.forward = forward
