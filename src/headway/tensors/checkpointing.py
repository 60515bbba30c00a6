"""Activation checkpointing (Chen et al. 2016): layers store only inputs, and recompute the rest in backward passes."""

from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def recompute_activations(module: nn.Module) -> None:
    """Let `module` store only its inputs for the backward pass while it is in training mode.

    Its forward pass is run a second time with the same random numbers and the same precision, so gradients are
    identical bit for bit. The names of its parameters do not change.
    """
    inner = module.forward

    def forward(*arguments: Any, **options: Any) -> Any:
        if module.training and torch.is_grad_enabled():
            return checkpoint(inner, *arguments, use_reentrant=False, **options)
        return inner(*arguments, **options)

    module.forward = forward
