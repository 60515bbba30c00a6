"""The delta rule: each head has a matrix as memory, and removes the value under a key before it writes a new one.

Shapes: B batch, L length, K heads, D model, d key, d_v value, c chunks, C positions of one, N the B K rows of a chunk.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headway.core.config import Width
from headway.mixers.matrix_memory import MatrixMemory, fading_rates, step_sizes
from headway.tensors.linear import Linear
from headway.tensors.precision import without_autocast

CHUNK = 32
SMALLEST = 4


def read_and_write(
    both: Tensor,
    value: Tensor,
    products: Tensor | None,
    beta: Tensor,
    decay: Tensor | None,
    state: Tensor | None = None,
    *,
    backwards: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """o_t = S_t^T q_t with S_t = (I - beta_t k_t k_t^T) diag(a_t) S_{t-1} + beta_t k_t v_t^T, chunk by chunk.

    With u_t = beta_t (v_t - S_{t-1}^T diag(a_t) k_t), S_t = diag(a_t) S_{t-1} + k_t u_t^T. Within a chunk that
    begins with S, and with b_t the product of its a up to a_t, all u are the solution of one triangular system:
    u_t + beta_t sum over i < t of (k_t . (b_t / b_i) k_i) u_i = beta_t (v_t - S^T b_t k_t). A quotient b_t / b_i
    is the exponential of a difference of logarithms, and at most one.

    Args:
        both: q concatenated with k (c, N, 2 C, d).
        value: v (c, N, C, d_v).
        products: q_t . k_i concatenated with k_t . k_i (c, N, 2 C, C); not used if the gate is a vector.
        beta: (c, N, C, 1); a position with 0 here and in `decay` does not change the state.
        decay: log a, (c, N, C, d) or (c, N, C, 1); None if a is 1.
        state: S before the first position (N, d, d_v); None for zeros.
        backwards: go from the last position to the first, and read only what others wrote: (diag(a_t) S_{t+1})^T q_t.

    Returns:
        o (c, N, C, d_v), and the last S, or None if `state` is None.
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
    reads, overlaps = torch.split(products, size, 2)
    reads = reads.triu(1) if backwards else reads.tril()
    unit = torch.eye(size, dtype=value.dtype, device=value.device).expand_as(overlaps)
    solve = torch.linalg.solve_triangular(beta * overlaps, unit, upper=backwards, unitriangular=True)
    solve = solve * beta.transpose(-1, -2)
    # The gradient of a slice would be as large as the whole tensor.
    parts = zip(both.unbind(), value.unbind(), reads.unbind(), solve.unbind(), left.unbind(), strict=True)
    chunks = list(zip(parts, [None] * len(value) if kept is None else kept, strict=True))
    values: list[Tensor] = []
    continued = state is not None
    for (rows, new, read, solved, keys), keep in reversed(chunks) if backwards else chunks:
        if state is None:
            written = solved @ new  # u
            values.append(read @ written)
        else:
            found, known = torch.split(rows @ state, size, 1)
            written = solved @ (new - known)
            values.append(torch.baddbmm(found, read, written))
        if continued or len(values) < len(chunks):
            before = state if state is None or keep is None else keep * state
            addend = keys.transpose(1, 2)
            state = addend @ written if before is None else torch.baddbmm(before, addend, written)
    return torch.stack(values[::-1] if backwards else values), state if continued else None


