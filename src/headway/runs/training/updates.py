"""One update: gradients of a global batch, clipping, and a step of the optimizer.

Shapes: W processes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from headway.errors import RunError
from headway.losses import Loss, Objective
from headway.models import Model
from headway.runs.training.parallel import Parallel, whole
from headway.tasks.task import TrainingCorpus
from headway.tensors.batch import Indices, TargetBatch, of_one_update, rows


class TrainingStep(nn.Module):
    """A model and its objective as one module, so that what wraps it for several processes sees one forward pass."""

    def __init__(self, model: Model[Any], objective: Objective) -> None:
        super().__init__()
        self.model, self.objective = model, objective

    def forward(self, batch: TargetBatch) -> Loss:
        """The loss, summed over target tokens."""
        return self.objective(self.model(batch, capture=self.objective.capture), batch)


@dataclass(frozen=True)
class Gradients:
    """What one update's passes gave: loss and parts, summed over all target tokens; the gradient's norm unclipped."""

    loss: float
    parts: Mapping[str, float]
    tokens: int
    norm: float
    stop: bool

    @property
    def finite(self) -> bool:
        """Whether the update may be made."""
        return math.isfinite(self.loss) and math.isfinite(self.norm)


def compute_gradients(
    step: nn.Module,
    corpus: TrainingCorpus,
    batches: Sequence[Indices],
    parallel: Parallel,
    clip_norm: float | None,
    stop: bool,
) -> Gradients:
    """Set the gradients of the mean loss a target token of all `batches` together, clipped to `clip_norm`.

    `stop` says that this process was asked to end; the result says whether any was.

    Raises:
        RunError: memory ran out.
    """
    whole_batches = of_one_update([corpus.collate(indices) for indices in batches])
    tokens = whole_batches[0].counts["target_tokens"]
    parts: dict[str, float] = {}
    try:
        for number, whole_batch in enumerate(whole_batches):
            batch = rows(whole_batch, parallel.rank, parallel.world_size).to(parallel.device)
            with parallel.synchronise(step, last=number + 1 == len(batches)):
                with parallel.autocast():
                    loss: Loss = step(batch)
                # Gradients are averaged over W processes, so that W / tokens makes the mean over the global batch.
                (loss.total * (parallel.world_size / tokens)).backward()  # type: ignore[no-untyped-call]
            parts |= {name: parts.get(name, 0.0) + float(each.detach()) for name, each in loss.parts.items()}
    except RuntimeError as error:
        if isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error):
            raise RunError(
                f"memory ran out in a batch of {len(whole_batch.indices)} examples; lower training.batch_tokens or"
                " batch_sentences (and raise training.accumulate by as much to keep the update the same), or"
                " data.max_length"
            ) from error
        raise
    norm = nn.utils.clip_grad_norm_(step.parameters(), math.inf if clip_norm is None else clip_norm)
    *sums, stops = parallel.sum([*parts.values(), float(stop)])
    return Gradients(sum(sums), dict(zip(parts, sums, strict=True)), tokens, float(whole(norm)), stops > 0)
