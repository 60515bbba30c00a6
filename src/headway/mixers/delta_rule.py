"""The delta rule: a matrix a head that forgets what stood under a key before it writes there.

Shapes: N sequences, B batch, L length, K heads, D model, d key, e value, C positions of a chunk, R rows of a state.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn import functional as F

CHUNK = 32
SMALLEST = 4


class Inverse(torch.autograd.Function):
    """(I + X)^-1 of matrices X (..., C, C) with zeros on the diagonal and above it, and its gradient."""

    @staticmethod
    def forward(ctx: FunctionCtx, below: Tensor) -> Tensor:
        """(..., C, C)."""
        unit = torch.eye(below.shape[-1], dtype=below.dtype, device=below.device).expand_as(below)
        inverse = torch.linalg.solve_triangular(below, unit, upper=False, unitriangular=True)
        ctx.save_for_backward(inverse)
        return inverse

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        """The gradient of X for that of the inverse."""
        (inverse,) = ctx.saved_tensors
        transposed = inverse.transpose(-1, -2)
        return -(transposed @ gradient @ transposed).tril(-1)


def chunked_delta_rule(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    beta: Tensor,
    decay: Tensor | None,
    state: Tensor | None,
    *,
    own: bool = True,
    size: int = CHUNK,
) -> tuple[Tensor, Tensor]:
    """o_t = S_t^T q_t with S_t = (I - beta_t k_t k_t^T) diag(a_t) S_{t-1} + beta_t k_t v_t^T, in chunks.

    With u_t = beta_t (v_t - S_{t-1}^T diag(a_t) k_t), S_t = diag(a_t) S_{t-1} + k_t u_t^T. Within a chunk that
    begins with S, and with b_t the product of the chunk's a up to a_t, all u are the solution of one triangular system:
    u_t + beta_t sum over i < t of (k_t . (b_t / b_i) k_i) u_i = beta_t (v_t - S^T b_t k_t). No quotient b_t / b_i
    is made of b: it is the exponential of a difference of logarithms, which is at most zero.

    Args:
        query: q (N, L, d).
        key: k (N, L, d).
        value: v (N, L, e).
        beta: (N, L); a position with 0 here and in `decay` leaves the state as it is.
        decay: log a, (N, L, d) or (N, L, 1); None where a is 1.
        state: S before the first position (N, d, e); None for zeros.
        own: whether o_t reads what t itself writes; else it is (diag(a_t) S_{t-1})^T q_t.
        size: C.

    Returns:
        o (N, L, e), and the last S.
    """
    length = query.shape[1]
    size = min(size, 1 << (length - 1).bit_length())
    query, key, value, beta = (_chunks(part, size) for part in (query, key, value, beta.unsqueeze(-1)))
    logs = None if decay is None else _chunks(decay, size).cumsum(2)  # log b
    reads, overlaps = _products(query, key, logs)
    solve = Inverse.apply(beta * overlaps.tril(-1))  # type: ignore[no-untyped-call]
    written = solve @ (beta * value)  # u, were S zero
    left, kept = key, None
    if logs is not None:
        left, kept = (logs[:, :, -1:] - logs).exp() * key, logs[:, :, -1].exp().unsqueeze(-1)
        since = logs.exp()
        query, key = since * query, since * key
    erased = solve @ (beta * key)  # u is `written` less this times S
    states, parts = [], []
    state = key.new_zeros(len(key), key.shape[3], value.shape[3]) if state is None else state
    for chunk in range(key.shape[1]):
        part = torch.baddbmm(written[:, chunk], erased[:, chunk], state, alpha=-1)
        states.append(state)
        parts.append(part)
        before = state if kept is None else kept[:, chunk] * state
        state = torch.baddbmm(before, left[:, chunk].transpose(1, 2), part)
    values = reads.tril(0 if own else -1) @ torch.stack(parts, 1) + query @ torch.stack(states, 1)
    return values.flatten(1, 2)[:, :length], state


def _chunks(part: Tensor, size: int) -> Tensor:
    """(N, L, d) as (N, L / C, C, d), with zeros after the last."""
    missing = -part.shape[1] % size
    return (F.pad(part, (0, 0, 0, missing)) if missing else part).unflatten(1, (-1, size))


def _products(query: Tensor, key: Tensor, logs: Tensor | None) -> tuple[Tensor, Tensor]:
    """q_t . (b_t / b_i) k_i and k_t . (b_t / b_i) k_i (N, c, C, C) for i <= t; elsewhere finite numbers."""
    both, columns = torch.stack([query, key]), key.transpose(-1, -2)
    if logs is None:
        return (both @ columns).unbind()  # type: ignore[return-value]
    if logs.shape[-1] == 1:
        quotients = (logs - logs.transpose(-1, -2)).clamp(max=0).exp()
        return (both @ columns * quotients).unbind()  # type: ignore[return-value]
    return _vector_products(both, key, logs).unbind()  # type: ignore[return-value]


def _vector_products(both: Tensor, key: Tensor, logs: Tensor) -> Tensor:
    """`_products` (2, N, c, C, C) for gates that are vectors, and C that is a power of two.

    The square of positions is cut into halves, again and again. A query of the second half and a key of the first have
    b_t / b_i = (b_t / b_m) (b_m / b_i) with m the last position of the first half. Neither factor is larger than one.
    """
    half = min(SMALLEST, logs.shape[-2])
    both, key, logs = (part.unflatten(-2, (-1, half)) for part in (both, key, logs))  # (..., C / h, h, d)
    quotients = (logs.unsqueeze(-2) - logs.unsqueeze(-3)).clamp(max=0).exp()
    blocks = (both.unsqueeze(-2) * (quotients * key.unsqueeze(-3))).sum(-1)  # (2, N, c, C / h, h, h)
    while blocks.shape[-3] > 1:
        (_, query), (key_of, _), (first, second) = (part.unflatten(-3, (-1, 2)).unbind(-3) for part in (both, key, logs))
        middle = first[..., -1:, :]
        corner = (query * (second - middle).exp()) @ (key_of * (middle - first).exp()).transpose(-1, -2)
        above, below = blocks.unflatten(-3, (-1, 2)).unbind(-3)
        upper, lower = torch.cat([above, torch.zeros_like(corner)], -1), torch.cat([corner, below], -1)
        blocks = torch.cat([upper, lower], -2)
        both, key, logs = (part.unflatten(-3, (-1, 2)).flatten(-3, -2) for part in (both, key, logs))
    return blocks.squeeze(-3)
