"""Linear recurrences along a sequence, for each channel, without a Python loop over positions.

Shapes: B batch, L length, D channels, C chunks, M positions of a chunk.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn import functional as F

CHUNK = 16  # positions, and steps at each of log L / log 16 levels


def recurrence(decay: Tensor, added: Tensor, reverse: bool = False) -> Tensor:
    """Compute c_t = decay_t c_{t-1} + added_t, or with c_{t+1} if `reverse`; zero beyond the ends: all (B, L, D)."""
    if torch.compiler.is_compiling():  # works for any length; the compiler decides what to store
        return _doubled(decay, added, reverse)
    states: Tensor = _Recurrence.apply(decay, added, reverse)  # type: ignore[no-untyped-call]
    return states


class _Recurrence(torch.autograd.Function):
    """The recurrence. Its gradient is the same recurrence run backwards, so no intermediate states are stored."""

    @staticmethod
    def forward(ctx: FunctionCtx, decay: Tensor, added: Tensor, reverse: bool) -> Tensor:
        states = _scan(decay, added, reverse)
        ctx.save_for_backward(decay, states)
        ctx.reverse = reverse  # type: ignore[attr-defined]
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        decay, states = ctx.saved_tensors
        total = _scan(_moved(decay, not ctx.reverse), gradient, not ctx.reverse)
        return total * _moved(states, ctx.reverse), total, None


def _moved(x: Tensor, reverse: bool, by: int = 1) -> Tensor:
    """Shift x (B, L, D) by `by` positions to the right, or to the left if `reverse`, and fill up with zeros."""
    return F.pad(x[:, by:], (0, 0, 0, by)) if reverse else F.pad(x[:, :-by], (0, 0, by, 0))


def _scan(decay: Tensor, added: Tensor, reverse: bool) -> Tensor:
    """The recurrence within all chunks in parallel, then recursively from chunk to chunk.

    It never divides by a product of decays, so decays may be zero.
    """
    batch, length, dim = added.shape
    if length <= 1:
        return added.clone()
    chunks = (F.pad(x, (0, 0, 0, -length % CHUNK)).view(batch, -1, CHUNK, dim).unbind(2) for x in (decay, added))
    decays, terms = (chunk[::-1] if reverse else chunk for chunk in chunks)  # M of (B, C, D) each
    products, states = [decays[0]], [terms[0]]
    for factor, term in zip(decays[1:], terms[1:], strict=True):
        products.append(products[-1] * factor)
        states.append(torch.addcmul(term, factor, states[-1]))
    reached = _moved(_scan(products[-1], states[-1], reverse), reverse)
    states = [torch.addcmul(state, product, reached) for state, product in zip(states, products, strict=True)]
    return torch.stack(states[::-1] if reverse else states, 2).view(batch, -1, dim)[:, :length]


def _doubled(decay: Tensor, added: Tensor, reverse: bool) -> Tensor:
    """The recurrence over 1, 2, 4, ... positions: more work than `_scan`, but its shapes fit any length."""
    reach, length = 1, added.shape[1]
    while reach < length:
        added = torch.addcmul(added, decay, _moved(added, reverse, reach))
        decay, reach = decay * _moved(decay, reverse, reach), 2 * reach
    return added
