"""Masks, with one meaning everywhere: True = real, or may be attended to.

Shapes: B batch, L length, S length of what is attended to.
"""

import torch
from torch import Tensor

from headway.tensors.looking import may_look


def padding_mask(lengths: Tensor, length: int | None = None) -> Tensor:
    """(B, L): True at the first `lengths[b]` positions of row b. L is the longest length unless given."""
    positions = torch.arange(int(lengths.max()) if length is None else length, device=lengths.device)
    return positions < lengths[:, None]


def causal_mask(length: int, device: torch.device | None = None) -> Tensor:
    """(L, L): position t may attend to positions 0 .. t."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def band_mask(
    queries: int, keys: int, n: int, causal: bool, offset: int = 0, device: torch.device | None = None
) -> Tensor:
    """(L, S): query i may attend to key j, which stands `offset` further than j - i says, less than n away.

    A causal query sees no key after it.
    """
    offsets = torch.arange(keys, device=device) - torch.arange(queries, device=device)[:, None] + offset
    return (offsets > -n) & (offsets <= 0 if causal else offsets < n)


def moved(tensor: Tensor, device: torch.device | str, non_blocking: bool = False) -> Tensor:
    """A tensor on a device, where `drop_full` knows that a mask is full without looking."""
    there = tensor.to(device, non_blocking=non_blocking)
    if tensor.dtype is torch.bool and there is not tensor and may_look(tensor) and tensor.all():
        there.was_full = True  # type: ignore[attr-defined]
    return there


def drop_full(mask: Tensor | None) -> Tensor | None:
    """None instead of a mask without any padding, so that later work is skipped, and attention has its fastest kernels.

    Looking at a mask on an accelerator would wait for the device, and a compiled program cannot branch on it; there it
    is returned as it is, unless it was seen to be full before.
    """
    if mask is None or torch.compiler.is_compiling():
        return mask
    return None if hasattr(mask, "was_full") or (may_look(mask) and mask.all()) else mask


def padding_is_last(mask: Tensor) -> bool:
    """Whether padding follows the real positions of every row of a mask (B, L), so that nothing real stands behind any.

    This is how `padding_mask` and all batches have it. It is taken for granted where looking would wait for an
    accelerator, or a compiled program could not branch on it.
    """
    if not may_look(mask):
        return True
    return not (mask[:, 1:] > mask[:, :-1]).any()


def additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where `mask` is True and the lowest finite number elsewhere, to be added to scores before a softmax.

    The lowest finite number gives weights of exactly zero beside any allowed position, and, unlike minus infinity, no
    NaN in a row (or its gradient) where nothing is allowed.
    """
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, torch.finfo(dtype).min)


def zero_padding(x: Tensor, mask: Tensor | None) -> Tensor:
    """x (B, L, D) with zeros where `mask` (B, L) is False."""
    return x if mask is None else x.masked_fill(~mask[..., None], 0)
