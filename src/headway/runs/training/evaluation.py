"""Dev loss and dev scores of a model in training."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from headway.losses.cross_entropy import smoothed_cross_entropy
from headway.metrics import Metric
from headway.models import Model
from headway.recipe import Recipe, TrainingConfig
from headway.tasks.task import Corpora, DevOutputs, TrainingCorpus


@dataclass(frozen=True)
class Evaluation:
    """`loss`: cross-entropy a target token, in nats, without label smoothing. `scores`: by metric."""

    loss: float
    scores: dict[str, float]


Scores = dict[str, float]


def baseline_scores(prepared: Corpora, metrics: Sequence[Metric]) -> dict[str, Scores]:
    """What needs no model, by its name, scored by every metric."""
    return {name: _scores(metrics, outputs) for name, outputs in prepared.dev_baselines().items() if metrics}


def _scores(metrics: Sequence[Metric], outputs: DevOutputs) -> Scores:
    return {metric.name: metric.score(*outputs).value for metric in metrics}


@torch.inference_mode()
def dev_loss(model: Model[Any], dev: TrainingCorpus, training: TrainingConfig, device: torch.device) -> float:
    """Cross-entropy a dev target token (an end mark counts), in nats."""
    total, tokens = 0.0, 0
    for indices in dev.plan(0, 0, **training.batch_sizes()):
        batch = dev.collate(indices).to(device)
        logits = model(batch).logits
        total += float(smoothed_cross_entropy(logits, batch.target_output, batch.target_mask, 0.0))
        tokens += batch.counts["target_tokens"]
    return total / tokens


def evaluate(
    model: Model[Any], recipe: Recipe, prepared: Corpora, metrics: Sequence[Metric], device: torch.device
) -> Evaluation:
    """Dev loss, and the scores of what the model makes of dev; draws no random numbers."""
    assert prepared.dev is not None
    model.eval()
    try:
        loss = dev_loss(model, prepared.dev, recipe.training, device)
        if not metrics:
            return Evaluation(loss, {})
        return Evaluation(loss, _scores(metrics, prepared.dev_outputs(model, device)))
    finally:
        model.train()
