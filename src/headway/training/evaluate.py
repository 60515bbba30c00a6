"""Dev loss and dev scores of a model in training."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from headway.data.batches import collate_corpus, plan_epoch
from headway.decoding.predictor import Options, Predictor
from headway.models import Seq2Seq
from headway.objectives.cross_entropy import smoothed_cross_entropy
from headway.recipe import Recipe
from headway.run import LoadedRun
from headway.scoring import Metric
from headway.training.prepare import Prepared


@dataclass(frozen=True)
class Evaluation:
    """`loss`: cross-entropy a target token, in nats, without label smoothing. `scores`: by metric."""

    loss: float
    scores: dict[str, float]


@torch.inference_mode()
def dev_loss(model: Seq2Seq, prepared: Prepared, batch_tokens: int, device: torch.device) -> float:
    """Cross-entropy a dev target token (the end mark counts), in nats."""
    dev = prepared.dev
    assert dev is not None
    total, tokens = 0.0, 0
    for indices in plan_epoch(dev.source_lengths, dev.target_lengths, batch_tokens, 0, 0):
        batch = collate_corpus(dev, indices).to(device)
        logits = model(batch).logits
        total += float(smoothed_cross_entropy(logits, batch.target_output, batch.target_mask, 0.0))
        tokens += int(batch.target_mask.sum())
    return total / tokens


def evaluate(
    model: Seq2Seq, recipe: Recipe, prepared: Prepared, metrics: Sequence[Metric], device: torch.device
) -> Evaluation:
    """Dev loss, and the scores of the decoded dev sources; draws no random numbers."""
    model.eval()
    try:
        loss = dev_loss(model, prepared, recipe.training.batch_tokens, device)
        if not metrics:
            return Evaluation(loss, {})
        predictor = Predictor([LoadedRun(recipe, prepared.source, prepared.target, model)], device)
        predictions = predictor.predict([pair.source for pair in prepared.dev_pairs], Options(truncate=True))
        hypotheses = [prediction.text for prediction in predictions]
        references = [[pair.target for pair in prepared.dev_pairs]]
        return Evaluation(loss, {metric.name: metric.score(hypotheses, references).value for metric in metrics})
    finally:
        model.train()
