"""The windows of multi-head n-grams: the convolution that headway uses beside the other forms of the same sums.

Forward and backward, projections included, so that the layouts that each form needs are paid for. Shapes: B batch, L
positions, D model, K heads, d head, w positions of the window.
"""

from functools import partial

import torch
from rounds import print_medians
from torch import Tensor
from torch.nn import functional as F

from headway.core.device import keep_freed_memory
from headway.mixers import Mixer, build_mixer

DIM, HEADS, N = 512, 8, 5
HEAD, WINDOW = DIM // HEADS, 2 * N - 1


class ShiftedProducts(torch.autograd.Function):
    """The sum over offsets of the shifted sequence times that offset's matrix, each a batched product over heads."""

    @staticmethod
    def forward(context, projected: Tensor, weight: Tensor) -> Tensor:
        """projected (B, L, K, d), weight (w, K, d, d)."""
        batch, length = projected.shape[:2]
        padded = F.pad(projected.permute(2, 0, 1, 3), (0, 0, N - 1, N - 1)).flatten(1, 2)  # (K, B (L + w - 1), d)
        count = padded.shape[1] - (WINDOW - 1)
        total = torch.bmm(padded[:, :count], weight[0])
        for offset in range(1, WINDOW):
            total.baddbmm_(padded[:, offset : offset + count], weight[offset])
        context.save_for_backward(padded, weight)
        context.sizes = batch, length, count
        return F.pad(total, (0, 0, 0, WINDOW - 1)).view(HEADS, batch, -1, HEAD)[:, :, :length].permute(1, 2, 0, 3)

    @staticmethod
    def backward(context, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """The transposed products, shifted back."""
        padded, weight = context.saved_tensors
        batch, length, count = context.sizes
        gradient = F.pad(gradient.permute(2, 0, 1, 3), (0, 0, 0, WINDOW - 1)).flatten(1, 2)[:, :count]
        to_input, to_weight = torch.zeros_like(padded), torch.empty_like(weight)
        for offset in range(WINDOW):
            to_input[:, offset : offset + count].baddbmm_(gradient, weight[offset].transpose(1, 2))
            torch.bmm(padded[:, offset : offset + count].transpose(1, 2), gradient, out=to_weight[offset])
        to_input = to_input.view(HEADS, batch, -1, HEAD)[:, :, N - 1 : N - 1 + length]
        return to_input.permute(1, 2, 0, 3), to_weight


def shifted_products(x: Tensor, inner: Tensor, weight: Tensor, outer: Tensor) -> Tensor:
    """Weight (w, K, d, d)."""
    projected = F.linear(x, inner).view(*x.shape[:2], HEADS, HEAD)
    return F.linear(ShiftedProducts.apply(projected, weight).relu().flatten(2), outer)


def shifted_sum(x: Tensor, inner: Tensor, weight: Tensor, outer: Tensor) -> Tensor:
    """The same sums left to autograd (and to torch.compile). Weight (w, K, d, d)."""
    padded = F.pad(F.linear(x, inner), (0, 0, N - 1, N - 1)).view(len(x), -1, HEADS, HEAD)
    length = x.shape[1]
    terms = [torch.einsum("blki,kio->blko", padded[:, o : o + length], weight[o]) for o in range(WINDOW)]
    return F.linear(torch.stack(terms).sum(0).relu().flatten(2), outer)


def unfolded(x: Tensor, inner: Tensor, weight: Tensor, outer: Tensor) -> Tensor:
    """A copy of every window, then one product a head: w-fold memory. Weight (K, d w, d)."""
    batch, length = x.shape[:2]
    padded = F.pad(F.linear(x, inner), (0, 0, N - 1, N - 1)).view(batch, -1, HEADS, HEAD).permute(2, 0, 1, 3)
    windows = padded.unfold(2, WINDOW, 1).reshape(HEADS, batch * length, HEAD * WINDOW)
    hidden = torch.bmm(windows, weight).view(HEADS, batch, length, HEAD).permute(1, 2, 0, 3)
    return F.linear(hidden.relu().flatten(2), outer)


def convolution_1d(x: Tensor, inner: Tensor, weight: Tensor, outer: Tensor) -> Tensor:
    """A grouped convolution that wants channels before positions. Weight (K d, d, w)."""
    hidden = F.conv1d(F.linear(x, inner).transpose(1, 2), weight, padding=N - 1, groups=HEADS)
    return F.linear(hidden.relu().transpose(1, 2), outer)


def headway(x: Tensor, mixer: Mixer) -> Tensor:
    """The mixer."""
    return mixer(x, None).values


def run(function, inputs: list[Tensor]) -> None:
    """Forward and backward."""
    values = function(inputs[0])
    torch.autograd.grad(values, inputs, torch.ones_like(values))


def main() -> None:
    """Batches of 4,096 tokens."""
    mixer = build_mixer({"kind": "ngram", "n": N, "heads": HEADS, "bias": False}, DIM, causal=False)
    inner, outer = mixer.in_projection.weight, mixer.out_projection.weight
    by_offset = mixer.weight.detach().permute(3, 0, 2, 1).contiguous().requires_grad_()
    by_head = mixer.weight.detach().permute(0, 2, 3, 1).flatten(1, 2).contiguous().requires_grad_()
    by_channel = mixer.weight.detach().flatten(0, 1).contiguous().requires_grad_()
    forms = {
        "shifted batched products": (shifted_products, by_offset),
        "shifted sum": (shifted_sum, by_offset),
        "shifted sum, torch.compile": (torch.compile(shifted_sum), by_offset),
        "unfold, then a product": (unfolded, by_head),
        "grouped convolution, channels first": (convolution_1d, by_channel),
    }
    for length in (64, 512, 4096):
        x = torch.randn(4096 // length, length, DIM, requires_grad=True)
        functions = {"headway": partial(run, partial(headway, mixer=mixer), [x, *mixer.parameters()])}
        for name, (form, weight) in forms.items():
            whole = partial(form, inner=inner, weight=weight, outer=outer)
            assert torch.allclose(whole(x), headway(x, mixer), atol=1e-4), name
            functions[name] = partial(run, whole, [x, inner, weight, outer])
        print_medians(f"L {length}", functions, turns=9)


if __name__ == "__main__":
    keep_freed_memory()
    main()
