"""Linear attention: each head reads from a sum of all that it has written, which decays by gates.

Shapes: B batch, L length, K heads, D model, d key, d_v value, C chunks, M positions of one, G one gate of a head, or d.
"""

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headway.core.config import Width
from headway.mixers.matrix_memory import MatrixMemory, fading_rates, step_sizes
from headway.tensors.linear import Linear
from headway.tensors.looking import may_look
from headway.tensors.precision import without_autocast

CHUNK = 64  # positions
LARGEST_EXPONENT = 40.0  # of each factor of a product; float32 can represent the square


class Gates(NamedTuple):
    """The gates of one direction.

    Attributes:
        steps: (B or 1, K, L, G), the logarithms of the decay of the memory at each position, zero at padding.
        scale: (B, K, L, 1), the factor of the input of each position; None for one.
        backward: whether positions read those after them but not themselves, instead of themselves and those before.
    """

    steps: Tensor
    scale: Tensor | None
    backward: bool

    def chunks(self, count: int, size: int) -> "Gates":
        scale = None if self.scale is None else _chunks(self.scale, count, size)
        return Gates(_chunks(self.steps, count, size), scale, self.backward)


class LinearAttention(MatrixMemory):
    """Linear attention: a memory of constant size, which fades by a gate.

    o_t = S_t^T q_t with S_t = A_t S_{t-1} + s_t k_t v_t^T, where `gate` determines A_t and s_t.

    | gate | A_t | s_t | known as |
    | `none` | 1; o_t is over q_t . sum of k | 1 | Katharopoulos et al. 2020 |
    | `fixed` | 1 - 2^(-5-h) in head h = 0, 1, ... | 1 | RetNet (Sun et al. 2023) |
    | `scalar` | exp(-exp(A_h) s_t) | softplus(w_h x_t + b_h) | Mamba-2 (Dao and Gu 2024) |
    | `vector` | diag(sigmoid(W_2 W_1 x_t + b)^(1/16)) | 1 | gated linear attention (Yang et al. 2023) |

    A mixer that is not causal adds the output of the same recurrence in the other direction, with separate gates, in
    which a position does not read itself a second time.

    Args:
        dim: D.
        causal: whether a position may only see itself and those before it.
        gate: the kind of gate. Without one, q and k are elu + 1 of their projections, else q is divided by sqrt(d).
        heads: K, the number of heads.
        head_dim: the default of d and d_v, itself by default D / K.
        key_dim: d, of queries and keys.
        value_dim: d_v, of values.
        gate_rank: the size between W_1 and W_2.
        canon: whether queries, keys and values are mixed with those of their neighbours (point B of Canon layers).
        output_norm: whether the output of each head is normalised; by default with a gate.
        output_gate: whether the output of each head is gated; by default with a gate.
        bias: whether the input and output projections have one.

    Raises:
        ValueError: dim is not divisible by heads, and no size of a head is set.
    """

    def __init__(
        self,
        dim: int,
        causal: bool,
        *,
        gate: Literal["none", "fixed", "scalar", "vector"] = "none",
        heads: Width = 8,
        head_dim: Width | None = None,
        key_dim: Width | None = None,
        value_dim: Width | None = None,
        gate_rank: Width = 16,
        canon: bool = False,
        output_norm: bool | None = None,
        output_gate: bool | None = None,
        bias: bool = True,
    ) -> None:
        gated = gate != "none"
        super().__init__(
            dim, causal, heads=heads, head_dim=head_dim, key_dim=key_dim, value_dim=value_dim,
            canon=canon, output_norm=gated if output_norm is None else output_norm,
            output_gate=gated if output_gate is None else output_gate, bias=bias,
        )  # fmt: skip
        self.gate, self.directions = gate, 1 if causal else 2
        self.weights_sum_to_one = gate == "none"
        if gate == "scalar":
            self.rate = fading_rates(self.directions, heads)
            self.gates: nn.Module = Linear(dim, self.directions * heads)
            self.gates.bias = step_sizes(self.directions * heads)
        if gate == "vector":
            outputs = self.directions * heads * self.key_dim
            self.gates = nn.Sequential(Linear(dim, gate_rank, bias=False), Linear(gate_rank, outputs))

    def _gates(self, x: Tensor, mask: Tensor | None) -> list[Gates]:
        dtype, shape = torch.promote_types(x.dtype, torch.float32), (*x.shape[:2], self.directions, self.heads, -1)
        scales = [None] * self.directions
        if self.gate in ("none", "fixed"):
            exponents = -5.0 - torch.arange(self.heads, dtype=dtype, device=x.device)
            step = torch.log1p(-torch.exp2(exponents)) if self.gate == "fixed" else torch.zeros_like(exponents[:1])
            steps = [step[None, :, None, None].expand(1, -1, x.shape[1], 1)] * self.directions
        else:
            given = self.gates(x).to(dtype).view(shape).permute(2, 0, 3, 1, 4)  # (directions, B, K, L, G)
            if self.gate == "scalar":
                given = F.softplus(given)
                scales, given = list(given), -given * self.rate.to(dtype).exp()[:, None, :, None, None]
            else:
                given = F.logsigmoid(given) / 16
            steps = list(given)
        if mask is not None:
            steps = [step.masked_fill(~mask[:, None, :, None], 0) for step in steps]
        return [Gates(step, scale, n == 1) for n, (step, scale) in enumerate(zip(steps, scales, strict=True))]

    def _features(self, query: Tensor, key: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """The features of queries and keys that the memory uses, zero at padding."""
        if self.gate != "none":
            return query * self.key_dim**-0.5, key
        hidden = None if mask is None else ~mask[:, None, :, None]
        query, key = F.elu(query) + 1, F.elu(key) + 1
        return (query, key) if hidden is None else (query.masked_fill(hidden, 0), key.masked_fill(hidden, 0))

    def read(
        self, x: Tensor, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, memory: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        query, key = self._features(query, key, mask)
        if self.gate == "none":  # an additional value of 1 sums up the denominator
            value = F.pad(value, (0, 1), value=1.0)
        if self.gate == "none" and not self.causal:
            read, after = query @ (key.transpose(2, 3) @ value), None
        elif memory is not None and x.shape[1] == 1:
            read, after = _step(query, key, value, self._gates(x, mask)[0], memory)
        else:
            read, after = _read_chunks(query, key, value, self._gates(x, mask), memory)
        read = read.to(torch.promote_types(read.dtype, torch.float32))
        if self.gate == "none":
            read = read[..., :-1] / read[..., -1:].clamp(min=torch.finfo(read.dtype).tiny)
        return read, after

    def weights(self, x: Tensor, query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
        query, key = self._features(query, key, mask)
        gates = [each.chunks(1, x.shape[1]) for each in self._gates(x, mask)]
        weights = _within(query.unsqueeze(2), key.unsqueeze(2), gates).squeeze(2)
        if self.gate != "none":
            return weights
        return weights / weights.sum(-1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)

    def _sizes(self) -> tuple[int, int]:
        return self.key_dim, self.value_dim + (self.gate == "none")

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, gate={self.gate!r}"


def _step(query: Tensor, key: Tensor, value: Tensor, gates: Gates, memory: Tensor) -> tuple[Tensor, Tensor]:
    """The values read by one position (B, K, 1, .), and the memory after it."""
    with without_autocast(memory.device):  # autocast would round the memory
        key = key.to(memory.dtype) if gates.scale is None else key * gates.scale
        memory = gates.steps.exp().transpose(2, 3) * memory + key.transpose(2, 3) * value
        return query.to(memory.dtype) @ memory, memory


def _read_chunks(
    query: Tensor, key: Tensor, value: Tensor, gates: list[Gates], memory: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """The values read by positions (B, K, L, .), computed in parallel chunks, and the memory after the last one."""
    length = query.shape[2]
    count = -(-length // CHUNK)
    size = CHUNK if torch.compiler.is_exporting() else -(-length // count)
    query, key, value = (_chunks(x, count, size) for x in (query, key, value))
    gates = [each.chunks(count, size) for each in gates]
    read, after = _within(query, key, gates) @ value, None
    if count > 1 or memory is not None:
        for each in gates:
            between, after = _between(query, key, value, each, memory)
            read = read + between
    return read.flatten(2, 3)[:, :, :length], after


def _chunks(x: Tensor, count: int, size: int) -> Tensor:
    """Cut (B, K, L, .) into (B, K, C, M, .), with zeros after the last position."""
    missing = count * size - x.shape[2]
    padded = F.pad(x, (0, 0, 0, missing)) if missing else x
    return padded.reshape(*x.shape[:2], count, size, x.shape[3])


def _sums(steps: Tensor, backward: bool, dim: int) -> Tensor:
    """c such that c_i - c_j is the sum of steps from j to i: of j + 1 .. i, or backwards of i .. j - 1."""
    sums = steps.cumsum(dim)
    return steps - sums if backward else sums


def _decays(steps: Tensor, backward: bool, diagonal: int = 0) -> Tensor:
    """The decay from position j to position i, (..., M, M), from steps (..., M); zero if i does not attend to j."""
    sums = _sums(steps, backward, -1)
    exponents = sums.unsqueeze(-1) - sums.unsqueeze(-2)
    readable = torch.ones(exponents.shape[-2:], dtype=torch.bool, device=steps.device)
    readable = readable.triu(diagonal) if backward else readable.tril(-diagonal)
    return exponents.masked_fill(~readable, -math.inf).exp()


def _within(query: Tensor, key: Tensor, gates: list[Gates]) -> Tensor:
    """The products (B, K, C, M, M) of queries with keys of the same chunk, times their decay."""
    if gates[0].steps.shape[-1] > 1:
        products = [_products(query, key, each) for each in gates]
        return sum(products[1:], products[0])
    decays = [_decays(each.steps.squeeze(-1), each.backward, int(each.backward)) for each in gates]
    scaled = [
        decay if each.scale is None else decay * each.scale.transpose(3, 4)
        for each, decay in zip(gates, decays, strict=True)
    ]
    return (query @ key.transpose(3, 4)) * sum(scaled[1:], scaled[0])


def _products(query: Tensor, key: Tensor, gates: Gates) -> Tensor:
    """The products (B, K, C, M, M) of queries with keys that they read, if each channel has a gate.

    The decay from j to i is a product of the decays from j to a position between them, and from there to i, so that no
    exponent is positive. This position is the middle of the smallest block of 2, 4, 8, ... positions that contains
    both. If the memory decays little, which is checked on a CPU, the middle of the chunk is used for all of them.
    """
    sums = _sums(gates.steps, gates.backward, 3)
    size, looking = sums.shape[3], may_look(sums)
    positions = torch.arange(size, device=sums.device)
    ahead = (positions - positions[:, None]) if gates.backward else (positions[:, None] - positions)
    if looking and (sums[:, :, :, -1] - sums[:, :, :, 0]).abs().max() <= LARGEST_EXPONENT:
        exponents = sums - sums[:, :, :, size // 2, None]
        products = (query * exponents.exp()) @ (key * (-exponents).exp()).transpose(3, 4)
        return products.masked_fill(ahead < int(gates.backward), 0)
    products = torch.zeros_like(sums[..., :1]) if gates.backward else torch.diag_embed((query * key).sum(-1))
    half, apart = 1, positions[:, None] ^ positions
    while half < size:
        middle = (positions // (2 * half) * 2 * half + half).clamp(max=size - 1)
        decays = (sums - sums[:, :, :, middle]).abs().neg().exp()
        product = (query * decays) @ (key * decays).transpose(3, 4)
        products = products + product.masked_fill((ahead < 1) | (apart < half) | (apart >= 2 * half), 0)
        half *= 2
    return products


def _between(
    query: Tensor, key: Tensor, value: Tensor, gates: Gates, memory: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """The values (B, K, C, M, d_v) read from other chunks and from `memory`, and the memory after the last chunk."""
    sums, last = _sums(gates.steps, gates.backward, 3), gates.steps.sum(3, keepdim=True)
    enter, leave = (sums + last, -sums) if gates.backward else (sums, last - sums)
    keys = key * leave.exp()
    if gates.scale is not None:
        keys = keys * gates.scale
    written = keys.transpose(3, 4) @ value  # (B, K, C, d, d_v)
    steps = last.squeeze(3)  # (B, K, C, G)
    if memory is not None:
        written = torch.cat([memory.unsqueeze(2), written.to(memory.dtype)], 2)
        steps = F.pad(steps, (0, 0, 1, 0))
    decays = _decays(steps.transpose(2, 3), gates.backward)  # (B or 1, K, G, C, C)
    groups = steps.shape[3]
    with without_autocast(written.device):
        flat = written.to(decays.dtype).view(*written.shape[:3], groups, -1).transpose(2, 3)
        memories = (decays @ flat).transpose(2, 3).reshape(written.shape)
    if memory is not None:
        before, after = memories[:, :, :-1], memories[:, :, -1]
    elif gates.backward:
        before, after = F.pad(memories[:, :, 1:], (0, 0, 0, 0, 0, 1)), None
    else:
        before, after = F.pad(memories[:, :, :-1], (0, 0, 0, 0, 1, 0)), None
    return (query * enter.exp()) @ before, after
