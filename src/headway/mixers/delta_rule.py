"""The delta rule: a matrix a head that forgets what stood under a key before it writes there.

Shapes: N sequences, L length, d key, e value, C positions of a chunk, c chunks.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

CHUNK = 32
SMALLEST = 4


class Inverse(torch.autograd.Function):
    """(I + X)^-1 of matrices (..., C, C), and its gradient; X is what stands below the diagonal, or above it."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, above: bool) -> Tensor:
        """(..., C, C)."""
        unit = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device).expand_as(matrix)
        inverse = torch.linalg.solve_triangular(matrix, unit, upper=above, unitriangular=True)
        ctx.save_for_backward(inverse)
        ctx.above = above
        return inverse

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """The gradient of X for that of the inverse."""
        transposed = ctx.saved_tensors[0].transpose(-1, -2)
        product = (transposed @ gradient @ transposed).neg_()
        return product.triu_(1) if ctx.above else product.tril_(-1), None


def read_and_write(
    both: Tensor,
    value: Tensor,
    products: Tensor | None,
    beta: Tensor,
    decay: Tensor | None,
    state: Tensor | None = None,
    *,
    backwards: bool = False,
) -> tuple[Tensor, Tensor]:
    """o_t = S_t^T q_t with S_t = (I - beta_t k_t k_t^T) diag(a_t) S_{t-1} + beta_t k_t v_t^T, chunk by chunk.

    With u_t = beta_t (v_t - S_{t-1}^T diag(a_t) k_t), S_t = diag(a_t) S_{t-1} + k_t u_t^T. Within a chunk that
    begins with S, and with b_t the product of its a up to a_t, all u are the solution of one triangular system:
    u_t + beta_t sum over i < t of (k_t . (b_t / b_i) k_i) u_i = beta_t (v_t - S^T b_t k_t). A quotient b_t / b_i
    is the exponential of a difference of logarithms, and at most one.

    Args:
        both: q and below them k (c, N, 2 C, d).
        value: v (c, N, C, e).
        products: q_t . k_i and below them k_t . k_i (c, N, 2 C, C), unless the gate is a vector.
        beta: (c, N, C, 1); a position with 0 here and in `decay` leaves the state as it is.
        decay: log a, (c, N, C, d) or (c, N, C, 1); None where a is 1.
        state: S before the first position (N, d, e); None for zeros.
        backwards: go from the last position to the first, and read what the others wrote: (diag(a_t) S_{t+1})^T q_t.

    Returns:
        o (c, N, C, e), and the last S.
    """
    size, left, kept = value.shape[2], both[:, :, value.shape[2] :], None
    if decay is not None:
        logs = decay.flip(2).cumsum(2).flip(2) if backwards else decay.cumsum(2)  # log b
        if products is None:
            products = _vector_products(both, logs, backwards)
        else:
            products = products * (logs - logs.transpose(-1, -2)).clamp(max=0).exp().repeat(1, 1, 2, 1)
        whole = logs[:, :, :1] if backwards else logs[:, :, -1:]
        left, kept = left * (whole - logs).exp(), whole.exp().transpose(-1, -2).unbind()
        both = both * logs.exp().repeat(1, 1, 2, 1)
    assert products is not None
    reads, overlaps = products.split(size, 2)
    reads = reads.triu(1) if backwards else reads.tril()
    solve = Inverse.apply(beta * overlaps, backwards) * beta.transpose(-1, -2)  # type: ignore[no-untyped-call]
    # Slices of the whole would each have a gradient as large as the whole.
    chunks = list(zip(both.unbind(), value.unbind(), reads.unbind(), solve.unbind(), left.unbind(), strict=True))
    values: list[Tensor] = []
    for index in reversed(range(len(chunks))) if backwards else range(len(chunks)):
        rows, new, read, solved, mine = chunks[index]
        if state is None:
            written = solved @ new  # u
            values.append(read @ written)
            state = mine.transpose(1, 2) @ written
        else:
            found, known = (rows @ state).split(size, 1)
            written = solved @ (new - known)
            values.append(torch.baddbmm(found, read, written))
            state = torch.baddbmm(state if kept is None else kept[index] * state, mine.transpose(1, 2), written)
    assert state is not None
    return torch.stack(values[::-1] if backwards else values), state


