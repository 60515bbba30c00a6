"""Small models and batches that tests share."""

import numpy as np
import torch

from headway.models import TransformerConfig, build_model
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
    built = build_model(config(**changes), SOURCE_SIZE, TARGET_SIZE, False).to(dtype).eval()
    for name, parameter in built.named_parameters():
        if "norm" in name or "bias" in name:
            torch.nn.init.normal_(parameter, mean=float("norm.weight" in name), std=0.3)
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


def assert_steps_equal_whole(model):
    """Tokens one at a time give what all at once give; rows have different lengths."""
    toy = batch()
    whole = model(toy).logits.log_softmax(-1)
    state = model.start(model.encode(toy.source, toy.source_mask), 10)
    for time in range(toy.target_input.shape[1]):
        scores, state = model.extend(toy.target_input[:, time : time + 1], state)
        real = toy.target_mask[:, time]
        assert torch.allclose(scores[real], whole[real, time], atol=1e-11)


def assert_batch_equals_rows(model):
    """A batch gives what each of its rows gives alone, without padding."""
    toy = batch()
    logits = model(toy).logits
    for row in range(3):
        source = toy.source[row][toy.source_mask[row]][:-1].numpy()
        target = toy.target_output[row][toy.target_mask[row]][:-1].numpy()
        alone = model(collate([source], [target])).logits[0]
        assert torch.allclose(logits[row][toy.target_mask[row]], alone, atol=1e-12)
