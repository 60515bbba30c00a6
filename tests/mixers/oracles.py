"""A mixer beside its oracle: values, every gradient, and what its window is."""

import torch

from headway.tensors.masks import padding_mask
from tests import reference

DIM = 6


def gradients(module, loss, *inputs):
    names = [name for name, _ in module.named_parameters()]
    values = torch.autograd.grad(loss, [*inputs, *module.parameters()])
    return dict(zip([f"input {i}" for i in range(len(inputs))] + names, values, strict=True))


def assert_same(fast, slow):
    assert fast.keys() == slow.keys()
    for name in fast:
        assert torch.allclose(fast[name], slow[name], rtol=1e-9, atol=1e-11), name


def assert_equals_oracle(mixer, oracle, length=7, lengths=(7, 4)):
    """Random weights, two sequences of which one is padded."""
    torch.manual_seed(2)
    mixer = mixer.double()
    for parameter in mixer.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    x = torch.randn(len(lengths), length, DIM, dtype=torch.float64, requires_grad=True)
    mask = padding_mask(torch.tensor(lengths), length)
    values, slow = mixer(x, mask).values, oracle(mixer, x, mask)
    assert torch.allclose(values, slow, atol=1e-11)
    upstream = torch.randn_like(values)
    assert_same(gradients(mixer, (values * upstream).sum(), x), gradients(mixer, (slow * upstream).sum(), x))


def matrix_memory(read, mixer, x, mask):
    """W_o [g * norm(o)] over all heads, with o (L, d_v) = read(mixer, head, x, q, k, v) of the real positions."""
    projected = mixer.in_projection(x)
    if mixer.canon is not None:
        projected = reference.canon(mixer.canon, projected, mask)
    values = torch.zeros_like(x)
    for row, real in enumerate(mask):
        where = real.nonzero().flatten()
        own, reads = x[row, where], []
        for head in range(mixer.heads):
            parts = [part.chunk(mixer.heads, -1)[head][where] for part in projected[row].split(mixer.widths, -1)]
            found = read(mixer, head, own, *parts)
            if mixer.norm is not None:
                found = found / (found.square().mean(-1, keepdim=True) + 1e-6).sqrt() * mixer.norm.weight
            reads.append(found)
        joined = torch.cat(reads, -1)
        if mixer.output_gate is not None:
            gate = mixer.output_gate(own)
            joined = joined * gate * gate.sigmoid()
        values[row, where] = mixer.out_projection(joined)
    return values


def decomposed(mixer, *lengths):
    """The mixer in float64 with random weights, vectors of so many positions, and its contributions for them."""
    mixer = mixer.double()
    for parameter in mixer.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    x = torch.randn(len(lengths), max(lengths), DIM, dtype=torch.float64)
    return mixer, x, mixer.contributions(x, padding_mask(torch.tensor(lengths)))


def assert_window(mixer, window, length, changed):
    """Another vector at one position changes the values of those that have it in their window, and no others."""
    mixer, x = mixer.double(), torch.randn(1, length, DIM, dtype=torch.float64)
    other = x.clone()
    other[:, changed] += 1
    difference = (mixer(x, None).values - mixer(other, None).values).abs().amax((0, 2))
    assert (difference > 0).tolist() == [changed - t in window for t in range(length)]
