"""Self-attention forward and backward: headway's tensor operations beside torch's fused kernel.

Shapes: B batch, K heads, L positions, d head.
"""

from functools import partial

import torch
from rounds import print_medians
from torch import Tensor
from torch.nn import functional as F

from headway.core.device import keep_freed_memory
from headway.mixers.attention import attend
from headway.tensors.masks import padding_mask


def explicit(inputs: list[Tensor], allowed: Tensor | None, causal: bool) -> None:
    """headway, forward and backward."""
    values, _ = attend(*inputs, allowed, causal=causal)
    torch.autograd.grad(values, inputs, values)


def fused(inputs: list[Tensor], allowed: Tensor | None, causal: bool) -> None:
    """torch, forward and backward."""
    values = F.scaled_dot_product_attention(*inputs, attn_mask=allowed, is_causal=causal)
    torch.autograd.grad(values, inputs, values)


def main() -> None:
    """Batches of 4,096 tokens, 8 heads of 64; queries, keys and values lie beside each other, as projected."""
    for length in (10, 20, 30, 50, 100, 300, 1000):
        batch = 4096 // length
        lengths = torch.full((batch,), length).sub(torch.arange(batch) % 2)
        for setting in ("causal", "everything", "padding"):
            projected = torch.randn(batch, length, 3, 8, 64).permute(2, 0, 3, 1, 4)
            inputs = [each.requires_grad_() for each in projected.unbind()]
            allowed = padding_mask(lengths, length)[:, None, None, :] if setting == "padding" else None
            arguments = inputs, allowed, setting == "causal"
            functions = {"explicit": partial(explicit, *arguments), "fused": partial(fused, *arguments)}
            print_medians(f"L {length}, {setting}", functions, turns=7)


if __name__ == "__main__":
    keep_freed_memory()
    main()
