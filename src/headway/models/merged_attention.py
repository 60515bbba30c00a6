"""Attention of a decoder to the source and to its own prefix with one softmax (T5Gemma 2, Zhang et al. 2025).

Shapes: B sentences, L queries, S source, P prefix, K heads, D model, W hypotheses of a sentence, R = B * W rows of a
decoding step, grouped by sentence, n new positions of a row.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from headway.mixers.attention import Attention, attend, with_gates
from headway.mixers.mixer import Mixed
from headway.models.cross_attention import MultiHeadView
from headway.tensors.masks import additive, causal_mask


class MergedAttention(Attention):
    """softmax(Q [K_source; K]^T / sqrt(d_k)) [V_source; V]: one softmax over source and prefix, by one set of maps.

    Relative positions and forget gates apply only to the prefix: source keys are neither rotated, biased nor forgotten.
    """

    reads_source = True

    def project(self, memory: Tensor, mask: Tensor | None) -> MultiHeadView:
        """The view of memory (B, S, D), real where mask (B, S) is True; None if all of it is real."""
        at_zero = torch.zeros(memory.shape[1], dtype=torch.int64, device=memory.device)  # position 0: no rotation
        _, keys, values = self._project(memory, at_zero, mask)
        if not torch.is_grad_enabled():  # otherwise every decoding step would copy them
            keys, values = keys.contiguous(), values.contiguous()
        return MultiHeadView(keys, values, None if mask is None else mask[:, None, None, :])

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None,
        *,
        need_weights: bool = False,
        first: list[Tensor] | None = None,
        view: MultiHeadView | None = None,
    ) -> Mixed:
        assert view is not None
        length, sources = x.shape[1], view.keys.shape[2]
        query, key, value = self._project(x, torch.arange(length, device=x.device), mask)
        value = self._with_first(value, first)
        own, past = self._real_keys(mask), causal_mask(length, x.device)
        own = past.view(1, 1, length, length) if own is None else own & past
        read = view.allowed if view.allowed is not None else own.new_ones(1, 1, 1, sources)
        shape = (max(len(own), len(read)), 1, length, -1)
        gates = self._cumulated_gates(x, mask)
        bias = with_gates(self.position(length, length, device=x.device), gates, gates)
        values, weights = attend(
            query,
            torch.cat([view.keys, key], 2),
            torch.cat([view.values, value], 2),
            torch.cat([read.expand(*shape), own.expand(*shape)], -1),
            bias=None if bias is None else F.pad(bias, (sources, 0)),
            dropout=self.dropout if self.training else 0.0,
            need_weights=need_weights,
        )
        return self._finish(values, weights, mask)

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None, **options: Any) -> Tensor:
        """The values (R, K, n, d_v) of queries from their prefix and the view, which rows of a sentence share."""
        view, bias = options["view"], options["bias"]
        (count, size), sentences = query.shape[2:], len(view.keys)

        def by_sentence(x: Tensor) -> Tensor:
            """(R, K, n, ...) to (B, K, W n, ...)."""
            return x.view(sentences, -1, *x.shape[1:]).transpose(1, 2).flatten(2, 3)

        def by_row(x: Tensor) -> Tensor:
            """(B, K, W n, ...) to (R, K, n, ...)."""
            return x.view(*x.shape[:2], -1, count, x.shape[3]).transpose(1, 2).flatten(0, 1)

        query = query * size**-0.5
        own = _products(query, key.transpose(2, 3))
        read = _products(by_sentence(query), view.keys.transpose(2, 3))
        if bias is not None:
            own = own + bias
        if options.get("causal"):
            allowed = causal_mask(count, query.device)
        if allowed is not None:
            own = own + additive(allowed, own.dtype)
        if view.allowed is not None:
            read = read + additive(view.allowed, read.dtype)
        weights = torch.cat([by_row(read), own], -1).softmax(-1).to(value.dtype)
        of_source, of_prefix = torch.split(weights, [view.keys.shape[2], key.shape[2]], -1)
        return by_row(_products(by_sentence(of_source), view.values)) + _products(of_prefix, value)


def _products(x: Tensor, y: Tensor) -> Tensor:
    """Multiply x (R, K, n, a) by y (R, G, a, b), which K / G heads share: (R, K, n, b)."""
    product: Tensor = x.reshape(len(x), y.shape[1], -1, x.shape[3]) @ y
    return product.view(*x.shape[:3], -1)
