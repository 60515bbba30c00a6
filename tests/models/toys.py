"""Small models and batches that tests share."""

import numpy as np
import torch

from headway.models import DecoderOnlyConfig, TransformerConfig, build_model
from headway.tensors.batch import Batch, collate

SOURCE_SIZE, TARGET_SIZE = 11, 9


def config(**changes) -> TransformerConfig:
    base = {
        "dim": 8, "feed_forward": 10, "heads": 2, "dropout": 0.0,
        "encoder": {"layers": 2}, "decoder": {"layers": 2},
    }  # fmt: skip
    return TransformerConfig.model_validate(base | changes)


def model(seed: int = 1, dtype=torch.float64, **changes):
    torch.manual_seed(seed)
    return drawn(build_model(config(**changes), SOURCE_SIZE, TARGET_SIZE, False).to(dtype).eval())


def decoder_only(seed: int = 1, dtype=torch.float64, shared: bool = False, **changes):
    """Of a shared vocabulary both sides have the target's size."""
    torch.manual_seed(seed)
    base = {"dim": 8, "feed_forward": 10, "heads": 2, "dropout": 0.0, "decoder": {"layers": 2}}
    sizes = (TARGET_SIZE, TARGET_SIZE) if shared else (SOURCE_SIZE, TARGET_SIZE)
    return drawn(build_model(DecoderOnlyConfig.model_validate(base | changes), *sizes, shared).to(dtype).eval())


def drawn(built):
    """The model with random numbers for what begins alike: norms, biases, Canon layers, queries over depth, shares."""
    for name, parameter in built.named_parameters():
        if "norm" in name or "bias" in name:
            torch.nn.init.normal_(parameter, mean=float("norm.weight" in name), std=0.3)
        if "canon" in name or name.endswith((".query", ".value_share")):
            torch.nn.init.normal_(parameter, std=0.7)
    return built


def batch(seed: int = 1) -> Batch:
    random = np.random.default_rng(seed)
    sources = [random.integers(4, SOURCE_SIZE, length) for length in (5, 3, 6)]
    targets = [random.integers(4, TARGET_SIZE, length) for length in (4, 6, 1)]
    return collate(sources, targets)


def heads(sources, targets) -> list[dict[str, np.ndarray]]:
    """Heads for pairs of these ids, some missing, on the target side to the left."""
    return [
        {
            "source_heads": np.where(source % 4, source % len(source), -1),
            "target_heads": np.where(target % 3, target % np.arange(1, len(target) + 1), -1),
        }
        for source, target in zip(sources, targets, strict=True)
    ]
