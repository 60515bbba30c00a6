"""Masks. In every mask True means real, or may be attended to.

Shapes: B batch, L length, S length of the keys.
"""

import torch
from torch import Tensor

from headway.tensors.looking import may_look


def padding_mask(lengths: Tensor, length: int | None = None) -> Tensor:
    """The mask (B, L) of the first `lengths[b]` positions of row b. L is the maximum length by default."""
    positions = torch.arange(int(lengths.max()) if length is None else length, device=lengths.device)
    return positions < lengths[:, None]


def causal_mask(length: int, device: torch.device | None = None) -> Tensor:
    """The mask (L, L) by which position t may attend to positions 0 .. t."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def band_mask(
    queries: int, keys: int, n: int, causal: bool, offset: int = 0, device: torch.device | None = None
) -> Tensor:
    """The mask (L, S) by which query i may attend to key j if their distance j - i + `offset` is less than n.

    If causal, queries do not attend to later keys.
    """
    offsets = torch.arange(keys, device=device) - torch.arange(queries, device=device)[:, None] + offset
    return (offsets > -n) & (offsets <= 0 if causal else offsets < n)


def moved(tensor: Tensor, device: torch.device | str, non_blocking: bool = False) -> Tensor:
    """Move a tensor to a device. A full mask is marked, so that `drop_full` need not read it there."""
    there = tensor.to(device, non_blocking=non_blocking)
    if tensor.dtype is torch.bool and there is not tensor and may_look(tensor) and tensor.all():
        there.was_full = True  # type: ignore[attr-defined]
    return there


def drop_full(mask: Tensor | None) -> Tensor | None:
    """None instead of a mask without padding, which skips later work and allows the fastest kernels of attention.

    Reading a mask on an accelerator would wait for the device, and a compiled program cannot branch on it. There the
    mask is returned unless it was marked as full before.
    """
    if mask is None or torch.compiler.is_compiling():
        return mask
    return None if hasattr(mask, "was_full") or (may_look(mask) and mask.all()) else mask


def padding_is_last(mask: Tensor) -> bool:
    """Whether padding follows the real positions in every row of a mask (B, L).

    This holds for `padding_mask` and all batches. It is assumed to be True where reading the mask would wait for an
    accelerator, or a compiled program could not branch on it.
    """
    if not may_look(mask):
        return True
    return not (mask[:, 1:] > mask[:, :-1]).any()


def additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where `mask` is True, and the lowest finite number elsewhere, to be added to scores before a softmax.

    The lowest finite number gives weights of exactly zero if any position is allowed. Unlike minus infinity, it gives
    no NaN in a row (or its gradient) without allowed positions.
    """
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, torch.finfo(dtype).min)


def zero_padding(x: Tensor, mask: Tensor | None) -> Tensor:
    """x (B, L, D) with zeros where `mask` (B, L) is False."""
    return x if mask is None else x.masked_fill(~mask[..., None], 0)
