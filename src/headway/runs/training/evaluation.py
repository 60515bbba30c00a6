"""Dev loss and dev scores of a model in training."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from headway.errors import NotFiniteError
from headway.losses.cross_entropy import smoothed_cross_entropy
from headway.memory import memory_named
from headway.metrics import Metric
from headway.models import Model
from headway.runs.training.parallel import Parallel
from headway.runs.training.preparation import Corpora
from headway.runs.training.updates import SMALLER_BATCHES
from headway.tasks.task import DevSet, TrainingCorpus
from headway.tensors.precision import exact_dtype

Scores = dict[str, float]


@dataclass(frozen=True)
class Evaluation:
    """The results on dev; no scores where there are no metrics, or the loss or the scores of search are not finite."""

    loss: float  # cross-entropy a target token, in nats, without label smoothing
    scores: Scores  # by metric
    fault: str = ""  # the number that is not finite, in words

    def value(self, name: str) -> float:
        """The loss, or a score; NaN where there is none."""
        return self.loss if name == "loss" else self.scores.get(name, math.nan)

    @property
    def line(self) -> dict[str, Any]:
        """The numbers that metrics.jsonl keeps."""
        return {"loss": self.loss if math.isfinite(self.loss) else None, **self.scores}


def baseline_scores(corpora: Corpora, metrics: Sequence[Metric]) -> dict[str, Scores]:
    """The dev scores of what needs no model, by its name."""
    references = [] if corpora.dev is None else corpora.dev.references
    return {name: _scores(metrics, texts, references) for name, texts in corpora.baselines.items() if metrics}


def _scores(metrics: Sequence[Metric], texts: list[str], references: list[list[str]]) -> Scores:
    return {metric.name: metric.score(texts, references).value for metric in metrics}


@torch.inference_mode()
def dev_loss(model: Model[Any], dev: TrainingCorpus, parallel: Parallel) -> float:
    """Cross-entropy a dev target token (an end mark counts), in nats."""
    total, tokens = torch.zeros((), dtype=exact_dtype(parallel.device), device=parallel.device), 0
    # This process reads all of a batch, of which it has its share in training.
    whole = parallel.config.batch_sizes()
    sizes = {limit: size and max(1, size // parallel.world_size) for limit, size in whole.items()}
    for indices in dev.plan(0, 0, **sizes):
        with memory_named(f"in the loss of a batch of {len(indices)} dev examples", SMALLER_BATCHES):
            batch = dev.collate(indices).to(parallel.device)
            logits = model(batch).logits
            total += smoothed_cross_entropy(logits, batch.target_output, batch.target_mask, 0.0)[0]
            tokens += batch.counts["target_tokens"]
    return float(total) / tokens


@contextmanager
def _evaluating(model: Model[Any], parallel: Parallel) -> Iterator[None]:
    """Evaluation mode, in the run's precision; afterwards the model trains again."""
    model.eval()
    try:
        with parallel.autocast():
            yield
    finally:
        model.train()


def dev_scores(model: Model[Any], dev: DevSet, metrics: Sequence[Metric], parallel: Parallel) -> Scores:
    """The scores of what the model makes of dev; nothing is decoded for no metrics.

    Raises:
        NotFiniteError: search had scores that are not finite.
    """
    if not metrics:
        return {}
    with _evaluating(model, parallel):
        outputs = dev.outputs(model, parallel.device)
    return _scores(metrics, outputs, dev.references)


def evaluate(model: Model[Any], dev: DevSet, metrics: Sequence[Metric], parallel: Parallel) -> Evaluation:
    """Dev loss, and the scores of what the model makes of dev, in the run's precision; draws no random numbers."""
    with _evaluating(model, parallel):
        loss = dev_loss(model, dev.corpus, parallel)
    if not math.isfinite(loss):
        return Evaluation(loss, {}, "the loss on dev is not finite")
    try:
        return Evaluation(loss, dev_scores(model, dev, metrics, parallel))
    except NotFiniteError:
        return Evaluation(loss, {}, "the scores of search on dev are not finite")