def _vector_products(both: Tensor, logs: Tensor, backwards: bool) -> Tensor:
    """q_t . (b_t / b_i) k_i and k_t . (b_t / b_i) k_i (c, N, 2 C, C) for C that is a power of two.

    The positions are halved recursively. For a query of the later half and a key of the earlier one,
    b_t / b_i = (b_t / b_m) (b_m / b_i), with m the last position of the earlier half. Both factors are at most one.
    """
    size = logs.shape[2]
    half = min(SMALLEST, size)
    both = torch.unflatten(both, 2, (2, -1))  # (c, N, 2, C, d)
    both, key, logs = (
        torch.unflatten(part, -2, (-1, half)) for part in (both, both[:, :, 1], logs)
    )  # (..., C / h, h, d)
    quotients = (logs.unsqueeze(-2) - logs.unsqueeze(-3)).clamp(max=0).exp()
    blocks = (both.unsqueeze(-2) * (quotients * key.unsqueeze(-3)).unsqueeze(2)).sum(-1)  # (c, N, 2, C / h, h, h)
    while blocks.shape[-3] > 1:
        halves = [torch.unflatten(part, -3, (-1, 2)).unbind(-3) for part in (both, key, logs)]
        (_, rows), (columns, _), (early, late) = (each[::-1] for each in halves) if backwards else halves
        middle = early[..., :1, :] if backwards else early[..., -1:, :]
        right = (columns * (middle - early).exp()).transpose(-1, -2).unsqueeze(2)
        corner = (rows * (late - middle).exp().unsqueeze(2)) @ right
        first, second = torch.unflatten(blocks, -3, (-1, 2)).unbind(-3)
        none = torch.zeros_like(corner)
        upper = torch.cat([first, corner if backwards else none], -1)
        lower = torch.cat([none if backwards else corner, second], -1)
        blocks = torch.cat([upper, lower], -2)
        both, key, logs = (torch.unflatten(part, -3, (-1, 2)).flatten(-3, -2) for part in (both, key, logs))
    return blocks.squeeze(-3).flatten(2, 3)


def chunked_delta_rule(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    gates: Sequence[tuple[Tensor, Tensor | None]],
    memory: Tensor | None = None,
    size: int = CHUNK,
) -> tuple[Tensor, Tensor | None]:
    """The delta rule forwards and, with a second pair of gates, backwards, excluding the write of the position itself.

    Args:
        query: q (B, K, L, d).
        key: k (B, K, L, d).
        value: v (B, K, L, d_v).
        gates: of each direction, beta (B, K, L, 1) and log a (B, K, L, d), (B, K, L, 1) or None.
        memory: S before the first position (B, K, d, d_v); None for zeros.
        size: C, a power of two.

    Returns:
        o (B, K, L, d_v), and S after the last position, or None if `memory` is None.
    """
    shape, decay = query.shape[:3], gates[0][1]
    size = min(size, 1 << (shape[2] - 1).bit_length())
    both = torch.cat([_chunks(query, size), _chunks(key, size)], 2)
    vector = decay is not None and decay.shape[3] > 1
    products = None if vector else both @ both[:, :, size:].transpose(2, 3)
    state, chunks = None if memory is None else memory.flatten(0, 1), _chunks(value, size)
    (values, after), *others = (
        read_and_write(
            both, chunks, products, _chunks(beta, size), None if decay is None else _chunks(decay, size),
            None if backwards else state, backwards=backwards,
        )
        for backwards, (beta, decay) in zip((False, True), gates, strict=False)
    )  # fmt: skip
    for backward, _ in others:
        values = values + backward
    values = values.transpose(0, 1).reshape(*shape[:2], -1, value.shape[3])[:, :, : shape[2]]
    return values, None if after is None else torch.unflatten(after, 0, shape[:2])


def _chunks(part: Tensor, size: int) -> Tensor:
    """(B, K, L, d) to (c, B K, C, d), with zeros after the last position."""
    missing = -part.shape[2] % size
    part = F.pad(part, (0, 0, 0, missing)) if missing else part
    return torch.unflatten(part, 2, (-1, size)).permute(2, 0, 1, 3, 4).flatten(1, 2)


def step(
    query: Tensor, key: Tensor, value: Tensor, beta: Tensor, decay: Tensor | None, memory: Tensor
) -> tuple[Tensor, Tensor]:
    """`chunked_delta_rule` of one position."""
    if decay is not None:
        memory = decay.exp().transpose(2, 3) * memory
    found, known = torch.split(torch.cat([query, key], 2) @ memory, 1, 2)
    written = beta * (value - known)
    return found + (query * key).sum(3, keepdim=True) * written, memory + key.transpose(2, 3) * written