def _vector_products(both: Tensor, logs: Tensor, backwards: bool) -> Tensor:
    """q_t . (b_t / b_i) k_i and k_t . (b_t / b_i) k_i (c, N, 2 C, C) for C that is a power of two.

    The square of positions is cut into halves, again and again. A query of the later half and a key of the earlier one
    have b_t / b_i = (b_t / b_m) (b_m / b_i), with m the earlier half's last position. Neither factor is above one.
    """
    size = logs.shape[2]
    half = min(SMALLEST, size)
    both = both.unflatten(2, (2, -1))  # (c, N, 2, C, d)
    both, key, logs = (part.unflatten(-2, (-1, half)) for part in (both, both[:, :, 1], logs))  # (..., C / h, h, d)
    quotients = (logs.unsqueeze(-2) - logs.unsqueeze(-3)).clamp(max=0).exp()
    blocks = (both.unsqueeze(-2) * (quotients * key.unsqueeze(-3)).unsqueeze(2)).sum(-1)  # (c, N, 2, C / h, h, h)
    while blocks.shape[-3] > 1:
        halves = [part.unflatten(-3, (-1, 2)).unbind(-3) for part in (both, key, logs)]
        (_, rows), (columns, _), (early, late) = (each[::-1] for each in halves) if backwards else halves
        middle = early[..., :1, :] if backwards else early[..., -1:, :]
        right = (columns * (middle - early).exp()).transpose(-1, -2).unsqueeze(2)
        corner = (rows * (late - middle).exp().unsqueeze(2)) @ right
        first, second = blocks.unflatten(-3, (-1, 2)).unbind(-3)
        none = torch.zeros_like(corner)
        upper = torch.cat([first, corner if backwards else none], -1)
        lower = torch.cat([none if backwards else corner, second], -1)
        blocks = torch.cat([upper, lower], -2)
        both, key, logs = (part.unflatten(-3, (-1, 2)).flatten(-3, -2) for part in (both, key, logs))
    return blocks.squeeze(-3).flatten(2, 3)


def chunked_delta_rule(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    gates: Sequence[tuple[Tensor, Tensor | None]],
    state: Tensor | None = None,
    size: int = CHUNK,
) -> tuple[Tensor, Tensor]:
    """The delta rule forwards and, with a second pair of gates, backwards, where a position's own writes do not count.

    Args:
        query: q (N, L, d).
        key: k (N, L, d).
        value: v (N, L, e).
        gates: of each direction, beta (N, L) and log a (N, L, d), (N, L, 1) or None.
        state: S before the first position (N, d, e); None for zeros.
        size: C, a power of two.

    Returns:
        o (N, L, e), and S after the last position, forwards.
    """
    length = query.shape[1]
    size = min(size, 1 << (length - 1).bit_length())
    vector = gates[0][1] is not None and gates[0][1].shape[2] > 1
    both = torch.cat([_chunks(query, size), _chunks(key, size)], 2)
    chunks, products = _chunks(value, size), None
    if not vector:
        products = both @ both[:, :, size:].transpose(-1, -2)
    found = [
        read_and_write(
            both, chunks, products, _chunks(beta.unsqueeze(-1), size), None if decay is None else _chunks(decay, size),
            None if backwards else state, backwards=backwards,
        )
        for backwards, (beta, decay) in zip((False, True), gates)
    ]  # fmt: skip
    values = found[0][0] if len(found) == 1 else found[0][0] + found[1][0]
    return values.transpose(0, 1).flatten(1, 2)[:, :length], found[0][1]


def _chunks(part: Tensor, size: int) -> Tensor:
    """(N, L, d) as (L / C, N, C, d), with zeros after the last."""
    missing = -part.shape[1] % size
    part = F.pad(part, (0, 0, 0, missing)) if missing else part
    return part.unflatten(1, (-1, size)).transpose(0, 1)
