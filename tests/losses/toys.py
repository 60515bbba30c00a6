"""A small model with every kind of attention, a batch with heads, and the weights it gives."""

import numpy as np
import torch

from headway.tensors.batch import Batch, collate
from tests.models import toys

# Heads of the source and target pieces of three pairs; the target's never stand to the right.
HEADS = (
    ([1, 1, 1, 4, 2], [0, 0, -1, 2]),
    ([-1, -1, 0], [-1, 1, 1, 0, -1, 4]),
    ([0, 0, 1, 5, 5, 5], [-1]),
)
MIXERS = {"mixer": [{"kind": "dependency", "dependency_heads": 2}, "attention"]}


def model(**changes):
    return toys.model(encoder={"layers": 2} | MIXERS, decoder={"layers": 2} | MIXERS, **changes)


def batch() -> Batch:
    random = np.random.default_rng(1)
    sources = [random.integers(4, toys.SOURCE_SIZE, len(source)) for source, _ in HEADS]
    targets = [random.integers(4, toys.TARGET_SIZE, len(target)) for _, target in HEADS]
    labels = [{"source_heads": np.array(source), "target_heads": np.array(target)} for source, target in HEADS]
    return collate(sources, targets, labels=labels)


def gradients(model: torch.nn.Module, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    names = dict(model.named_parameters())
    values = torch.autograd.grad(loss, list(names.values()), allow_unused=True, retain_graph=True)
    return {name: torch.zeros(()) if value is None else value for name, value in zip(names, values, strict=True)}
