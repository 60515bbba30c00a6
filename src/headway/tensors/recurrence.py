"""Linear recurrences along a sequence, channel by channel, without a step of Python for each position.

Shapes: B batch, L length, D channels, C chunks, M positions of a chunk.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn import functional as F

CHUNK = 16  # positions: so many steps at each of log L / log 16 levels


def recurrence(decay: Tensor, added: Tensor, reverse: bool = False) -> Tensor:
    """c_t = decay_t c_{t-1} + added_t, with c_{t+1} instead if `reverse`; zero beyond the sequence: all (B, L, D)."""
    if torch.compiler.is_compiling():  # for any length, with what the compiler decides to keep
        return _doubled(decay, added, reverse)
    states: Tensor = _Recurrence.apply(decay, added, reverse)  # type: ignore[no-untyped-call]
    return states


class _Recurrence(torch.autograd.Function):
    """The recurrence; its gradient is one in the other direction, so that nothing in between is kept."""

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
    """x (B, L, D), each position with what stands `by` before it, or after it if `reverse`; zeros beyond the end."""
    return F.pad(x[:, by:], (0, 0, 0, by)) if reverse else F.pad(x[:, :-by], (0, 0, by, 0))


def _scan(decay: Tensor, added: Tensor, reverse: bool) -> Tensor:
    """The recurrence within chunks, all of them at once, then from chunk to chunk in the same way.

    A product of decays is never divided by, so that decays of zero do no harm.
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
    """The recurrence over 1, 2, 4, ... positions: more work than `_scan`, in shapes that suit any length."""
    reach, length = 1, added.shape[1]
    while reach < length:
        added = torch.addcmul(added, decay, _moved(added, reverse, reach))
        decay, reach = decay * _moved(decay, reverse, reach), 2 * reach
    return added