class DeltaRule(MatrixMemory):
    """The delta rule, a linear attention that corrects its memory.

    o_t = S_t^T q_t with S_t = (I - beta_t k_t k_t^T) diag(a_t) S_{t-1} + beta_t k_t v_t^T, in heads. q and k have
    length one, and beta_t = sigmoid(w_h x_t). A position first removes a share beta_t of the value that the memory has
    under its key, and adds the same share of its own value. `gate` is the decay of the memory:

    | gate     | a_t                                             | known as                                |
    | `none`   | 1                                               | DeltaNet (Yang et al. 2024)             |
    | `scalar` | exp(-exp(A_h) softplus(w_h x_t + b_h))          | gated DeltaNet (Yang et al. 2025)       |
    | `vector` | exp(-exp(A_h) softplus(W_2 W_1 x_t + b)), of d  | Kimi delta attention (Kimi Team 2025)   |

    A mixer that is not causal adds the output of the same recurrence in the other direction, with separate gates, read
    before a position's own write. Inputs and outputs are those of `MatrixMemory`.

    Args:
        dim: D.
        causal: whether a position may only see itself and those before it.
        gate: the kind of a_t.
        negative_eigenvalues: whether beta_t is twice as large, up to 2, so that a write can negate the stored value,
            which tracking a parity needs (Grazzi et al. 2025).
        heads: K, the number of heads.
        head_dim: the default of d and d_v, itself by default D / K.
        key_dim: d, of queries and keys.
        value_dim: d_v, of values.
        gate_rank: the size between W_1 and W_2.
        canon: whether queries, keys and values are mixed with those of their neighbours (point B of Canon layers).
        output_norm: whether the output of each head is normalised.
        output_gate: whether the output of each head is gated.
        bias: whether the input and output projections have one.

    Raises:
        ValueError: dim is not divisible by heads, and no size of a head is set.
    """

    weights_sum_to_one = False

    def __init__(
        self,
        dim: int,
        causal: bool,
        *,
        gate: Literal["none", "scalar", "vector"] = "none",
        negative_eigenvalues: bool = False,
        heads: Width = 8,
        head_dim: Width | None = None,
        key_dim: Width | None = None,
        value_dim: Width | None = None,
        gate_rank: Width = 16,
        canon: bool = False,
        output_norm: bool = True,
        output_gate: bool = False,
        bias: bool = True,
    ) -> None:
        super().__init__(
            dim, causal, heads=heads, head_dim=head_dim, key_dim=key_dim, value_dim=value_dim,
            canon=canon, output_norm=output_norm, output_gate=output_gate, bias=bias,
        )  # fmt: skip
        self.gate, self.negative_eigenvalues, self.directions = gate, negative_eigenvalues, 1 if causal else 2
        self.beta = Linear(dim, self.directions * heads, bias=False)
        if gate != "none":
            self.rate = fading_rates(self.directions, heads)
            outputs = self.directions * heads * (self.key_dim if gate == "vector" else 1)
            last = Linear(gate_rank if gate == "vector" else dim, outputs)
            last.bias = step_sizes(outputs)
            self.decay = nn.Sequential(Linear(dim, gate_rank, bias=False), last) if gate == "vector" else last

    def _gates(self, x: Tensor, mask: Tensor | None, dtype: torch.dtype) -> list[tuple[Tensor, Tensor | None]]:
        """beta and log a of each direction, zero at padding."""

        def split(given: Tensor) -> Tensor:  # (directions, B, K, L, .)
            return torch.unflatten(given.to(dtype), 2, (self.directions, self.heads, -1)).permute(2, 0, 3, 1, 4)

        betas, decays = split(self.beta(x)).sigmoid() * (2 if self.negative_eigenvalues else 1), None
        if self.gate != "none":
            decays = F.softplus(split(self.decay(x))) * -self.rate.to(dtype).exp()[:, None, :, None, None]
        if mask is not None:
            hidden = ~mask[:, None, :, None]
            betas, decays = betas.masked_fill(hidden, 0), None if decays is None else decays.masked_fill(hidden, 0)
        return list(zip(betas, [None] * self.directions if decays is None else decays, strict=True))

    def read(
        self, x: Tensor, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, memory: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        dtype = torch.promote_types(value.dtype, torch.float32)
        gates = self._gates(x, mask, dtype)
        with without_autocast(x.device):
            query, key = (F.normalize(part.to(dtype), dim=-1) for part in (query, key))
            if memory is not None and x.shape[1] == 1:
                return step(query, key, value.to(dtype), *gates[0], memory)
            return chunked_delta_rule(query, key, value.to(dtype), gates, memory)

    def weights(self, x: Tensor, query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
        unit = torch.eye(x.shape[1], dtype=query.dtype, device=x.device).expand(*query.shape[:3], -1)
        return self.read(x, query, key, unit, mask, None)[0]

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, gate={self.gate!r}, negative_eigenvalues={self.negative_eigenvalues}"
